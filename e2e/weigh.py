"""Measures the processes of a run: proportional set size with shared memory, descriptors and threads."""

from __future__ import annotations

import collections
import json
import os
import re
import threading
from pathlib import Path
from typing import Dict, List, Sequence, Set

from harness import Run


def pss(pid: int, of: str = "") -> int:
    """Returns the proportional set size of a process in bytes, 0 if it has ended. `of` selects mappings by name."""
    try:
        if not of:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            return int(re.search(r"^Pss:\s+(\d+) kB", rollup, re.M)[1]) << 10  # type: ignore[index]
        total, counts = 0, False
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                counts = of in line
            elif counts and line.startswith("Pss:"):
                total += int(line.split()[1]) << 10
        return total
    except (OSError, TypeError):
        return 0


class Scale(threading.Thread):
    """Measures a run repeatedly inside the context: peaks by role and in total, and each count of descriptors and
    threads."""

    def __init__(self, run: Run, trainers: Sequence[int] = (), every: float = 0.1) -> None:
        super().__init__(daemon=True)
        self.run_, self.trainers, self.every = run, list(trainers), every
        self.peaks: Dict[str, int] = collections.Counter()
        self.totals: List[int] = []
        self.fds: List[int] = []
        self.threads: List[int] = []
        self.seen: Set[int] = set()  # the pids of all roles so far
        self._over = threading.Event()

    def __enter__(self) -> "Scale":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(self.every):
            self.weigh()

    def weigh(self) -> None:
        """Adds one measurement. A run without roles at this moment adds none."""
        try:
            roles = json.loads((self.run_.directory / "run" / "roles.json").read_text())
        except (OSError, ValueError):
            return
        now: Dict[str, int] = collections.Counter({"up": pss(self.run_.process.pid)})
        pids = [r["pid"] for r in roles if r["pid"]]
        self.seen.update(pids)
        for r in roles:
            if r["pid"]:
                now[r["role"]] += pss(r["pid"])
        now["frames of trainers"] = sum(pss(pid, "memfd:") for pid in self.trainers)
        for name, n in now.items():
            self.peaks[name] = max(self.peaks[name], n)
        self.totals.append(sum(now.values()))
        self.fds.append(sum(entries(f"/proc/{pid}/fd") for pid in pids))
        self.threads.append(sum(entries(f"/proc/{pid}/task") for pid in pids))

    @property
    def peak(self) -> int:
        return max(self.totals, default=0)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {n >> 20}" for name, n in sorted(self.peaks.items()))
        return f"peak {self.peak >> 20} MiB ({parts})"


def entries(directory: str) -> int:
    try:
        return len(os.listdir(directory))
    except OSError:
        return 0
