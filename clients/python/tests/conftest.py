"""Fixtures: a real sidecar that serves a synthetic run. It is built once."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent.parent
sys.path.insert(0, str(HERE.parent / "src"))

DEADLINE = 60.0
AT_ONCE = 30.0  # seconds, for a refusal on a busy machine; without one, a loader waits for longer
WITH_TORCH = ("test_devices", "test_frameworks", "test_hf", "test_lightning", "test_losses", "test_torchtitan")
# Without PyTorch this is `make test`, in which no test may be skipped. `make test-adapters` runs all files.
collect_ignore = [] if importlib.util.find_spec("torch") else ["test_devices.py", "test_torchtitan.py"]


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("server") / "server"
    go = shutil.which("go") or "/usr/local/go/bin/go"
    subprocess.run([go, "build", "-o", str(out), "./sidecar/sidecartest/server"], cwd=REPOSITORY, check=True)
    return out


class House:
    """A run directory, its lock as `up` would hold it, and a sidecar that can be killed and started again."""

    def __init__(self, binary: Path, directory: Path) -> None:
        self.binary, self.dir = binary, directory
        self.events: List[Dict[str, Any]] = []
        self._news = threading.Condition()
        self.process: Any = None
        self.take_over()

    def start(self, *args: str) -> "House":
        self.args = args or self.args
        self.process = subprocess.Popen(
            [str(self.binary), "--dir", str(self.dir), *self.args], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "ready\n"
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
        return self

    args: Any = ()

    def _read(self, out: Any) -> None:
        for line in out:
            with self._news:
                self.events.append(json.loads(line))
                self._news.notify_all()

    def until(self, kind: str, count: int = 1) -> Dict[str, Any]:
        """Wait for the count-th event of a kind."""
        deadline = time.monotonic() + DEADLINE
        with self._news:
            while True:
                seen = [e for e in self.events if e["Kind"] == kind]
                if len(seen) >= count:
                    return seen[count - 1]
                assert self._news.wait(deadline - time.monotonic()), f"no {kind}: {self.events}"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait() if self.process else 0

    def path(self, rank: int = 0) -> str:
        return str(self.dir / f"rank-{rank}.sock")

    def take_over(self) -> None:
        """Take the lock as a starting `up` does. A client that tests the lock may hold it for a moment."""
        self.lock = os.open(self.dir, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def give_up(self) -> None:
        """Release the lock of the run directory, as a dying `up` does."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


@pytest.fixture
def house(binary: Path, tmp_path: Path) -> Iterator[House]:
    h = House(binary, tmp_path)
    yield h
    h.stop()
    h.give_up()


@pytest.fixture(autouse=True)
def torch_is_not_imported(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the tests NumPy arrays, although pytest imports torch when it collects other files."""
    if request.module.__name__ not in WITH_TORCH:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        monkeypatch.setattr("millrace._loader.is_installed", lambda module: False)  # connect() needs no tensors=


@pytest.fixture
def at_once() -> Iterator[Callable[..., List[Any]]]:
    """Run functions at the same time, as ranks do. The fixture returns their results; an error counts as a result."""

    def run(*functions: Callable[[], Any]) -> List[Any]:
        results: List[Any] = [None] * len(functions)

        def one(i: int) -> None:
            try:
                results[i] = functions[i]()
            except BaseException as e:  # the caller gets it as a result
                results[i] = e

        threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(len(functions))]
        for t in threads:
            t.start()
        for t in threads:
            t.join(DEADLINE)
            assert not t.is_alive(), "a rank hangs"
        return results

    yield run
