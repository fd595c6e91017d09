"""What a campaign draws from: the named points of docs/failpoints.md, and what can happen to a process at any moment."""

from __future__ import annotations

import dataclasses
import random
import re
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple

TABLE = Path(__file__).resolve().parent.parent / "docs" / "failpoints.md"

# What a disk answers at its points. A pause is a slow disk.
DISK = {
    "checkpoint/write": ("eio", "enospc", "torn", "sleep:300ms"),
    "checkpoint/sync": ("eio", "enospc", "sleep:300ms"),
    "checkpoint/create": ("eio", "enospc"),
    "index/create": ("eio", "enospc"),
    "index/write": ("eio", "enospc", "torn"),
    "index/reserve": ("eio", "enospc"),
    "index/sync": ("eio", "sleep:300ms"),
    "index/publish/before": ("eio", "enospc"),
}

# What happens at random moments, and how often beside the others.
MOMENTS = {"kill": 10, "stop": 3, "term": 2, "memory": 2, "pair": 2, "up": 1, "trainer": 1, "stranger": 1}


@dataclasses.dataclass(frozen=True)
class Point:
    """A named point, and the kind of process that passes it."""

    name: str
    kind: str


def points() -> List[Point]:
    """The table, as it stands in the documentation."""
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z, ]+) \| .+ \|$", TABLE.read_text(encoding="utf-8"), re.M)
    return [Point(name, kind) for name, kinds in rows for kind in kinds.split(", ")]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The faults of one run, all drawn before it begins."""

    armed: Tuple[str, ...]  # MILLRACE_FAILPOINTS, with {marks} for the directory of marks
    moments: Tuple[Tuple[float, str, float], ...]  # after which part of the run, what, and a number to draw the victim and the rest from
    naps: Tuple[Tuple[int, float], ...]
    cuts: Tuple[int, ...]


def draw(seed: int, processes: Mapping[str, str], passes: Mapping[Tuple[str, str], int], moments: int) -> Plan:
    """The faults of a seed. `processes` are names by kind, `passes` how often a process of a kind passes a point in a run without faults.
    A seed's points are its part of a deck of all points, so that a range of seeds passes each of them as often as the others."""
    rng = random.Random(seed)
    armed: List[str] = []
    deck = points()
    for kind in sorted(set(processes.values())):
        names = sorted(name for name, k in processes.items() if k == kind)
        cards = [(p.name, action) for p in deck if p.kind == kind for action in actions(p.name)]
        random.Random(kind).shuffle(cards)
        hand = min(len(cards), 2 if kind in ("up", "trainer") else 4)
        for i in range(hand):
            point, action = cards[(seed * hand + i) % len(cards)]
            most = max(1, passes.get((kind, point), 1) * 2 // (3 * len(names)) if kind != "up" else passes.get((kind, point), 1))
            mark = "" if action.startswith("sleep") else ":{marks}/" + f"{kind}-{i}"
            armed.append(f"{rng.choice(names)}:{point}={action}{mark}@{rng.randint(1, max(1, most // (1 + i % 2)))}")
    what, weights = list(MOMENTS), list(MOMENTS.values())
    times = sorted(rng.uniform(0.02, 0.98) for _ in range(moments))
    drawn = tuple((t, rng.choices(what, weights)[0], rng.random()) for t in times)
    naps = ((rng.randrange(40), rng.uniform(0.1, 0.5)),) if rng.random() < 0.5 else ()
    cuts = tuple(rng.sample(range(1, 40), rng.randint(0, 2)))
    return Plan(tuple(armed), drawn, naps, cuts)


def actions(point: str) -> Sequence[str]:
    """What may happen at a point: death, or what its disk answers."""
    return DISK.get(point, ("kill",))


def kinds_of(processes: Sequence[str]) -> Dict[str, str]:
    """The kind of each process, by its name."""
    return {name: re.sub(r"-\d+$", "", name) for name in processes}
