"""The host gives no further process or thread for a while, as when a trainer's compile workers have used up a limit."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from harness import DEADLINE, LOOK, write_mixture
from trainer import CLIENT

USER = 4243  # no user of this machine: limits on processes do not hold for root
MOST = 300  # processes and threads of USER
# Takes every thread that is free, also those that are given back later.
HOG = """
import os, sys, threading, time
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
threading.stack_size(65536)
over = threading.Event()
while True:
    try:
        threading.Thread(target=over.wait, daemon=True).start()
    except RuntimeError:
        print("full", flush=True)
        time.sleep(0.005)
"""
TRAIN = """
import sys, time
sys.path.insert(0, sys.argv[2])
import millrace
for batch in millrace.connect(sys.argv[1], patience=60, tensors="numpy"):
    print(batch.step, batch.digest, flush=True)
    time.sleep(0.05)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of USER with a mixture."""
    at = Path(tempfile.mkdtemp(prefix="shortage-"))
    (at / "a.jsonl").write_text("".join(json.dumps({"text": f"row {n} " * 40}) + "\n" for n in range(400)))
    write_mixture(at, {"version": 1, "tokenizer": {"name": "gpt2"}, "sequence_length": 128, "global_batch_size": 4,
                       "stop": {"steps": 70}, "mixture": {"weights": {"a": 1}}, "sources": {"a": {"path": "a.jsonl"}},
                       "reliability": {"shadows": 1}})
    for path in [at, *at.rglob("*")]:
        os.chown(path, USER, USER)
    yield at
    shutil.rmtree(at)


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_NPROC, (MOST, MOST))


@contextlib.contextmanager
def shortage() -> Iterator[None]:
    """USER gets no process and no thread."""
    hog = subprocess.Popen([sys.executable, "-c", HOG, str(USER)], preexec_fn=limited, stdout=subprocess.PIPE)
    try:
        assert hog.stdout is not None and hog.stdout.readline() == b"full\n"
        threading.Thread(target=hog.stdout.read).start()
        yield
    finally:
        hog.kill()
        hog.wait(DEADLINE)


class Run:
    def __init__(self, binary: Path, place: Path, name: str) -> None:
        self.directory, self._log = place / name, place / f"{name}.stderr"
        self.program = place / "millrace"
        if not self.program.exists():
            shutil.copy(binary, self.program)
        self.up = subprocess.Popen(
            [self.program, "up", place / "mixture.yaml", "--ranks", "1", "--run-dir", self.directory,
             "--allow-uids", "0"],
            user=USER, group=USER, extra_groups=[], preexec_fn=limited, env={**os.environ, "HOME": str(place)},
            stdout=subprocess.PIPE, stderr=self._log.open("w"), text=True,
        )
        assert self.up.stdout is not None and self.up.stdout.readline().startswith("ready"), self.said()
        self.trainer = subprocess.Popen([sys.executable, "-c", TRAIN, self.directory / "rank-0.sock", CLIENT],
                                        stdout=subprocess.PIPE, text=True)
        self.taken: List[str] = []
        self._reader = threading.Thread(target=lambda: self.taken.extend(self.trainer.stdout or ()))
        self._reader.start()

    def said(self) -> str:
        return self._log.read_text()

    def role(self, name: str) -> Dict[str, Any]:
        said = subprocess.check_output([self.program, "status", self.directory, "--json"], text=True)
        return next(r for r in json.loads(said)["roles"] if r["role"] == name)

    def ends(self) -> List[str]:
        assert self.trainer.wait(DEADLINE) == 0, self.said()
        self._reader.join()
        assert self.up.wait(DEADLINE) == 0, self.said()
        return self.taken

    def close(self) -> None:
        for process in (self.trainer, self.up):
            if process.poll() is None:
                process.send_signal(signal.SIGINT if process is self.up else signal.SIGKILL)
                process.wait(DEADLINE)


@pytest.mark.needs("root")  # which alone can act as another user
def test_a_run_survives_a_shortage_of_processes(binary: Path, place: Path) -> None:
    """A role dies while nothing can be forked. The run goes on when that is over, with the same batches."""
    golden = Run(binary, place, "golden")
    try:
        want = golden.ends()
    finally:
        golden.close()
    for victim in ("sidecar", "orchestrator"):
        run = Run(binary, place, victim)
        try:
            while len(run.taken) < 20:
                time.sleep(LOOK)
            pid = run.role(victim)["pid"]
            with shortage():
                os.kill(pid, signal.SIGKILL)
                over = time.monotonic() + DEADLINE
                while "cannot start" not in run.said() and "got no thread" not in run.said():
                    assert run.up.poll() is None and time.monotonic() < over, run.said()
                    time.sleep(LOOK)
                time.sleep(1)
                assert run.up.poll() is None, run.said()
            assert run.ends() == want, run.said()
        finally:
            run.close()
