"""The time from the loss of the leader to the next leader's first plan."""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import net
from bed import Bed, Records, asked, attempts, clock, figures, laid, load, mixture, table, until

PAUSE = 0.1  # seconds of training for each batch
RUNWAY = 80  # steps that are planned ahead before the leader is lost: longer than an election


class Terms:
    """The first record of each term in the journals of all hosts, and the first plan of each term at a sidecar."""

    def __init__(self, bed: Bed) -> None:
        self._journals = [Records(bed.events(n), "orchestrator") for n in net.TRAINING]
        self._sidecars = [Records(bed.events(n), "sidecar") for n in net.TRAINING]
        self.began: Dict[int, float] = {}
        self.planned: Dict[int, float] = {}

    def read(self) -> "Terms":
        for seen, event, logs in ((self.began, "journal", self._journals), (self.planned, "plan", self._sidecars)):
            for log in logs:
                for r in log.new():
                    if r["event"] == event and r.get("term"):
                        seen[r["term"]] = min(seen.get(r["term"], 1e18), r["boottime_ns"] / 1e9)
        return self

    def next(self, term: int) -> float:
        """The time of the first record of a later term, or 0."""
        return min((at for t, at in self.read().began.items() if t > term), default=0)

    def plan(self, term: int) -> float:
        """The time of the first plan of a later term, or 0."""
        return min((at for t, at in self.read().planned.items() if t > term), default=0)


def orchestrator_killed(bed: Bed, host: str) -> Callable[[], None]:
    bed.net.strike(bed.net.processes(host, "orchestrator"), signal.SIGKILL)
    return lambda: None


def host_killed(bed: Bed, host: str) -> Callable[[], None]:
    bed.net.runs[host].kill()

    def start() -> None:
        bed.forget(host)
        bed.start(host)

    return start


def host_unplugged(bed: Bed, host: str) -> Callable[[], None]:
    bed.net.lab.unplug(host)
    return lambda: bed.net.lab.plug(host)


def copied(bed: Bed) -> bool:
    """Whether another host has the journal, so that it may lead."""
    return not any("one copy alone" in x["text"] for x in bed.net.status(bed.net.leader())["alerts"])


def has_runway(bed: Bed) -> bool:
    """Whether enough steps are planned. At first they are few, because the pace of the ranks is not known."""
    seen = bed.net.status(bed.net.leader())
    return seen["planned"] is not None and seen["planned"] - seen["step"] >= RUNWAY


def lose(bed: Bed, terms: Terms, rng: random.Random, fault: Callable[[Bed, str], Callable[[], None]]) -> List[float]:
    """Returns the milliseconds until the next term's first record, the longest wait of trainers elsewhere, and the
    milliseconds until the first plan if all ranks go on. Otherwise the runway is planned, and no step is due."""
    until(lambda: copied(bed), "a copy of the journal", pause=0.2)
    until(lambda: has_runway(bed), "the runway", pause=0.2)
    host = bed.net.leader()
    time.sleep(rng.uniform(1, 2))
    term, began = max(terms.read().began), clock()
    mend = fault(bed, host)
    try:
        out = [until(lambda: terms.next(term), "the next leader", pause=0.005) - began]
        out += [until(lambda: terms.plan(term), "its plan") - began] if fault is orchestrator_killed else []
        time.sleep(1)
        stall = max(bed.wait(n, began, clock()) for n in net.TRAINING if n != host)
    finally:
        mend()
    said = f"first record after {1e3 * out[0]:.0f} ms, wait {stall:.0f} ms"
    print(f"{fault.__name__}: {host}, lost at {began:.3f}: {said}", file=sys.stderr, flush=True)
    return [1e3 * out[0], stall, *(1e3 * x for x in out[1:])]


def again(bed: Bed, terms: Terms, rng: random.Random, fault: Callable[[Bed, str], Callable[[], None]]) -> List[float]:
    """Loses the leader, and waits until its trainer has caught up: else those elsewhere would reach the runway's
    end."""
    out = lose(bed, terms, rng, fault)
    bed.together()
    return out


def up_stopped(bed: Bed, host: str) -> Callable[[], None]:
    """Stops a host as its operator would. This ends the trainer of its rank, so a run takes no second one."""
    bed.net.runs[host].process.send_signal(signal.SIGINT)
    return lambda: None


def stopped(a: Any, work: Path) -> List[List[float]]:
    out = []
    for k in range(1 if a.quick else 3):
        with laid(a, work, f"election-stop-{k}", mixture(work), PAUSE) as bed:
            out.append(lose(bed, Terms(bed), random.Random(k), up_stopped))
    return out


FAULTS: Dict[str, Tuple[str, Callable[[Bed, str], Callable[[], None]]]] = {
    "kill": ("the orchestrator is killed", orchestrator_killed),
    "host": ("all processes of its host are killed", host_killed),
    "unplug": ("its host is unplugged", host_unplugged),
    "leave": ("`up` is stopped", up_stopped),
}


def losses(a: Any, work: Path) -> Iterator[List[Any]]:
    """Rows of the faults of one run, and of the one that needs a run for each trial."""

    def row(name: str, seen: List[List[float]]) -> List[Any]:
        return [FAULTS[name][0], load(), len(seen), *(f for k in range(3)
                                                      for f in figures([r[k] for r in seen if len(r) > k]))]

    chosen = asked(a, FAULTS)
    if set(chosen) - {"leave"}:
        with laid(a, work, "election", mixture(work), PAUSE) as bed:
            terms, rng = Terms(bed), random.Random(1)
            for name in chosen:
                if name != "leave":
                    fault = FAULTS[name][1]
                    yield row(name, attempts(max(3, a.trials // 3), 3 * a.seconds,
                                             lambda fault=fault: again(bed, terms, rng, fault)))
    if "leave" in chosen:
        yield row("leave", stopped(a, work))


def election(a: Any, work: Path) -> None:
    table(
        "From the loss of the leader, in milliseconds; the default runway",
        ["fault", "load", "trials", *(f"{k} {p}" for k in ("**first record**", "longest wait of others", "first plan")
                                      for p in ("p50", "p99", "worst"))],
        losses(a, work),
    )
