"""Measures the time from a loader's death during a request to the first row of its standby, by the sidecar's events."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from rig import Busy, Tail, Up, milliseconds, now, table, until, write_documents, write_mixture


@dataclasses.dataclass
class Takeover:
    """The times of one takeover, in milliseconds since the signal."""

    detected: float  # the sidecar asked the standby, by itself or on command
    first: float  # the sidecar has the standby's first rows
    protected: float  # a standby is ready again
    told: bool  # the sidecar switched on the orchestrator's command


class Route:
    """The loader that the sidecar asks for the only stripe, by the sidecar's events."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self.using, self.spare, self.term, self.heard = "-", "-", 0, 0
        self.turned: Dict[int, tuple] = {}  # by term: the time, and whether on command
        self.rows: Dict[int, int] = {}  # by term: the time of the first row
        self.guarded: Dict[int, int] = {}  # by term: the time at which a standby was available

    def read(self) -> "Route":
        for r in self._tail.lines():
            at, term = r["boottime_ns"], r.get("term", 0)
            if r["event"] == "directed":
                _, _, self.using, self.spare = r["key"].split()
                self.term = term
                self.turned.setdefault(term, (at, True))
                if self.spare != "-":
                    self.guarded.setdefault(term, at)
            elif r["event"] == "switched":
                self.using, self.spare, self.term = r["key"].split()[2], "-", term
                self.turned.setdefault(term, (at, False))
            elif r["event"] == "heard":
                self.heard = term
                self.rows[term] = at
        return self

    def protected(self) -> bool:
        return self.read().spare != "-" and self.heard == self.term

    def serving(self) -> bool:
        return self.read().using != "-" and self.heard == self.term


def strike(up: Up, route: Route, rng: random.Random, sign: int, shadows: bool) -> Optional[Takeover]:
    """Sends the signal to the loader at a random moment during a request. Returns None if the attempt does not
    count."""
    until(route.protected if shadows else route.serving, "protection")
    using = route.using
    beats = up.beats(using)
    if beats is None:
        return None
    time.sleep(rng.uniform(0, 0.05))
    deadline = time.monotonic() + 2
    while not beats.pending():
        if time.monotonic() > deadline:
            return None
        time.sleep(0.0001)
    time.sleep(rng.choice((0, rng.uniform(0, 0.002))))
    if not route.serving() or route.using != using or not beats.pending():
        return None  # the loader was replaced, or has answered
    old = route.term
    began = now()
    os.kill(beats.pid, sign)
    if not beats.pending():  # the loader has answered: the next rows belong to another request
        os.kill(beats.pid, signal.SIGCONT)
        return None
    first = until(lambda: route.read().heard > old and route.heard, "the standby")
    turned, told = route.turned[first]
    if shadows:
        until(lambda: first in route.read().guarded or route.term > first, "a standby")
    if sign == signal.SIGSTOP:
        try:
            os.kill(beats.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass  # the loader was replaced
    after = lambda at: (at - began) / 1e6  # noqa: E731
    return Takeover(after(turned), after(route.rows[first]), after(route.guarded.get(first, now())), told)


def takeovers(
    a: Any,
    mixture: Path,
    work: Path,
    kills: int,
    seconds: float,
    busy: bool = False,
    pause: float = 0.004,
    sign: int = signal.SIGKILL,
    env: Optional[Dict[str, str]] = None,
    before: Callable[[], None] = lambda: None,
) -> List[Takeover]:
    """Returns the takeovers of at most `kills` deaths within `seconds`."""
    rng, out = random.Random(1), []
    with Up(a.millrace, mixture, work / "run", env=env) as up, Busy(busy):
        up.train(pause, work / "trainer.log")
        route, shadows = Route(up.tail()), any(name.startswith("shadow") for name in up.pids())
        deadline = time.monotonic() + seconds
        while len(out) < kills and time.monotonic() < deadline:
            before()
            took = strike(up, route, rng, sign, shadows)
            if took:
                out.append(took)
    return out


# Every read of a file takes 50 ms longer, in every process.
SLOW = {"MILLRACE_FAILPOINTS": "loader/read/before=sleep:50ms@0"}


def uncached(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def false_switches(a: Any, mixture: Path, work: Path, seconds: float) -> str:
    """Counts the takeovers of a run without deaths on a busy host."""
    with Up(a.millrace, mixture, work / "run") as up, Busy():
        up.train(0.004, work / "trainer.log")
        tail = up.tail()
        time.sleep(seconds)
        seen = [r["key"] for r in tail.lines() if r["event"] == "switched"]
    return f"{len(seen)} in {seconds / 3600:.2f} loader-hours"


def takeover(a: Any, work: Path) -> None:
    data = write_documents(work / "docs.jsonl", 40)
    mix = {n: write_mixture(work, f"takeover-{n}", {"docs": {"path": str(data)}}, n) for n in (0, 1, 2)}
    few = max(20, a.kills // 10)
    cases = [
        ("SIGKILL, a core free", takeovers(a, mix[1], work, a.kills, 10 * a.seconds)),
        ("SIGKILL, two shadows", takeovers(a, mix[2], work, few, a.seconds)),
        ("SIGKILL, full load", takeovers(a, mix[1], work, few, 2 * a.seconds, busy=True)),
        ("SIGSTOP, a core free", takeovers(a, mix[1], work, few, a.seconds, sign=signal.SIGSTOP)),
        ("SIGSTOP, full load", takeovers(a, mix[1], work, few, 2 * a.seconds, busy=True, sign=signal.SIGSTOP)),
        (
            "SIGKILL, files not in the page cache",
            takeovers(a, mix[1], work, few, a.seconds, before=lambda: uncached(data)),
        ),
        ("SIGKILL, every read 50 ms longer", takeovers(a, mix[1], work, few, a.seconds, env=SLOW)),
        ("SIGKILL, no shadow", takeovers(a, mix[0], work, few, a.seconds)),
    ]
    head = [
        "death of a loader", "deaths", "noticed p50", "p99", "noticed to first row p50", "p99",
        "**death to first row p50**", "p99", "p99.9", "worst", "protected again p50",
    ]
    rows = []
    for name, seen in cases:
        if seen:
            noticed, first = milliseconds([t.detected for t in seen]), milliseconds([t.first for t in seen])
            then, again = milliseconds([t.first - t.detected for t in seen]), milliseconds([t.protected for t in seen])
            rows.append([name, len(seen), noticed[0], noticed[1], then[0], then[1], *first, again[0]])
    table(
        "From the death of a loader during a request to the first row of its shadow in the sidecar, milliseconds",
        head,
        rows,
    )
    seconds = 10 * a.seconds if a.long else 2 * a.seconds
    print(f"\nSwitches without a death, under full load: {false_switches(a, mix[1], work, seconds)}")
