"""Runs the ranks of one part of the training as processes, and combines their reports into steps."""

from __future__ import annotations

import collections
import dataclasses
import multiprocessing
import os
import queue
import signal
import time
from typing import Any, Callable, Dict, Generator, Iterator, List, Sequence, Set

import millrace
from run import Run, RunFailed
from trainer import Left, Orders, Taken, gradients, train


@dataclasses.dataclass
class Step:
    """One step, over all ranks."""

    step: int
    ranks: int
    loss: float  # nats a label
    digest: str  # content digest, from the segments that the trainers got
    tokens: Dict[str, int]  # of each source
    fill: float  # the part of all places that hold tokens
    seconds: float  # since the previous step; 0 for the first of a part
    waited: float  # the longest wait of a rank for its batches, in seconds
    saved: str = ""

    def total(self) -> int:
        """Returns the number of document tokens."""
        return sum(self.tokens.values())


def take_part(run: Run, orders: Sequence[Orders], look: Callable[[], None]) -> Generator[Step, None, None]:
    """Trains on all ranks until they leave or the run ends. Yields the steps in order; calls `look` every few ms."""
    processes = multiprocessing.get_context("spawn")
    shared = gradients(len(orders), orders[0].shape, processes)
    barrier = processes.Barrier(len(orders))
    told: Any = processes.Queue()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # a rank has one core
    ranks = [processes.Process(target=train, args=(o, shared, barrier, told), daemon=True) for o in orders]
    try:
        for rank in ranks:
            rank.start()
        yield from _steps(run, ranks, told, look)
        for rank in ranks:
            rank.join()
    finally:
        for rank in ranks:
            if rank.pid is not None:
                rank.kill()
                rank.join()


def _steps(run: Run, ranks: Sequence[Any], told: Any, look: Callable[[], None]) -> Iterator[Step]:
    waiting: Dict[int, List[Taken]] = collections.defaultdict(list)
    left: List[Left] = []
    before = 0.0
    while len(left) < len(ranks):
        look()
        try:
            message = told.get(timeout=0.1)
        except queue.Empty:
            dead = [i for i, r in enumerate(ranks) if r.exitcode not in (None, 0)]
            if dead and told.empty():
                raise RunFailed(f"rank {dead[0]} died with status {ranks[dead[0]].exitcode}") from None
            continue
        if isinstance(message, Left):
            left.append(message)
            continue
        parts = waiting[message.step]
        parts.append(message)
        if len(parts) == len(ranks):
            step = _together(waiting.pop(message.step), before)
            before = max(t.at for t in parts)
            yield step
    for rank in sorted(
        left, key=lambda r: r.failed.startswith("BrokenBarrierError")
    ):  # the first failure is the cause
        if rank.failed:
            raise RunFailed(f"rank {rank.rank}: {rank.failed}")
    if len({rank.weights for rank in left}) != 1:
        raise RunFailed("the ranks do not hold the same weights")
    if waiting:
        raise RunFailed(f"not every rank got step {min(waiting)}")


def _together(parts: List[Taken], before: float) -> Step:
    segments = [s for t in parts for s in t.segments]
    tokens: Dict[str, int] = collections.Counter()
    for s in segments:
        tokens[s.source] += s.length
    at = max(t.at for t in parts)
    return Step(
        step=parts[0].step,
        ranks=len(parts),
        loss=parts[0].loss,
        digest=millrace.content_digest(segments),
        tokens=dict(tokens),
        fill=sum(tokens.values()) / sum(t.places for t in parts),
        seconds=at - before if before else 0.0,
        waited=max(t.waited for t in parts),
        saved="".join(t.saved for t in parts),
    )


class LoaderKill:
    """Kills a loader with SIGKILL on command, and observes the takeover by its shadow."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.name, self.killed = "", 0  # a pid
        self.successor = ""
        self.seconds = 0.0  # from the kill until status shows the successor as a loader
        self.step = -1
        self._shadows: Set[str] = set()
        self._began = self._looked = 0.0

    def strike(self, step: int) -> None:
        """Kills the loader."""
        roles = self.run.roles()
        loaders = [r for r in roles if r["role"] == "loader" and r["pid"]]
        if not loaders:
            raise RunFailed("millrace status shows no loader")
        self._shadows = {r["name"] for r in roles if r["role"] == "shadow"}
        self.name, self.killed, self.step = loaders[0]["name"], loaders[0]["pid"], step
        os.kill(self.killed, signal.SIGKILL)
        self._began = time.monotonic()

    def look(self) -> bool:
        """Returns true at the first call that finds the successor in the status, otherwise false."""
        if not self.killed or self.successor or time.monotonic() - self._looked < 0.05:
            return False
        for role in self.run.roles():
            if role["role"] == "loader" and role["name"] in self._shadows:
                self.successor, self.seconds = role["name"], time.monotonic() - self._began
        self._looked = time.monotonic()
        return bool(self.successor)
