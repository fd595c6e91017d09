"""The time from the loss of a loader on another host to the first rows of its standby."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import net
from bed import Bed, Records, asked, attempts, clock, figures, first_rank, laid, load, mixture, table, until
from election import has_runway

PAUSE = 0.03  # seconds of training for each batch
AFTER = 1.0  # seconds after the first rows in which waits of trainers belong to the fault
FLAPS, DOWN, EVERY = 3, 0.3, 2.0  # flaps of a link, their seconds, and the seconds from one to the next
SETTLE = 6.0  # seconds after the start of a host: loaders remember for 5 s how late they were
LIMITS = {"runway_seconds": 20}  # longer than a host is away: fewer steps are planned before the first trial
Key = Tuple[str, str]  # source, stripe


class Route:
    """The loaders that a sidecar asks, by its events."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.using: Dict[Key, str] = {}
        self.spare: Dict[Key, str] = {}
        self.turned: List[Tuple[float, Key]] = []  # a stripe got another loader
        self.heard: List[Tuple[float, Key]] = []  # first rows of a loader

    def read(self) -> "Route":
        for r in self._records.new():
            at, what = r["boottime_ns"] / 1e9, r["event"]
            if what in ("directed", "switched", "heard"):
                source, stripe, who, *more = r["key"].split()
                key = (source, stripe)
                if what == "heard":
                    self.heard.append((at, key))
                    continue
                if self.using.get(key) != who:
                    self.turned.append((at, key))
                self.using[key], self.spare[key] = who, more[0] if more else "-"
        return self


@dataclasses.dataclass
class Takeover:
    """Milliseconds since the fault, the worst of all sidecars of other hosts. Rows come for the first step that needs
    the lost loader, which may be asked for some time after the fault."""

    noticed: float  # the sidecar asks the standby
    rows: float  # the sidecar has the standby's first rows
    stall: float  # longest wait of a trainer of another host

    def __str__(self) -> str:
        return f"noticed after {self.noticed:.0f} ms, first rows after {self.rows:.0f} ms, wait {self.stall:.0f} ms"


def protected(routes: Dict[str, Route]) -> bool:
    """Whether every stripe has a standby on another host."""
    return all(r.read().using and all(s != "-" and first_rank(s) != first_rank(r.using[k]) for k, s in r.spare.items())
               for r in routes.values())


def strike(bed: Bed, routes: Dict[str, Route], rng: random.Random, fault: str) -> Optional[Takeover]:
    if fault != "alone":
        until(lambda: protected(routes), "protection", pause=0.01)
    leader = bed.net.leader() if fault in ("unplug", "flap") else ""
    time.sleep(rng.uniform(0.3, 0.5))
    names = {n for name, r in routes.items() for n in r.read().using.values()
             if n != "-" and net.TRAINING[first_rank(n)] not in (name, leader)}
    if not names:
        return None
    found = bed.pid(victim := rng.choice(sorted(names)))
    if found is None:
        return None
    host, pid = found
    others = {name: r for name, r in routes.items() if name != host}
    lost = {name: {k for k, n in r.read().using.items() if n == victim} for name, r in others.items()}
    marks = {name: (len(r.turned), len(r.heard)) for name, r in others.items()}
    began = clock()
    mend = inject(bed, fault, host, pid)
    try:
        measured = [until(lambda r=r, name=name: after(r, lost[name], marks[name]), "the standby's rows")
                    for name, r in others.items() if lost[name]]
        time.sleep(AFTER)
    finally:
        mend()
    rows = max(m[1] for m in measured)
    stall = max(bed.wait(name, began, rows + AFTER) for name in others)
    seen = Takeover(1e3 * (max(m[0] for m in measured) - began), 1e3 * (rows - began), stall)
    print(f"{fault}: {victim}, lost at {began:.3f}: {seen}", file=sys.stderr, flush=True)
    return seen


def ready(bed: Bed) -> None:
    """Waits until a run is as before, after a host was lost. Its trainer catches up: else those elsewhere would reach
    the end of the runway, and their sidecars would ask for nothing and notice nothing. The processes that start load
    the processors of all hosts here."""
    came = clock()
    bed.together()
    until(lambda: has_runway(bed), "the runway", pause=0.2)
    time.sleep(max(0, came + SETTLE - clock()))


def flaps(bed: Bed, rng: random.Random) -> List[float]:
    """Takes the link of a host away several times, for a moment. Returns the longest wait of a trainer of another host
    for each."""
    leader = bed.net.leader()
    host = rng.choice([name for name in net.TRAINING if name != leader])
    out = []
    for _ in range(FLAPS):
        began = clock()
        bed.net.lab.unplug(host)
        time.sleep(DOWN)
        bed.net.lab.plug(host)
        time.sleep(EVERY - DOWN)
        out.append(max(bed.wait(name, began, clock()) for name in net.TRAINING if name != host))
    return out


