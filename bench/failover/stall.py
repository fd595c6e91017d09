"""The effect of a loader's death on trainers: the longest wait around it, and the speed under steady faults."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any, List, Optional

from rig import Up, percentile, table, times, until, write_documents, write_mixture
from takeover import Route

# The shape of a step, by the number of finished steps that wait beside the trainer's batch. A frame is one microbatch
# of eight rows at 32 bytes a token. A ring has three frames if a frame has 1 MiB or more, otherwise eight.
AHEAD = {
    1: {"global_batch_size": 16, "sequence_length": 8192},
    2: {"sequence_length": 8192},
    3: {"global_batch_size": 16},
    7: {},
}
NOTICED = 0.005  # a longer wait, in seconds, counts as a stall


def documents(work: Path) -> dict:
    return {"docs": {"path": str(write_documents(work / "docs.jsonl", 40))}}


def kill(up: Up, route: Route) -> Optional[float]:
    """Kills the loader that the sidecar uses, busy or idle. Returns the time, or None during a replacement."""
    beats = up.beats(route.read().using)
    if beats is None:
        return None
    at = time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        os.kill(beats.pid, signal.SIGKILL)
    except ProcessLookupError:
        return None
    return at


def stalls(a: Any, work: Path, mixture: Path, pause: float, kills: int, seconds: float) -> List[float]:
    """Returns the trainer's longest wait, in milliseconds, from each death until two more steps are taken."""
    rng, log, at = random.Random(1), work / "trainer.log", []
    span, deadline = max(0.4, 3 * pause), time.monotonic() + seconds
    with Up(a.millrace, mixture, work / "run") as up:
        up.train(pause, log)
        route = Route(up.tail())
        until(lambda: len(times(log)) > 10, "ten steps")
        while len(at) < kills and time.monotonic() < deadline:
            until(route.protected, "protection")
            time.sleep(rng.uniform(0.3, 0.3 + pause))
            at.append(kill(up, route))
            time.sleep(span)
    waits = times(log)
    took = [(asked, had, 1e3 * (had - asked)) for asked, had, _ in waits]
    return [max((ms for asked, had, ms in took if had >= k and asked <= k + span), default=0.0) for k in at if k]


