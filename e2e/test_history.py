"""Tests of the checker: it must find the one fault in each history and name the violated promise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from history import Check, History

RANKS, STEPS, OF = 2, 6, 2
Files = Dict[str, List[Dict[str, Any]]]
MANIFEST = {"s": {**{f"f#{n}": 8 for n in range(RANKS * STEPS * OF)}, "f#bad": 1}}


def quiet() -> Files:
    """The records of a run without faults. Every batch holds one sample of 8 tokens."""
    held = {"fds": 9, "rss_bytes": 50 << 20, "goroutines": 5}
    files: Files = {
        f"trainer-{rank}-1{rank}": [{"event": "start", "start": "", "state_step": -1, **held}] for rank in range(RANKS)
    }
    files["orchestrator-20"] = [{"event": "start", **held}, {"event": "ready", **held}]
    files["sidecar-0-30"] = [{"event": "start", **held}, {"event": "ready", **held}]
    files["loader-0-40"] = [{"event": "start", **held}, {"event": "ready", **held}]
    files["up-50"] = [{"event": "start", **held}, {"event": "ready", **held}]
    for step in range(STEPS):
        plan = {"step": step, "attempt": 1, "digest": f"plan{step}"}
        files["orchestrator-20"] += [
            {"event": "journal", "key": "Sealed", "term": 1, **plan},
            {"event": "published", "term": 1},
        ]
        files["sidecar-0-30"].append({"event": "plan", "term": 1, **plan})
        files["loader-0-40"] += [
            {"event": "fetch", "key": "s", "term": 2, "step": step},
            {"event": "fetched", "key": "s", "term": 2, "step": step},
        ]
        for rank in range(RANKS):
            for m in range(OF):
                n = (step * RANKS + rank) * OF + m
                segments = [["s", f"f#{n}", 0, n, 0, 8, 0, 0]]
                files[f"trainer-{rank}-1{rank}"] += [
                    {"event": "ask"},
                    {
                        "event": "batch",
                        "step": step,
                        "attempt": 1,
                        "rank": rank,
                        "microbatch": m,
                        "of": OF,
                        "digest": f"bytes{n}",
                        "segments": segments,
                    },
                ]
    files["orchestrator-20"].append({"event": "lost", "key": "s 99 f#bad"})
    for name, records in files.items():
        records += (
            [{"event": "ask"}, {"event": "end", **held}] if name.startswith("trainer") else [{"event": "exit", **held}]
        )
    files["up-50"][-1] = {**held, "event": "exit", "boottime_ns": 2_000_000_000}
    return files


def write(files: Files, directory: Path) -> History:
    """Writes the records to disk. A record without a time gets the previous record's time plus a millisecond."""
    directory.mkdir(parents=True)
    for name, records in files.items():
        role, _, pid = name.rpartition("-")
        now = int(pid)  # keeps lives in the order of their numbers
        with open(directory / f"{name}.jsonl", "w", encoding="utf-8") as f:
            for seq, r in enumerate(records, 1):
                now = r.get("boottime_ns", now + 1_000_000)
                f.write(
                    json.dumps({"seq": seq, "role": role, "pid": int(pid), "step": -1, **r, "boottime_ns": now}) + "\n"
                )
    return History(directory)


def batches(files: Files, rank: int) -> List[int]:
    """The positions of a rank's batches in its file."""
    return [i for i, r in enumerate(files[f"trainer-{rank}-1{rank}"]) if r["event"] == "batch"]


def restarted(files: Files, rank: int, at: int, state_step: int, begin: int) -> None:
    """The rank's trainer dies after batch number `at`, and a new one starts at a step."""
    name = f"trainer-{rank}-1{rank}"
    whole, cut = files[name], batches(files, rank)[at]
    first = batches(files, rank)[begin * OF] if begin < STEPS else len(whole) - 2
    start = {**whole[0], "state_step": state_step, "state_microbatch": 0, "boottime_ns": 1_000_000_000}
    files[name] = whole[: cut + 1]
    files[f"trainer-{rank}-9{rank}"] = [start, *(dict(r) for r in whole[first - 1 :])]


def drop(files: Files) -> None:
    del files["trainer-0-10"][batches(files, 0)[-1]]


def extra(files: Files) -> None:
    last = files["trainer-0-10"][batches(files, 0)[-1]]
    files["trainer-0-10"].insert(-2, {**last, "step": STEPS, "microbatch": 0})


def twice(files: Files) -> None:
    at = batches(files, 1)[4]
    files["trainer-1-11"].insert(at, dict(files["trainer-1-11"][at]))


def swapped(files: Files) -> None:
    records, (a, b) = files["trainer-0-10"], batches(files, 0)[2:4]
    records[a], records[b] = records[b], records[a]


def off_by_one(files: Files) -> None:
    restarted(files, 0, at=7, state_step=2, begin=3)


def gap(files: Files) -> None:
    restarted(files, 0, at=3, state_step=-1, begin=3)


def second_plan(files: Files) -> None:
    files["sidecar-0-30"].insert(-1, {"event": "plan", "step": 3, "attempt": 2, "term": 1, "digest": "another"})


def second_seal(files: Files) -> None:
    files["orchestrator-20"].insert(
        -1, {"event": "journal", "key": "Sealed", "step": 3, "attempt": 2, "term": 1, "digest": "another"}
    )


def other_bytes(files: Files) -> None:
    files["trainer-0-10"][batches(files, 0)[5]]["digest"] = "others"


