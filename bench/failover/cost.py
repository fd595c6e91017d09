"""The cost of healthy shadows: CPU time, memory and decoded records, over the same stream at the same pace."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, List

from rig import TICKS, Up, percentile, table, times, until, write_documents, write_mixture

# Every decoded record writes an event, so the events count the records read.
COUNTED = {"MILLRACE_FAILPOINTS": "loader/decode/before=sleep:0s@0"}


def seconds_of(pids: List[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def pss(pids: List[int]) -> float:
    """Returns the proportional set size in MiB, which counts shared memory once."""
    return (
        sum(
            int(line.split()[1])
            for pid in pids
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            if line.startswith("Pss:")
        )
        / 1024
    )


def steady(a: Any, work: Path, shadows: int, seconds: float, counted: bool) -> Dict[str, float]:
    mix = write_mixture(
        work,
        f"cost-{shadows}",
        {"docs": {"path": str(write_documents(work / "docs.jsonl", 40))}},
        shadows,
        global_batch_size=64,
    )
    log = work / "trainer.log"
    with Up(a.millrace, mix, work / "run", env=COUNTED if counted else None) as up:
        up.train(0.015, log)  # eight batches of 16K tokens a step
        until(lambda: len(times(log)) > 200, "two hundred batches")
        pids, begun, batches = [up.process.pid, *up.pids().values()], time.monotonic(), len(times(log))
        before, made = seconds_of(pids), decoded(up)
        time.sleep(seconds)
        passed = time.monotonic() - begun
        after = decoded(up)
        out = {"cpu": 1e6 * (seconds_of(pids) - before) / (len(times(log)) - batches), "memory": pss(pids)}
        if counted:
            out["extra"] = (after.get("shadow", 0) - made.get("shadow", 0)) / max(
                1, after.get("loader", 0) - made.get("loader", 0)
            )
            out["switched"] = sum(r["event"] == "switched" for r in up.tail().lines())
        out["rate"] = (len(times(log)) - batches) / passed
    return out


def extra_records(a: Any, work: Path, shadows: int) -> float:
    """Returns the records that shadows read, as a part of the records that loaders read. On a busy host, a sidecar may
    switch from a living loader; then the run is repeated, at most four times."""
    for _ in range(5):
        run = steady(a, work, shadows, min(a.seconds, 15), True)
        if not run["switched"]:
            return run["extra"]
    return float("nan")


def decoded(up: Up) -> Dict[str, int]:
    out: Dict[str, int] = {}
    for path in up.events.glob("*.jsonl"):
        role = path.name.split("-")[0]
        out[role] = out.get(role, 0) + path.read_bytes().count(b"loader/decode/before")
    return out


def cost(a: Any, work: Path) -> None:
    seen: Dict[int, List[Dict[str, float]]] = {0: [], 1: [], 2: []}
    for _ in range(a.rounds):  # in turns, so that a busy minute affects all
        for shadows in seen:
            seen[shadows].append(steady(a, work, shadows, min(a.seconds, 20), False))
    extra = {s: extra_records(a, work, s) for s in (1, 2)}
    rows = []
    for shadows, runs in seen.items():
        cpu, memory = (percentile([r[key] for r in runs], 50) for key in ("cpu", "memory"))
        base_cpu, base_memory = (percentile([r[key] for r in seen[0]], 50) for key in ("cpu", "memory"))
        rows.append(
            [
                shadows, f"{cpu:.0f}", f"{cpu / base_cpu - 1:+.1%}", f"{memory:.0f}",
                f"{memory / base_memory - 1:+.1%}", f"{extra[shadows]:+.1%}" if shadows else "", len(runs),
            ]
        )
    table(
        "Cost of shadows while nothing happens, a trainer at a steady pace; medians",
        [
            "shadows", "CPU µs a batch of 16K tokens", "", "PSS of all roles, MiB", "",
            "records read beside the loaders'", "runs",
        ],
        rows,
    )