def stall(a: Any, work: Path) -> None:
    rows = []
    for ahead, shape in AHEAD.items():
        mix = write_mixture(work, f"stall-{ahead}", documents(work), 1, **shape)
        pause = 0.25 / (shape.get("global_batch_size", 8) // 8)
        rows.append([f"{ahead}", "250 ms", stalls(a, work, mix, pause, a.stalls, a.seconds)])
    mix = write_mixture(work, "stall-fast", documents(work), 1)
    rows.append(["7", "20 ms", stalls(a, work, mix, 0.02, a.stalls, a.seconds)])
    rows.append(["0: it never pauses", "none", stalls(a, work, mix, 0.0, a.stalls, a.seconds)])
    table(
        "Longest wait of the trainer around a loader's death, one shadow, milliseconds",
        ["steps buffered", "step", "p50", "p99", "worst", "waits over 5 ms", "deaths"],
        [
            [
                ahead,
                step,
                *(f"{percentile(s, p):.1f}" for p in (50, 99, 100)),
                sum(v > 1e3 * NOTICED for v in s),
                len(s),
            ]
            for ahead, step, s in rows
            if s
        ],
    )


# The trainer of paced() takes a step for so long, and a loader dies so often, in seconds.
PACE, EVERY = 0.08, 5.0
LONG = 0.01  # a longer wait is listed with its cause


def causes(up: Up, waits: List[tuple], began: float, deaths: List[float]) -> List[str]:
    """Describes every long wait after `began`: its time since the last death, and whether the sidecar had pushed the
    batch before the trainer asked. A batch is one step."""
    pushed = {r["step"]: r["boottime_ns"] / 1e9 for r in up.tail().lines() if r["event"] == "pushed"}
    out = []
    for step, (asked, had, queued) in enumerate(waits):
        if asked > began and had - asked > LONG:
            since = min((asked - d for d in deaths if d <= had), default=float("inf"))
            ready = pushed.get(step, float("inf")) - asked
            out.append(
                f"step {step}: {1e3 * (had - asked):.1f} ms, {since:.2f} s after a death; the batch was pushed "
                f"{abs(1e3 * ready):.1f} ms {'before' if ready < 0 else 'after'} the trainer asked, and the trainer "
                f"waited {1e3 * queued:.1f} ms for a CPU"
            )
    return out


def paced(a: Any, work: Path) -> None:
    """Two steps buffered, steps of 80 ms, and a loader killed every 5 s; then the same without deaths."""
    mix, log = write_mixture(work, "stall-paced", documents(work), 1, **AHEAD[2]), work / "trainer.log"
    rows, told = [], []
    for name, kills in (("a loader every 5 s", a.paced), ("none", max(1, a.paced // 4))):
        deaths: List[float] = []
        with Up(a.millrace, mix, work / "run") as up:
            up.train(PACE, log)
            route = Route(up.tail())
            until(lambda: len(times(log)) > 25, "25 steps")
            began = time.clock_gettime(time.CLOCK_BOOTTIME)
            for k in range(kills):
                time.sleep(max(0.0, began + (k + 1) * EVERY - time.clock_gettime(time.CLOCK_BOOTTIME)))
                at = kill(up, route) if name != "none" else None
                if at:
                    deaths.append(at)
            time.sleep(1)
            waits = times(log)
            told += causes(up, waits, began, deaths)
        took = [1e3 * (had - asked) for asked, had, _ in waits if asked > began]
        rows.append(
            [
                name, len(deaths), len(took), *(f"{percentile(took, p):.1f}" for p in (50, 99, 99.9, 100)),
                sum(v > 1e3 * NOTICED for v in took), sum(v > 1e3 * LONG for v in took),
            ]
        )
    table(
        "All waits of the trainer, two steps buffered, steps of 80 ms, one shadow, milliseconds",
        ["deaths", "number", "batches", "p50", "p99", "p99.9", "worst", "over 5 ms", "over 10 ms"],
        rows,
    )
    for line in told:
        print(line)


def speed(a: Any, work: Path, shadows: int, pause: float, every: float, seconds: float) -> tuple:
    """Returns the steps per second, the share of time without stalls, and the number of deaths. A loader dies every
    `every` seconds (0: never)."""
    log = work / "trainer.log"
    with Up(a.millrace, write_mixture(work, f"goodput-{shadows}", documents(work), shadows), work / "run") as up:
        up.train(pause, log)
        route = Route(up.tail())
        until(lambda: len(times(log)) > 20, "twenty steps")
        begin, faults = time.clock_gettime(time.CLOCK_BOOTTIME), 0
        until(lambda: route.protected() or not shadows, "protection")
        while (left := begin + seconds - time.clock_gettime(time.CLOCK_BOOTTIME)) > 0:
            if not every or left < every:
                time.sleep(left)
                break
            time.sleep(every)
            faults += kill(up, route) is not None
    waits = [(asked, had) for asked, had, _ in times(log) if begin <= asked < begin + seconds]
    stalled = sum(had - asked for asked, had, _ in waits if had - asked > NOTICED)
    return len(waits) / seconds, 1 - stalled / seconds, faults


def goodput(a: Any, work: Path) -> None:
    rows = []
    for every, seconds in ((1.0, a.seconds), (30.0, max(a.seconds, 2 * a.seconds if a.long else 65.0))):
        for pause in (0.05, 0.0):
            if not pause and every > 1 and not a.long:
                continue
            for shadows in (0, 1, 2):
                ratios, ettr, faults = [], [], 0
                for _ in range(a.rounds):
                    plain, _, _ = speed(a, work, shadows, pause, 0, min(seconds, 30))
                    under, alive, n = speed(a, work, shadows, pause, every, seconds)
                    ratios.append(under / plain)
                    ettr.append(alive)
                    faults += n
                rows.append(
                    [
                        f"{every:.0f} s", "50 ms" if pause else "none", shadows, f"{percentile(ratios, 50):.2%}",
                        f"{percentile(ettr, 50):.2%}" if pause else "-", faults,
                    ]
                )
    table(
        "Steps under loader deaths over those of a run without",
        ["a death every", "step", "shadows", "goodput", "time not spent waiting", "deaths"],
        rows,
    )