def other_bytes_cut_off(files: Files) -> None:
    """Batches that a restart rolls back must have the right bytes too."""
    restarted(files, 0, at=7, state_step=1, begin=1)
    files["trainer-0-10"][-1]["digest"] = "others"


def other_sample(files: Files) -> None:
    files["trainer-0-10"][batches(files, 0)[1]]["segments"][0][1] = "f#7"


def too_long(files: Files) -> None:
    files["trainer-0-10"][batches(files, 0)[1]]["segments"][0][5] = 9


def stale_fetch(files: Files) -> None:
    files["loader-0-40"].insert(-1, {"event": "fetch", "key": "s", "term": 1})


def stale_plan(files: Files) -> None:
    files["sidecar-0-30"].insert(3, {"event": "plan", "step": 0, "attempt": 1, "term": 9, "digest": "plan0"})


def stale_decision(files: Files) -> None:
    files["orchestrator-20"][-4]["term"] = 4
    files["orchestrator-21"] = [
        {"event": "start"},
        {"event": "journal", "key": "Acknowledged", "term": 3, "boottime_ns": 1_000_000_000},
    ]


def stall(files: Files) -> None:
    files["trainer-1-11"][batches(files, 1)[6]]["boottime_ns"] = 40_000_000_000


def unfinished(files: Files) -> None:
    del files["trainer-1-11"][-1]


def exception(files: Files) -> None:
    files["trainer-1-11"].insert(3, {"event": "error", "key": "RunError", "reason": "it is over"})


def never_began(files: Files) -> None:
    del files["trainer-1-11"]


def descriptors(files: Files) -> None:
    files["sidecar-0-30"][-1] = {**files["sidecar-0-30"][-1], "fds": 40}


def goroutines(files: Files) -> None:
    files["sidecar-0-30"][-1] = {**files["sidecar-0-30"][-1], "goroutines": 400}


def memory(files: Files) -> None:
    files["loader-0-40"][-1] = {**files["loader-0-40"][-1], "rss_bytes": 900 << 20}


def left_behind(files: Files) -> None:
    files["driver-60"] = [{"event": "left", "key": "temporary file .index-1.tmp"}]


def unlogged(files: Files) -> None:
    files["orchestrator-20"] = [r for r in files["orchestrator-20"] if r["event"] != "lost"]


def skipped(files: Files) -> None:
    """A sample is missing, and no other replaces it."""
    files["trainer-0-10"][batches(files, 0)[1]]["segments"] = []


def error_from_a_dying_up(files: Files) -> None:
    """A trainer's error is a violation, even if `up` was killed and restarted."""
    restarted(files, 0, at=7, state_step=2, begin=2)
    del files["up-50"][-1]
    files["trainer-0-10"] += [
        {"event": "ask"},
        {"event": "error", "key": "RunError", "reason": "no `millrace up` serves it any more"},
    ]


DOCTORED: List[Any] = [
    ("P1", drop), ("P1", extra), ("P1", never_began), ("P2", twice), ("P3", swapped), ("P3", off_by_one), ("P3", gap),
    ("P4", second_plan), ("P4", second_seal), ("P5", other_bytes), ("P5", other_bytes_cut_off), ("P6", other_sample),
    ("P6", too_long), ("P7", stale_fetch), ("P7", stale_plan), ("P7", stale_decision), ("P8", stall),
    ("P8", unfinished), ("P8", exception), ("P8", error_from_a_dying_up), ("P8", never_began), ("P9", descriptors),
    ("P9", goroutines), ("P9", memory), ("P9", left_behind), ("P10", unlogged), ("P10", skipped),
]  # fmt: skip


@pytest.mark.parametrize("promise, doctor", DOCTORED, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_doctored(tmp_path: Path, promise: str, doctor: Callable[[Files], None]) -> None:
    golden = write(quiet(), tmp_path / "golden")
    files = quiet()
    doctor(files)
    found = Check(golden, MANIFEST).run(write(files, tmp_path / "doctored"))
    assert promise in {v.promise for v in found}, found


def harmless(files: Files) -> None:
    restarted(files, 0, at=7, state_step=2, begin=2)
    restarted(files, 1, at=6, state_step=2, begin=2)


@pytest.mark.parametrize("doctor", [lambda files: None, harmless], ids=["quiet", "restarted"])
def test_correct_histories_pass(tmp_path: Path, doctor: Callable[[Files], None]) -> None:
    golden = write(quiet(), tmp_path / "golden")
    files = quiet()
    doctor(files)
    assert Check(golden, MANIFEST).run(write(files, tmp_path / "other")) == []


def test_command(tmp_path: Path) -> None:
    """The command prints each violation with the records around it, and exits with 1 if it found a violation."""
    write(quiet(), tmp_path / "golden")
    files = quiet()
    other_bytes(files)
    write(files, tmp_path / "doctored")
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    command = [
        sys.executable, str(Path(__file__).with_name("history.py")), "--golden", str(tmp_path / "golden"), "--manifest",
        str(tmp_path / "manifest.json"),
    ]
    good = subprocess.run([*command, str(tmp_path / "golden")], capture_output=True, text=True)
    assert good.returncode == 0 and good.stdout == "0 violations\n", good
    bad = subprocess.run([*command, str(tmp_path / "doctored")], capture_output=True, text=True)
    assert (
        bad.returncode == 1 and bad.stdout.startswith("P5: slot (2, 0, 1) has others") and '    > {"seq"' in bad.stdout
    ), bad
