"""Which stage a step is of, and what it says: CONTRACT's mixture file and Megatron's rule of growing batches, counted step by step."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from harness import LENGTH, Delivered

OWN = ("sequence_length", "global_batch_size", "micro_batch_size", "packing")


def by_step(delivered: Delivered, mixture: Mapping[str, Any]) -> Dict[int, Dict[str, Any]]:
    """For each step of a run from its beginning, what holds in it."""
    out: Dict[int, Dict[str, Any]] = {}
    now = {"micro_batch_size": 1, "packing": "best_fit", **{key: mixture[key] for key in OWN if key in mixture}}
    ramp, later = mixture.get("rampup_batch_size"), list(mixture.get("stages", []))
    tokens = consumed = 0  # tokens of the run, sequences of the stage
    for step, segments in delivered.steps().items():
        while later and (step if "from_step" in later[0] else tokens) >= later[0].get("from_step", later[0].get("from_tokens")):
            stage = later.pop(0)
            now = {**now, **{key: stage[key] for key in OWN if key in stage}}
            ramp, consumed = stage.get("rampup_batch_size"), 0
        size = now["global_batch_size"]
        if ramp and consumed <= ramp["samples"]:
            increments = (size - ramp["start"]) // ramp["increment"]
            size = ramp["start"] + consumed * increments // ramp["samples"] * ramp["increment"]
        out[step] = {**now, "global_batch_size": size}
        consumed += size
        tokens += sum(s[LENGTH] for s in segments)
    assert not later, f"the run does not come to {later}"
    return out
