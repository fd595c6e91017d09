"""The operator's commands during a run, compared with the delivered batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Tuple

from conftest import variant
from harness import command, content_digest

STEPS = 8
SHORT = variant({"stop": {"steps": STEPS}, "global_batch_size": 8, "micro_batch_size": 2, "sequence_length": 192})


def ledger(stage: Any, directory: Any, *args: str) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in command(stage.binary, "ledger", str(directory), *args, "--json").splitlines()]


def as_taken(segments: List[Dict[str, Any]]) -> List[Tuple[Any, ...]]:
    """The ledger's segments as a trainer has them, without their position in the batch."""
    return sorted((s["source"], s["id"], s["epoch"], s["ordinal"], s["offset"], s["length"]) for s in segments)


def test_ledger_has_the_delivered_segments(stage: Any) -> None:
    directory = stage.new_dir()
    with stage.up(SHORT, 2, directory) as run:
        first = run.train(states=True, leave_after=(5, 1))
        state = json.loads(next(b.state for b in first.ranks[0] if (b.step, b.microbatch) == (2, 1)))
        second = run.train(state=state, leave_after=(6, 1))
        held = ledger(stage, directory, "--step", "4")
        assert [h["attempt"] for h in held] == [1, 2]
        for attempt, delivered in zip(held, (first, second)):
            segments = delivered.steps()[4]
            assert attempt["complete"] and as_taken(attempt["segments"]) == sorted(s[:6] for s in segments)
            assert attempt["content_digest"] == content_digest(segments)
            assert all(
                any(r["source"] == s[0] and r["from"] <= s[3] <= r["to"] for r in attempt["ranges"]) for s in segments
            )
        live = {}
        for source, name, *_ in {s[0]: s for s in first.steps()[4]}.values():
            found = live[source, name] = ledger(stage, directory, "--sample", f"{source}/{name}")
            assert {(f["attempt"], f["step"]) for f in found} >= {(1, 4), (2, 4)}
            assert all(s["source"] == source and s["id"] == name for f in found for s in f["segments"])
    for (source, name), found in live.items():
        assert ledger(stage, directory, "--sample", name, "--source", source) == found, (
            "the ledger of the stopped run differs"
        )


def test_rolling_restart_under_load(stage: Any) -> None:
    expected = stage.delivered(SHORT, 2)
    with stage.up(SHORT, 2) as run:
        (held := Path(f"{run.directory}.hold")).touch()
        trainers = run.start(pause=2.0, hold=str(held))
        done = [
            json.loads(line) for line in command(stage.binary, "restart", str(run.directory), "--json").splitlines()
        ]
        held.unlink()
        delivered = trainers.collect()
        assert run.wait() == 0
    assert [d["role"] for d in done][-2:] == ["sidecar", "orchestrator"] and all(d["pid"] != d["was"] for d in done)
    assert delivered.ends == ["end"] * 2 and delivered.bytes() == expected.bytes()