def inject(bed: Bed, fault: str, host: str, pid: int) -> Callable[[], None]:
    """Does the fault, and returns its end. Only a flapping host has its processes back."""
    if fault == "flap":
        bed.net.lab.unplug(host)
        return lambda: bed.net.lab.plug(host)
    if fault == "unplug":
        bed.net.lab.unplug(host)

        def again() -> None:
            bed.net.runs[host].kill()
            bed.net.lab.plug(host)
            bed.forget(host)
            bed.start(host)

        return again
    if fault == "stop":
        os.kill(pid, signal.SIGSTOP)
        return lambda: bed.net.strike([pid], signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    return lambda: None


def after(r: Route, lost: Set[Key], marks: Tuple[int, int]) -> Optional[Tuple[float, float]]:
    """The times at which a lost loader's first stripe turned, and at which rows of another loader came."""
    r.read()
    turned: Dict[Key, float] = {}
    for at, key in r.turned[marks[0]:]:
        if key in lost:
            turned.setdefault(key, at)
    heard = [(turned[key], at) for at, key in r.heard[marks[1]:] if key in turned and at >= turned[key]]
    return heard[0] if heard else None


def quiet(bed: Bed, seconds: float) -> List[float]:
    """The longest wait of any trainer in each second without faults."""
    out, over = [], time.monotonic() + seconds
    while time.monotonic() < over:
        begin = clock()
        time.sleep(AFTER)
        out.append(max(bed.wait(name, begin, begin + AFTER) for name in net.TRAINING))
    return out


def flapping(a: Any, work: Path) -> Iterator[List[Any]]:
    """Rows of a link that flaps, and of a host that is lost after that. No host is lost before the first flap."""
    rng, waits = random.Random(1), []
    with laid(a, work, "takeover-link", mixture(work, limits=LIMITS), PAUSE) as bed:
        routes = watched(bed)

        def one() -> Optional[Takeover]:
            ready(bed)
            until(lambda: protected(routes), "protection", pause=0.01)
            waits.extend(flaps(bed, rng))
            return strike(bed, routes, rng, "unplug")

        seen = attempts(a.trials, 4 * a.seconds, one)
    yield row(f"link down for {1e3 * DOWN:.0f} ms every {EVERY:.0f} s", [], waits)
    yield row(FAULTS["link"], seen)


def watched(bed: Bed) -> Dict[str, Route]:
    return {name: Route(Records(bed.events(name), "sidecar")) for name in net.TRAINING}


def losses(a: Any, work: Path, fault: str) -> Iterator[List[Any]]:
    """Rows of a fault, and of the same run before it."""
    rng, has_host = random.Random(1), fault in ("unplug", "flap")
    shadows = 0 if fault == "alone" else 1
    mix = mixture(work, reliability={"shadows": shadows}, limits=LIMITS)
    with laid(a, work, f"takeover-{fault}", mix, PAUSE) as bed:
        routes = watched(bed)
        yield row(f"nothing, before: {FAULTS[fault]}", [], quiet(bed, a.seconds / 9))

        def one() -> Optional[Takeover]:
            if has_host:
                ready(bed)
            return strike(bed, routes, rng, fault)

        count = max(5, a.trials // 3) if fault == "alone" else a.trials
        yield row(FAULTS[fault], attempts(count, (3 if has_host else 1) * a.seconds, one))


FAULTS = {
    "kill": "SIGKILL of the process",
    "stop": "SIGSTOP of the process",
    "unplug": "host unplugged",
    "flap": "host unplugged again and again",
    "link": f"host unplugged after {FLAPS} flaps of its link",
    "alone": "SIGKILL of the process, no shadow",
}


def row(name: str, seen: List[Takeover], waits: Optional[List[float]] = None) -> List[Any]:
    """Figures of trials, or of waits alone."""
    columns = [[getattr(t, key) for t in seen] for key in ("noticed", "rows")]
    columns.append([t.stall for t in seen] if waits is None else waits)
    return [name, load(), len(columns[-1]), *(f for column in columns for f in figures(column))]


def takeover(a: Any, work: Path) -> None:
    table(
        f"From the loss of a loader that serves ranks of other hosts, in milliseconds; steps of {1e3 * PAUSE:.0f} ms",
        ["fault", "load", "trials", *(f"{k} {p}" for k in ("noticed", "**first rows**", "longest wait")
                                      for p in ("p50", "p99", "worst"))],
        (r for fault in asked(a, FAULTS) for r in (flapping(a, work) if fault == "link" else losses(a, work, fault))),
    )
