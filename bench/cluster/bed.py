"""The parts that every section uses: a run on three hosts of a lab (e2e/lab.py), paced trainers, and the event records
of all processes on one clock."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import net
from conftest import Stage
from lab import Lab
from rig import Tail, percentile, table, until, write_documents

__all__ = ["table", "until"]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds for which a trainer waits for its host to come back
LAG = 10  # steps by which trainers differ that go on evenly


def mixture(work: Path, sources: int = 3, **settings: Any) -> Dict[str, Any]:
    """A mixture of text whose every step needs most stripes."""
    files = {f"s{n}": write_documents(work / f"docs-{n}.jsonl", 8) for n in range(sources)}
    return {
        "version": 1, "seed": 1, "tokenizer": {"name": "gpt2"}, "sequence_length": 1024, "global_batch_size": 12,
        "micro_batch_size": 4, "loaders": 1, "mixture": {"weights": {s: 1 for s in files}},
        "index_dir": str(work / "index"), "sources": {s: {"path": str(f)} for s, f in files.items()}, **settings,
    }


class Records:
    """The event records of a host's processes of a role, by their time."""

    def __init__(self, events: Path, role: str) -> None:
        self._events, self._role, self._tails = events, role, {}  # type: ignore[var-annotated]

    def new(self) -> List[Dict[str, Any]]:
        for path in self._events.glob(f"{self._role}-*.jsonl"):
            if path not in self._tails:
                self._tails[path] = Tail(path)
        lines = [line for tail in self._tails.values() for line in tail.lines()]
        return sorted(lines, key=lambda r: r["boottime_ns"])


class Bed:
    """A run on three hosts, each with one rank and a paced trainer."""

    def __init__(self, of: net.Net, mix: Dict[str, Any], work: Path) -> None:
        self.net, self.mixture, self.work = of, mix, work
        self.trainers: List[subprocess.Popen] = []
        self.pause = 0.0  # seconds of training for each batch

    def events(self, name: str) -> Path:
        return self.work / f"events-{name}"

    def start(self, name: str) -> None:
        """Starts the `up` of a host, at first or after its end."""
        self.net.start(name, self.mixture, ["--events", str(self.events(name))])
        self.net.runs[name].__enter__()

    def train(self, pause: float) -> None:
        """Starts a trainer for each rank. Trainers do not wait for each other, unlike those of a real run: a wait is
        that of one rank. One that was away catches up."""
        self.pause = pause
        for name in net.TRAINING:
            command = [
                sys.executable, str(ROOT / "bench" / "failover" / "trainer.py"), self.net.runs[name].sockets()[0],
                "--pause", str(pause), "--log", str(self.log(name)), "--patience", str(PATIENCE), "--even",
            ]
            path = str(ROOT / "clients" / "python" / "src")
            with open(self.work / f"trainer-{name}.stderr", "w") as said:
                self.trainers.append(
                    subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=said)
                )
        for name in net.TRAINING:
            until(lambda name=name: len(self.times(name)) > 20, f"20 steps of {name}", pause=0.05)

    def forget(self, name: str) -> None:
        """Removes the registration of a host whose processes are dead. It would stay for 10 s, and its next `up` would
        wait for that."""
        key = f"millrace/run-1/hosts/{net.TRAINING.index(name):06}"
        self.net.call("/v3/kv/deleterange", {"key": base64.b64encode(key.encode()).decode()})

    def together(self) -> None:
        """Waits until every trainer has as many batches as the others, after one of them was away."""
        until(lambda: max(seen := [len(self.times(name)) for name in net.TRAINING]) - min(seen) <= LAG,
              "trainers at the same step", pause=0.1)

    def log(self, name: str) -> Path:
        return self.work / f"trainer-{name}.log"

    def said(self, name: str) -> str:
        """What a host's trainer printed last, for a failure."""
        path = self.work / f"trainer-{name}.stderr"
        return f"--- trainer of {name}\n{path.read_text()[-1500:] if path.exists() else ''}"

    def times(self, name: str) -> List[Tuple[float, float]]:
        """The seconds since boot at which a host's trainer asked for each batch, and received it."""
        text = self.log(name).read_text() if self.log(name).exists() else ""
        lines = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [(float(a), float(b)) for a, b, _ in lines]

    def wait(self, name: str, begin: float, end: float) -> float:
        """The longest wait of a host's trainer between two times, in milliseconds. A wait that goes on counts."""
        times = self.times(name)
        waits = [b - a for a, b in times if b >= begin and a <= end]
        return 1e3 * max([*waits, end - self.pause - times[-1][1], 0])

    def pid(self, role: str) -> Optional[Tuple[str, int]]:
        """The host and the process of a loader by its name, which has the first rank of its host."""
        for name in net.TRAINING:
            with contextlib.suppress(OSError, ValueError):
                roles = self.net.runs[name].directory / "run" / "roles.json"
                for r in json.loads(roles.read_text()):
                    if r["name"] == role and r["pid"]:
                        return name, r["pid"]
        return None

    def close(self) -> None:
        for t in self.trainers:
            t.kill()
            t.wait()


@contextlib.contextmanager
def laid(a: Any, work: Path, name: str, mix: Dict[str, Any], pause: float) -> Iterator[Bed]:
    """A run on three hosts that trains. The end of the context ends all processes."""
    folder = work / name
    folder.mkdir()
    with Lab([*net.TRAINING, *net.MEMBERS]) as lab:
        of = net.Net(lab, Stage(Path(a.millrace), folder, folder), folder, a.etcd)
        bed = Bed(of, mix, folder)
        try:
            for host in net.TRAINING:
                bed.start(host)
            bed.train(pause)
            yield bed
        except BaseException:
            print(of.said(), *(bed.said(host) for host in net.TRAINING), sep="\n", file=sys.stderr)
            raise
        finally:
            bed.close()
            of.close()


def figures(values: List[float], digits: int = 0) -> List[str]:
    """Formats p50, p99 and the worst."""
    return [f"{percentile(values, p):.{digits}f}" for p in (50, 99, 100)] if values else ["-"] * 3


def clock() -> float:
    """The time on the clock of records and trainers, in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def attempts(count: int, seconds: float, one: Callable[[], Any]) -> List[Any]:
    """Calls `one` up to `count` times within a number of seconds. Attempts that return None do not count."""
    out, over = [], time.monotonic() + seconds
    while len(out) < count and time.monotonic() < over:
        got = one()
        if got is not None:
            out.append(got)
    return out


def asked(a: Any, faults: Iterable[str]) -> List[str]:
    """The faults of a section that are measured: all, or those of --faults."""
    return [name for name in faults if not a.faults or name in a.faults.split(",")]


def load() -> str:
    """The load average of the last minute."""
    return f"{os.getloadavg()[0]:.0f}"


def first_rank(role: str) -> int:
    """The first rank of a process's host, from its name."""
    found = re.match(r"[a-z]+-(\d+)", role)
    return int(found[1]) if found else -1
