"""Processes of a run: starting `millrace up`, and the CPU time and memory of a process and its descendants."""

from __future__ import annotations

import collections
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping

TICK = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """Returns a process and all its descendants."""
    parents = collections.defaultdict(list)
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(text[1])].append(int(stat.parent.name))
    out, todo = [], [pid]
    while todo:
        out.append(todo.pop())
        todo += parents[out[-1]]
    return out


def cpu_seconds(pids: list[int]) -> float:
    """Returns the user and system time of processes and of their children that have ended."""
    total = 0
    for pid in pids:
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICK


def pss_mib(pids: list[int]) -> float:
    """Returns the proportional set size, which counts shared memory once."""
    total = 0
    for pid in pids:
        try:
            for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        except OSError:
            continue
    return total / 1024


def memory_mib(pids: list[int], hosts: int = 1) -> float:
    """Returns the proportional set size of processes of several hosts on one machine.

    Pages of files count for each host, because machines do not share them.
    """
    total = 0
    for pid in pids:
        try:
            for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    total += int(line.split()[1])
                elif line.startswith("Pss_File:"):
                    total += hosts * int(line.split()[1])
        except OSError:
            continue
    return total / 1024


class Run:
    """`millrace up` and its processes."""

    def __init__(
        self,
        binary: str,
        mix: pathlib.Path,
        folder: pathlib.Path,
        ranks: int = 1,
        cpus: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        pin = ["taskset", "-c", cpus] if cpus else []
        self.dir, self.began = folder, time.perf_counter()
        log = folder.with_suffix(".log")
        self.up = subprocess.Popen(
            [*pin, binary, "up", str(mix), "--ranks", str(ranks), "--run-dir", str(folder)],
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            env=os.environ | (env or {}),
        )
        if not self.up.stdout.readline().startswith("ready"):
            raise SystemExit(f"millrace up did not become ready:\n{log.read_text()}")

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.up.send_signal(signal.SIGINT)
        self.up.wait()

    def pids(self) -> list[int]:
        return family(self.up.pid)


def window(one: Callable[[], int], warm: float, seconds: float, others: Callable[[], list[int]]) -> dict[str, float]:
    """Calls `one`, which returns tokens, for `warm` seconds and then for `seconds`.

    It returns the figures of the second part. CPU is the time of this process and of the `others`.
    """
    until = time.perf_counter() + warm
    while time.perf_counter() < until:
        one()
    pids = others()
    trainer, spent, start, tokens = time.process_time(), cpu_seconds(pids), time.perf_counter(), 0
    while time.perf_counter() < start + seconds:
        tokens += one()
    took = time.perf_counter() - start
    trainer = time.process_time() - trainer
    every = trainer + cpu_seconds(pids) - spent
    return {
        "M tok/s": tokens / took / 1e6,
        "CPU s/M tok": every / tokens * 1e6,
        "trainer CPU s/M tok": trainer / tokens * 1e6,
        "cores": every / took,
    }


def spread(values: list[float]) -> str:
    """Returns the median and the range as text."""
    return f"{statistics.median(values):.3g} ({min(values):.3g}-{max(values):.3g})"
