"""`millrace top` on a pseudo-terminal, and without one, over a real run."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from typing import Any, List

import pytest

import millrace
from conftest import variant

ENDLESS = variant(
    {"stop": {"steps": 1_000_000}, "global_batch_size": 8, "micro_batch_size": 2, "sequence_length": 192}
)
ENTER, LEAVE = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"


class Screen:
    """`millrace top` on a pseudo-terminal."""

    def __init__(self, binary: Any, directory: Any, columns: int, lines: int) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [str(binary), "top", str(directory)], stdin=self.slave, stdout=self.slave, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        self.output = b""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def pages(self) -> List[List[str]]:
        """The complete pages so far, as lines without codes."""
        parts = self.output.split(b"\x1b[H")[1:]
        return [re.sub(r"\x1b\[[KJ]", "", p.decode()).split("\r\n") for p in parts if p.endswith(b"\x1b[J")]

    def until(self, is_there: Any, seconds: float = 20.0) -> List[str]:
        """Reads until a new page fulfils a condition, and returns it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                self.output += os.read(self.master, 1 << 16)
            pages = self.pages()
            if pages and is_there(pages[-1]):
                return pages[-1]
        raise AssertionError(f"no such page: {self.pages()[-1:]}")

    def end(self) -> int:
        code = self.process.wait(10)
        while select.select([self.master], [], [], 0.1)[0]:
            self.output += os.read(self.master, 1 << 16)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is not as it was"
        return code


def train(path: str, over: threading.Event) -> None:
    with millrace.connect(path, tensors="numpy", start="latest") as loader:
        for _ in loader:
            if over.wait(0.02):
                return


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_pages_on_a_terminal(stage: Any, key: bytes) -> None:
    with stage.up(ENDLESS, 1) as run:
        over = threading.Event()
        trainer = threading.Thread(target=train, args=(str(run.directory / "rank-0.sock"), over))
        trainer.start()
        try:
            screen = Screen(stage.binary, run.directory, 120, 40)
            page = screen.until(lambda page: re.search(r"step [1-9]\d*, .* [\d.]+ steps/s, ", page[1]))
            assert len(page) == 40 and page[-1] == "q: quit" and page[0].startswith("millrace top ")
            steps = float(re.search(r"([\d.]+) steps/s", page[1]).group(1))  # type: ignore[union-attr]
            assert 0 < steps < 50 / 4 * 1.5, "a trainer that takes four batches a step, 20 ms each"
            text = "\n".join(page)
            for source in ENDLESS["sources"]:
                assert re.search(rf"^{source} +[\d,]+ ", text, re.MULTILINE), text
            for role in ("orchestrator", "loader", "sidecar"):
                assert re.search(rf"^{role} +{role}\S* +\d+ +\w+ +\d+% +[\d.]+ MiB +0$", text, re.MULTILINE), text
            screen.resize(50, 9)
            os.kill(screen.process.pid, signal.SIGWINCH)
            page = screen.until(lambda page: len(page) == 9)
            assert all(len(line) <= 50 for line in page) and "more lines" in page[-2] and page[-1] == "q: quit"
            os.write(screen.master, key)
            assert screen.end() == 0
            assert screen.output.startswith(ENTER) and screen.output.endswith(LEAVE)
        finally:
            over.set()
            trainer.join()


def test_the_end_of_a_run_ends_it(stage: Any) -> None:
    with stage.up(ENDLESS, 1) as run:
        screen = Screen(stage.binary, run.directory, 100, 30)
        screen.until(lambda page: "orchestrator" in "\n".join(page))
        lines = subprocess.Popen([str(stage.binary), "top", str(run.directory)], stdout=subprocess.PIPE, text=True)
        assert lines.stdout is not None
        assert re.match(r"\d\d:\d\d:\d\d  step ", lines.stdout.readline())
    assert screen.end() == 0 and LEAVE in screen.output
    rest = lines.stdout.read()
    assert lines.wait(10) == 0 and "the run is stopped" in rest and "\x1b" not in rest
    # Each of them has the journal for a moment.
    readers = [
        subprocess.Popen([str(stage.binary), "status", str(run.directory), "--json"], stdout=subprocess.PIPE)
        for _ in range(6)
    ]
    assert len({reader.communicate(timeout=60)[0] for reader in readers}) == 1
    assert [reader.returncode for reader in readers] == [0] * 6


def test_a_directory_without_a_run(stage: Any) -> None:
    wrong = subprocess.run([str(stage.binary), "top", str(stage.new_dir())], capture_output=True, text=True)
    assert wrong.returncode == 2 and "open run directory" in wrong.stderr
