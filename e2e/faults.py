"""The faults that a campaign draws from: the failpoints of docs/failpoints.md, and faults at random moments."""

from __future__ import annotations

import dataclasses
import random
import re
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple

TABLE = Path(__file__).resolve().parent.parent / "docs" / "failpoints.md"

# The answers of a disk at its failpoints. A pause simulates a slow disk.
DISK = {
    "checkpoint/write": ("eio", "enospc", "torn", "sleep:300ms"),
    "checkpoint/sync": ("eio", "enospc", "sleep:300ms"),
    "checkpoint/create": ("eio", "enospc"),
    "index/create": ("eio", "enospc"),
    "index/write": ("eio", "enospc", "torn"),
    "index/reserve": ("eio", "enospc"),
    "index/sync": ("eio", "sleep:300ms"),
    "index/publish/before": ("eio", "enospc"),
    "loader/arena": ("kill", "torn"),
    "loader/reply/before": ("kill", "sleep:600ms"),  # a late reply: the sidecar asks the standby too
}

# Failpoints that only a run with a shard damaged after indexing passes. Such a run draws three of its faults from these
# failpoints.
DAMAGE = (
    "loader/again/before", "sidecar/again/before", "sidecar/again/after", "sidecar/bad/before", "sidecar/bad/after",
    "sidecar/masked/before", "sidecar/masked/after",
)

# The driver's actions that lead a run to a failpoint: it asks a sidecar to leave, or a second client claims a rank.
BRINGS = {
    "sidecar/leaving": ("leave",),
    "sidecar/parted": ("leave",),
    "sidecar/refused": ("stranger", "stranger"),
    "sidecar/failed": ("early",),
}

# Failpoints that many runs do not reach are drawn more often.
OFTEN = {
    "sidecar/hedge/before": 3, "sidecar/hedge/after": 3, "sidecar/refused": 2, "sidecar/failed": 2,
    "sidecar/parted": 2, "sidecar/leaving": 2, "sidecar/stale": 2, "sidecar/switch/before": 2,
    "sidecar/switch/after": 2, "loader/bye/before": 2, "loader/promote/before": 3, "loader/promote/after": 3,
    "loader/warm/before": 2, "loader/warm/after": 2, "loader/ready/before": 2,
    "checkpoint/dropplans/before": 2, "checkpoint/truncate/before": 2,
}  # fmt: skip
HANDS = {"up": 2, "trainer": 2, "orchestrator": 6, "sidecar": 6}
HAND = 4

# Faults at random moments, and their relative frequency.
MOMENTS = {"kill": 10, "stop": 3, "term": 2, "memory": 2, "pair": 2, "up": 1, "trainer": 1, "stranger": 1}


@dataclasses.dataclass(frozen=True)
class Point:
    """A named point, and the kind of process that passes it."""

    name: str
    kind: str


def points() -> List[Point]:
    """The table of failpoints in the documentation."""
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z, ]+) \| .+ \|$", TABLE.read_text(encoding="utf-8"), re.M)
    return [Point(name, kind) for name, kinds in rows for kind in kinds.split(", ")]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The faults of one run. All are drawn before the run begins."""

    armed: Tuple[str, ...]  # MILLRACE_FAILPOINTS, with {marks} for the directory of marks
    # For each fault: the part of the run before it, its kind, and a random number that decides the rest.
    moments: Tuple[Tuple[float, str, float], ...]
    naps: Tuple[Tuple[int, float], ...]
    cuts: Tuple[int, ...]


def draw(seed: int, processes: Mapping[str, str], passes: Mapping[Tuple[str, str], int], moments: int) -> Plan:
    """The faults of a seed. `processes` are names by kind. `passes` has the number of times that processes of a
    kind pass a failpoint in a fault-free run. Each seed takes its part of a deck of all failpoints, so that a range of
    seeds hits each equally often."""
    rng = random.Random(seed)
    armed: List[str] = []
    brought: List[str] = []
    for kind in sorted(set(processes.values())):
        names = sorted(name for name, k in processes.items() if k == kind)
        for i, (point, action) in enumerate(hand(seed, kind, passes)):
            most = max(
                1,
                passes.get((kind, point), 1) * 2 // (3 * len(names)) if kind != "up" else passes.get((kind, point), 1),
            )
            mark = "" if action.startswith("sleep") else ":{marks}/" + f"{kind}-{i}"
            armed.append(f"{rng.choice(names)}:{point}={action}{mark}@{rng.randint(1, max(1, most // (1 + i % 2)))}")
            brought += BRINGS.get(point, ())
    what, weights = list(MOMENTS), list(MOMENTS.values())
    whats = rng.choices(what, weights, k=moments) + brought
    drawn = tuple(sorted((rng.uniform(0.02, 0.98), what, rng.random()) for what in whats))
    naps = ((rng.randrange(40), rng.uniform(0.1, 0.5)),) if rng.random() < 0.5 else ()
    cuts = tuple(rng.sample(range(1, 40), rng.randint(0, 2)))
    return Plan(tuple(armed), drawn, naps, cuts)


def hand(seed: int, kind: str, passes: Mapping[Tuple[str, str], int]) -> List[Tuple[str, str]]:
    """The seed's part of the deck for a kind of process, and some failpoints that only this mixture can reach."""
    own = [p.name for p in points() if p.kind == kind]
    damage = [(name, "kill") for name in own if name in DAMAGE and passes.get((kind, name))]
    deck = [
        (name, action)
        for name in own
        if name not in DAMAGE
        for action in actions(name)
        for _ in range(OFTEN.get(name, 1))
    ]
    random.Random(kind).shuffle(deck)
    few, many = min(3, len(damage)), min(HANDS.get(kind, HAND), len(deck))
    return [damage[(seed * few + i) % len(damage)] for i in range(few)] + [
        deck[(seed * many + i) % len(deck)] for i in range(many)
    ]


def actions(point: str) -> Sequence[str]:
    """The possible faults at a failpoint: death, or an answer of the disk."""
    return DISK.get(point, ("kill",))


def kinds_of(processes: Sequence[str]) -> Dict[str, str]:
    """The kind of each process, by its name."""
    return {name: re.sub(r"-\d+$", "", name) for name in processes}
