"""The history checker: compares the records of every process in a run with faults with the fault-free run of the same
configuration.

    python history.py EVENTS --golden EVENTS [--manifest FILE] [--bound SECONDS]

EVENTS is a directory of event records: from `millrace up --events`, and from trainers (stub.py). The command prints
each violation of P1 to P10 with the records around it. Its exit status is 1 if it found a violation.

A *life* is one process of a role or trainer. The *effective* history of a rank has the batches that its trainer's lives
took. A life that starts from a checkpoint removes every later batch of the lives before it.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import sys
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from records import Life, Record, lives

Position = Tuple[int, int]  # step, microbatch
Slot = Tuple[int, int, int]  # step, rank, microbatch

FD_SLACK = 2  # more descriptors than at the start are allowed: connections that are being closed
GOROUTINE_SLACK = 8  # more goroutines than in the golden run are allowed: connections that are being closed
RSS_FACTOR, RSS_SLACK = 1.5, 32 << 20  # relative to the largest process of the kind in the golden run


@dataclasses.dataclass(frozen=True)
class Violation:
    """One violated promise and the records that show it."""

    promise: str  # P1 … P10
    what: str
    shown: Tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.promise}: {self.what}", *("    " + line for line in self.shown)])


class History:
    """All records of a run."""

    def __init__(self, directory: Path) -> None:
        self.lives = lives(directory)
        self.trainers: Dict[int, List[Life]] = collections.defaultdict(list)
        for life in self.lives:
            if life.kind == "trainer":
                self.trainers[int(life.name.rpartition("-")[2])].append(life)
        self.ranks = sorted(self.trainers)

    def of(self, *kinds: str) -> List[Life]:
        return [life for life in self.lives if life.kind in kinds]

    def each(self, event: str, *kinds: str) -> Iterator[Tuple[Life, Record]]:
        for life in self.of(*kinds) if kinds else self.lives:
            for r in life.named(event):
                yield life, r

    def effective(self, rank: int) -> List[Record]:
        """The batches of a rank that no later life rolled back."""
        kept: List[Record] = []
        for life in self.trainers[rank]:
            batches = life.named("batch")
            if batches:
                kept = [b for b in kept if position(b) < position(batches[0])] + batches
        return kept

    def slots(self) -> Dict[Slot, Record]:
        return {(b["step"], rank, b["microbatch"]): b for rank in self.ranks for b in self.effective(rank)}

    def lost(self) -> Dict[Tuple[str, str], Record]:
        """Samples that the ledger reports as quarantined or masked, by source and id."""
        out: Dict[Tuple[str, str], Record] = {}
        for _, r in self.each("lost"):
            source, _, name = r["key"].split(" ", 2)
            out[source, name] = r
        return out


def position(r: Record) -> Position:
    return r["step"], r["microbatch"]


def around(life: Life, r: Record, n: int = 3) -> Tuple[str, ...]:
    """The records of a life around one record."""
    at = life.records.index(r)
    out = []
    for x in life.records[max(0, at - n) : at + n + 1]:
        short = {k: v for k, v in x.items() if k != "segments"}
        out.append(("> " if x is r else "  ") + json.dumps(short))
    return tuple(out)


@dataclasses.dataclass
class Check:
    """The reference that a history is compared with."""

    golden: History
    manifest: Optional[Mapping[str, Mapping[str, int]]] = None  # tokens by source and id
    bound: float = 30.0  # seconds that one call of a trainer may take
    paused: float = 0.0  # seconds for which processes were stopped; a call may take longer by this time

    def run(self, h: History) -> List[Violation]:
        """All violations, in the order of the promises."""
        promises: List[Callable[[History], Iterator[Violation]]] = [
            self.coverage, self.uniqueness, self.order, self.one_plan, self.same_bytes,
            self.multiset, self.terms, self.liveness, self.leaks, self.accounted,
        ]  # fmt: skip
        return [v for promise in promises for v in promise(h)]

    def coverage(self, h: History) -> Iterator[Violation]:
        """P1: the effective history consumes each planned slot and no other."""
        have, want = h.slots(), self.golden.slots()
        for slot in sorted(want.keys() - have.keys())[:5]:
            yield Violation(
                "P1", f"step {slot[0]}, rank {slot[1]}, microbatch {slot[2]} was planned and never consumed"
            )
        for slot in sorted(have.keys() - want.keys())[:5]:
            yield Violation(
                "P1", f"step {slot[0]}, rank {slot[1]}, microbatch {slot[2]} was consumed and never planned"
            )

    def uniqueness(self, h: History) -> Iterator[Violation]:
        """P2: no life of a trainer gets a slot twice."""
        for life in h.of("trainer"):
            seen: Dict[Position, Record] = {}
            for b in life.named("batch"):
                if position(b) in seen:
                    yield Violation(
                        "P2", f"{life.name} got step {b['step']}, microbatch {b['microbatch']} twice", around(life, b)
                    )
                seen[position(b)] = b

    def order(self, h: History) -> Iterator[Violation]:
        """P3: positions rise by one. A restarted rank continues exactly at its checkpoint's position, without a gap."""
        for rank in h.ranks:
            reached: Position = (0, 0)
            for life in h.trainers[rank]:
                batches = life.named("batch")
                if not batches:
                    continue
                yield from self._beginning(life, batches[0], reached)
                for a, b in zip(batches, batches[1:]):
                    if position(b) not in (after(a), position(a)):  # a repeated batch violates P2 instead
                        yield Violation(
                            "P3",
                            f"{life.name} got {position(b)} after {position(a)}; the next one is {after(a)}",
                            around(life, b),
                        )
                reached = max(reached, after(batches[-1]))

    def _beginning(self, life: Life, first: Record, reached: Position) -> Iterator[Violation]:
        start = (life.named("start") or [{}])[0]
        if start.get("state_step", -1) >= 0:
            microbatch = start.get("state_microbatch", 0)
            # A state names the next step and may be inside it.
            want = (start["state_step"], microbatch)
            if position(first) != want:
                yield Violation(
                    "P3", f"{life.name} was restored to {want} and began at {position(first)}", around(life, first)
                )
        elif position(first) > reached:
            yield Violation(
                "P3",
                f"{life.name} began at {position(first)}, but its rank had only reached {reached}",
                around(life, first),
            )

    def one_plan(self, h: History) -> Iterator[Violation]:
        """P4: a step has one plan in every attempt, term and process."""
        known: Dict[int, str] = {r["step"]: r["digest"] for _, r in self.golden.each("plan")}
        lost = [f"lost only here: {source}/{name}" for source, name in sorted(h.lost().keys() - self.golden.lost())]
        for life, r in sorted([*h.each("plan"), *sealed(h)], key=lambda x: int(x[1]["boottime_ns"])):
            if known.setdefault(r["step"], r["digest"]) != r["digest"]:
                yield Violation(
                    "P4",
                    f"step {r['step']} has two plans: {known[r['step']]} "
                    f"and {r['digest']} of attempt {r.get('attempt')}",
                    (*lost[:9], *around(life, r)),
                )

    def same_bytes(self, h: History) -> Iterator[Violation]:
        """P5: every batch of every life has the golden run's bytes, even if it was rolled back later."""
        want = self.golden.slots()
        for life, b in h.each("batch", "trainer"):
            slot = (b["step"], b["rank"], b["microbatch"])
            if slot in want and b["digest"] != want[slot]["digest"]:
                yield Violation(
                    "P5", f"slot {slot} has {b['digest']}, the golden run {want[slot]['digest']}", around(life, b)
                )

    def multiset(self, h: History) -> Iterator[Violation]:
        """P6: per epoch, each piece of each sample comes as often as in the golden run. No sample is longer than in the
        manifest. Every step draws the golden run's tokens of each source."""
        have, want = pieces(h), pieces(self.golden)
        for piece in sorted((have - want) + (want - have))[:5]:
            yield Violation("P6", f"{piece} came {have[piece]} times, {want[piece]} are due")
        counts, due = drawn(h), drawn(self.golden)
        for key in sorted(k for k in counts.keys() | due.keys() if counts[k] != due[k])[:5]:
            yield Violation("P6", f"step {key[0]} draws {counts[key]} tokens of {key[1]}, the mixture {due[key]}")
        if self.manifest is None:
            return
        tokens: Dict[Tuple[str, int, str], int] = collections.Counter()
        for (source, name, epoch, _, length), n in have.items():
            tokens[source, epoch, name] += n * length
        for (source, epoch, name), n in sorted(tokens.items()):
            whole = self.manifest.get(source, {}).get(name)
            if whole is None or n > whole:
                yield Violation(
                    "P6", f"sample {name} of {source} gave {n} tokens in epoch {epoch}, the manifest has {whole}"
                )

    def terms(self, h: History) -> Iterator[Violation]:
        """P7: a receiver accepts no message with a term below the highest that it has seen for that stripe. Each new
        orchestrator has a higher term."""
        for life in h.of("loader", "shadow", "sidecar", "orchestrator"):
            seen: Dict[Tuple[str, str], int] = {}
            for r in life.records:
                if r["event"] not in ("fetch", "plan", "accept") or not r.get("term"):
                    continue
                about = (r["event"], r.get("key", ""))
                if r["term"] < seen.get(about, 0):
                    yield Violation(
                        "P7",
                        f"{life.name} accepted {r['event']} {r.get('key', '')} of term {r['term']} "
                        f"after term {seen[about]}",
                        around(life, r),
                    )
                seen[about] = max(seen.get(about, 0), r["term"])
        highest = 0
        for life, r in sorted(h.each("journal", "orchestrator"), key=lambda x: int(x[1]["boottime_ns"])):
            if r.get("term", 0) and r["term"] < highest:
                yield Violation(
                    "P7", f"{life.name} journaled under term {r['term']} after term {highest}", around(life, r)
                )
            highest = max(highest, r.get("term", 0))

    def liveness(self, h: History) -> Iterator[Violation]:
        """P8: every wait of a trainer ends within the bound, and every rank reaches the end of the run."""
        allowed = self.bound + self.paused
        for life in h.of("trainer"):
            asked: Optional[Record] = None
            for r in life.records:
                if asked is not None and r["event"] in ("batch", "end", "error"):
                    waited = (r["boottime_ns"] - asked["boottime_ns"]) / 1e9
                    if waited > allowed:
                        yield Violation(
                            "P8", f"{life.name} waited {waited:.1f} s, {allowed:.1f} s are allowed", around(life, r)
                        )
                asked = r if r["event"] == "ask" else asked if r["event"] == "failpoint" else None
        for life, r in h.each("error", "trainer"):
            if not self._excused(h, life, r):
                yield Violation("P8", f"{life.name} saw an exception: {r['reason']}", around(life, r))
        for rank in h.ranks:
            last = h.trainers[rank][-1]
            if not last.named("end"):
                tail = last.records[-1]
                yield Violation("P8", f"rank {rank} did not reach the end of the run", around(last, tail))
        for rank in sorted(set(self.golden.ranks) - set(h.ranks)):
            yield Violation("P8", f"rank {rank} never began")

    def _excused(self, h: History, life: Life, error: Record) -> bool:
        """Whether `up` ended by itself while the trainer waited, because every rank had finished before. This rank had
        finished in an earlier life. The death of an `up` that is restarted does not count."""
        asked = max(
            (r["boottime_ns"] for r in life.records if r["event"] in ("ask", "start") and r["seq"] < error["seq"]),
            default=0,
        )
        return error["key"] != "crash" and any(
            asked <= r["boottime_ns"] <= error["boottime_ns"] for _, r in h.each("exit", "up")
        )

    def leaks(self, h: History) -> Iterator[Violation]:
        """P9: a process holds the same resources at its end as at its start. After the run, the driver finds no
        leftovers (its `left` records)."""
        heaviest: Dict[str, int] = collections.Counter()
        for life, r in [*self.golden.each("exit"), *self.golden.each("end")]:
            heaviest[life.kind] = max(heaviest[life.kind], r.get("rss_bytes", 0))
        # After failovers, one loader may read the sources of all loaders.
        readers = self.golden.of("loader", "shadow")
        heaviest["loader"] = heaviest["shadow"] = len(readers) * max(heaviest["loader"], heaviest["shadow"])
        idle = max((r.get("goroutines", 0) for _, r in self.golden.each("exit")), default=0)
        for life, r in [*h.each("exit"), *h.each("end")]:
            start = life.records[0]
            if r.get("fds", 0) > start.get("fds", 0) + FD_SLACK:
                yield Violation(
                    "P9",
                    f"{life.name} holds {r['fds']} descriptors at its end, {start.get('fds', 0)} at its beginning",
                    around(life, r),
                )
            if r.get("goroutines", 0) > idle + GOROUTINE_SLACK:
                yield Violation(
                    "P9",
                    f"{life.name} has {r['goroutines']} goroutines at its end, {idle} in the golden run",
                    around(life, r),
                )
            if heaviest[life.kind] and r.get("rss_bytes", 0) > RSS_FACTOR * heaviest[life.kind] + RSS_SLACK:
                yield Violation(
                    "P9",
                    f"{life.name} holds {r['rss_bytes'] >> 20} MiB, {heaviest[life.kind] >> 20} MiB in the golden run",
                    around(life, r),
                )
        for life, r in h.each("left"):
            yield Violation("P9", f"the run left {r['key']}", around(life, r))

    def accounted(self, h: History) -> Iterator[Violation]:
        """P10: each sample of the manifest was delivered, quarantined or masked."""
        lost, golden_lost = h.lost(), self.golden.lost()
        got = {(p[0], p[1]) for p in pieces(h)}
        due = {(p[0], p[1]) for p in pieces(self.golden)} | golden_lost.keys()
        for source, name in sorted(due - got - lost.keys())[:5]:
            yield Violation("P10", f"sample {name} of {source} was not delivered, and no ledger says why")
        if self.manifest is None:
            return
        full = {source for source in self.manifest if self.whole(source)}
        for source in sorted(full):
            for name, tokens in sorted(self.manifest[source].items()):
                if tokens and (source, name) not in got and (source, name) not in lost:
                    yield Violation("P10", f"sample {name} of {source} was not delivered, and no ledger says why")

    def whole(self, source: str) -> bool:
        """Whether the golden run delivers every sample of a source. If so, no other run may miss one. In a short run,
        samples may wait for a step that does not come."""
        assert self.manifest is not None
        ids = {p[1] for p in pieces(self.golden) if p[0] == source}
        return len(ids) == sum(1 for n in self.manifest[source].values() if n)


