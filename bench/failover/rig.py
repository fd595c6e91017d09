"""The parts that every section uses: documents, a mixture, `millrace up` with event records, and a trainer that
records its batches."""

from __future__ import annotations

import json
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "clients" / "python" / "src"))
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 60.0  # longer than this counts as a hang, in seconds


def now() -> int:
    """Returns the time on the clock of the event records."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def write_documents(path: Path, megabytes: float) -> Path:
    """Writes documents of 300 to 6,000 bytes, most of them short, from the source text of Python's own library."""
    if not path.exists():
        rng = random.Random(1)
        files = sorted(Path(os.__file__).parent.rglob("*.py"))
        rng.shuffle(files)
        text = "\n".join(f.read_text(errors="replace") for f in files[:400])
        with path.open("w") as f:
            size = 0
            while size < megabytes * 1e6:
                begin = rng.randrange(len(text))
                line = json.dumps({"text": text[begin : begin + min(6000, int(300 * rng.paretovariate(1.2)))]}) + "\n"
                f.write(line)
                size += len(line)
    return path


def write_mixture(folder: Path, name: str, sources: Dict[str, Any], shadows: int, **settings: Any) -> Path:
    keys = {
        "version": 1,
        "seed": 1,
        "tokenizer": {"name": "gpt2"},
        "sequence_length": 2048,
        "global_batch_size": 8,
        "micro_batch_size": 8,
        "loaders": 1,
        "index_dir": str(folder / "index"),
        "reliability": {"shadows": shadows},
        "mixture": {"weights": {s: 1 for s in sources}},
        "sources": sources,
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({**keys, **settings}))
    return path


class Tail:
    """Returns the complete lines that were appended to a file since the last call."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""

    def lines(self) -> Iterator[Dict[str, Any]]:
        text = self._rest + self._file.read()
        *whole, self._rest = text.split(b"\n")
        for line in whole:
            yield json.loads(line)


class Beats:
    """The heartbeat page of a process, with its number of pending requests."""

    def __init__(self, link: Path) -> None:
        self.pid = int(link.stem.rsplit("-", 1)[1])
        fd = os.open(link, os.O_RDONLY)
        self._page = mmap.mmap(fd, 4096, prot=mmap.PROT_READ)
        os.close(fd)

    def pending(self) -> int:
        ended, begun = struct.unpack_from("<Q", self._page, 256)[0], struct.unpack_from("<Q", self._page, 192)[0]
        return begun - ended


class Up:
    """`millrace up`, its events and its trainers. The end of the context ends all processes."""

    def __init__(
        self, binary: str, mixture: Path, run: Path, fresh: bool = True, env: Optional[Dict[str, str]] = None
    ) -> None:
        if fresh:
            shutil.rmtree(run, ignore_errors=True)
        self.run, self.events, self.began = run, run.with_suffix(".events"), time.perf_counter()
        shutil.rmtree(self.events, ignore_errors=True)
        self._trainers: List[subprocess.Popen] = []
        self._stderr = open(run.with_suffix(".stderr"), "w")
        args = [binary, "up", str(mixture), "--ranks", "1", "--run-dir", str(run), "--events", str(self.events)]
        self.process = subprocess.Popen(
            args, stdout=subprocess.PIPE, stderr=self._stderr, text=True, env={**os.environ, **(env or {})}
        )
        if not self.process.stdout.readline().startswith("ready"):
            raise SystemExit(f"up did not become ready: {run.with_suffix('.stderr').read_text()[-2000:]}")

    def __enter__(self) -> "Up":
        return self

    def __exit__(self, *_: Any) -> None:
        for t in self._trainers:
            t.kill()
            t.wait()
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kills `up` and all its processes with SIGKILL."""
        for pid in [self.process.pid, *self.pids().values()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def train(self, pause: float, log: Path, *more: str) -> subprocess.Popen:
        """Starts a trainer that takes `pause` seconds for each batch."""
        log.unlink(missing_ok=True)
        args = [
            sys.executable, str(Path(__file__).parent / "trainer.py"), str(self.run / "rank-0.sock"), "--pause",
            str(pause), "--log", str(log), *more,
        ]
        self._trainers.append(
            subprocess.Popen(args, env={**os.environ, "PYTHONPATH": str(ROOT / "clients" / "python" / "src")})
        )
        return self._trainers[-1]

    def tail(self, role: str = "sidecar-0") -> Tail:
        return Tail(until(lambda: next(iter(self.events.glob(f"{role}-*.jsonl")), None), "an event record"))

    def beats(self, name: str) -> Optional[Beats]:
        """Returns the heartbeat page of the process with this name, or None without such a process."""
        for link in (self.run / "run").glob(f"{name}-*.beat"):
            try:
                return Beats(link)
            except OSError:
                pass  # the page of an ended process
        return None

    def pids(self) -> Dict[str, int]:
        return {r["name"]: r["pid"] for r in json.loads((self.run / "run" / "roles.json").read_text()) if r["pid"]}


def until(ready: Callable[[], Any], what: str, patience: float = PATIENCE, pause: float = 0.001) -> Any:
    deadline = time.monotonic() + patience
    while True:
        found = ready()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {patience:.0f} s")
        time.sleep(pause)


def percentile(values: Sequence[float], p: float) -> float:
    """Returns the p-th percentile."""
    ranked = sorted(values)
    return ranked[max(0, min(len(ranked) - 1, -int(-p / 100 * len(ranked) // 1) - 1))]


def milliseconds(values: Sequence[float]) -> List[str]:
    """Formats p50, p99, p99.9 and the worst."""
    return (
        [f"{v:.1f}" for v in (percentile(values, 50), percentile(values, 99), percentile(values, 99.9), max(values))]
        if values
        else ["-"] * 4
    )


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    print(
        f"\n{title}; load average {os.getloadavg()[0]:.1f}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True
    )
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


class Busy:
    """Runs a busy process for every core, or none if it is disabled."""

    def __init__(self, on: bool = True) -> None:
        self._processes = (
            [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
            if on
            else []
        )

    def __enter__(self) -> "Busy":
        return self

    def __exit__(self, *_: Any) -> None:
        for p in self._processes:
            p.kill()
            p.wait()


def times(log: Path) -> List[Tuple[float, float, float]]:
    """Returns for every batch of a trainer the seconds at which it asked and received, and its wait for a CPU."""
    text = log.read_text() if log.exists() else ""
    lines = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [(float(a), float(b), float(c)) for a, b, c in lines]
