"""Event records of each life of each role, and the work in flight that they show. A life is one process."""

from __future__ import annotations

import collections
import json
import re
from pathlib import Path
from typing import Any, Dict, List, Tuple

Record = Dict[str, Any]


class Life:
    """One process, as its own record shows it."""

    def __init__(self, path: Path) -> None:
        name, _, pid = path.stem.rpartition("-")
        self.name, self.pid = name, int(pid)
        self.kind = re.sub(r"-\d+$", "", name)
        self.records: List[Record] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                self.records.append(json.loads(line))
            except ValueError:
                break  # SIGKILL cut the last line
        self.began = self.records[0]["boottime_ns"] if self.records else 0

    def until(self, boottime_ns: int) -> "Life":
        """The life up to a moment."""
        part = Life.__new__(Life)
        part.name, part.pid, part.kind, part.began = self.name, self.pid, self.kind, self.began
        part.records = [r for r in self.records if r["boottime_ns"] <= boottime_ns]
        return part

    def named(self, event: str) -> List[Record]:
        return [r for r in self.records if r["event"] == event]

    def open(self) -> List[Tuple[Any, ...]]:
        """Work that was begun and not ended. After a kill, this was the work in flight."""
        if self.named("start") and not self.named("ready") and self.kind != "trainer":
            return [("start",)]
        kinds = {"loader": self._fetches, "shadow": self._fetches, "orchestrator": self._turns, "sidecar": self._slots}
        return kinds.get(self.kind, self._pairs)()

    def _pairs(self) -> List[Tuple[Any, ...]]:
        """A trainer's unfinished call or held batch, or an `up` that has not ended."""
        last = self.records[-1] if self.records else {}
        if self.kind == "trainer":
            return [(last["event"], last["step"])] if last.get("event") not in (None, "end", "error") else []
        return [("up",)] if self.named("ready") and not self.named("exit") else []

    def _fetches(self) -> List[Tuple[Any, ...]]:
        """Replies that are not sent in full, and stripes that are being read."""
        left: Dict[Tuple[Any, ...], int] = collections.Counter()
        reading: Dict[str, bool] = {}
        for r in self.records:
            if r["event"] in ("reading", "read"):
                reading[r["key"]] = r["event"] == "reading"
                continue
            key = (r.get("attempt", 0), r["step"], r.get("key"), r.get("term"))
            left[key] += {"fetch": 1, "fetched": -1}.get(r["event"], 0)
        return [key for key, n in left.items() if n > 0] + [("reading", source) for source, on in reading.items() if on]

    def _turns(self) -> List[Tuple[Any, ...]]:
        """Facts of an unfinished turn, durable or not, and plans that not every rank has consumed."""
        steps: List[Tuple[Any, ...]] = []
        turn: List[Tuple[Any, ...]] = []
        for r in self.records:
            if r["event"] == "journal":
                turn.append((r["event"], r["key"], r["step"]))
                if r["key"] == "Sealed":
                    steps.append(("sealed", r["attempt"], r["step"]))
            elif r["event"] == "published":
                turn = []
        return turn + steps[-1:]

    def _slots(self) -> List[Tuple[Any, ...]]:
        left: Dict[Tuple[Any, ...], str] = {}
        for r in self.records:
            slot = (r.get("attempt", 0), r["step"], r["rank"], r["microbatch"])
            if r["event"] in ("filling", "pushed"):
                left[slot] = r["event"]
            elif r["event"] == "committed":
                done = [s for s in left if s[0] == slot[0] and s[2] == slot[2] and s[1] <= slot[1]]
                for s in done:
                    del left[s]
        return [(state, *slot) for slot, state in left.items()]


def lives(directory: Path) -> List[Life]:
    return sorted((Life(p) for p in Path(directory).glob("*.jsonl")), key=lambda life: life.began)


def killed(directory: Path, stderr: str) -> List[Life]:
    """The lives that SIGKILL ended, by the messages of `up`. Of each name, these are the first lives."""
    deaths = collections.Counter(re.findall(r"^(\S+) died \(SIGKILL\)", stderr, re.M))
    out: List[Life] = []
    by_name: Dict[str, List[Life]] = collections.defaultdict(list)
    for life in lives(directory):
        by_name[life.name].append(life)
    for name, of in by_name.items():
        out += of[: deaths[name]]
    return out