def after(b: Record) -> Position:
    return (b["step"], b["microbatch"] + 1) if b["microbatch"] + 1 < b["of"] else (b["step"] + 1, 0)


def sealed(h: History) -> Iterator[Tuple[Life, Record]]:
    for life, r in h.each("journal", "orchestrator"):
        if r.get("key") == "Sealed":
            yield life, r


Piece = Tuple[str, str, int, int, int]  # source, id, epoch, offset, length


def pieces(h: History) -> "collections.Counter[Piece]":
    """The segments in the effective history. Ranks that share a microbatch count once."""
    return collections.Counter(
        (s[0], s[1], s[2], s[4], s[5]) for b in h.slots().values() if not b.get("peer") for s in b["segments"]
    )


def drawn(h: History) -> "collections.Counter[Tuple[int, str]]":
    """Tokens by step and source in the effective history."""
    out: "collections.Counter[Tuple[int, str]]" = collections.Counter()
    for (step, _, _), b in h.slots().items():
        for s in b["segments"]:
            out[step, s[0]] += s[5]
    return out


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(description="Compares a run's event records with the fault-free run's.")
    parser.add_argument("events", type=Path)
    parser.add_argument("--golden", type=Path, required=True)
    parser.add_argument("--manifest", type=Path, help="JSON: tokens by source and sample id")
    parser.add_argument("--bound", type=float, default=30.0, help="seconds that one call of a trainer may take")
    a = parser.parse_args(arguments)
    manifest = json.loads(a.manifest.read_text()) if a.manifest else None
    found = Check(History(a.golden), manifest, a.bound).run(History(a.events))
    for violation in found:
        print(violation)
    print(f"{len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
