"""The stage of each step and its settings: the mixture file's stages and Megatron's batch ramp-up, counted step by
step."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from harness import LENGTH, Delivered

OWN = ("sequence_length", "global_batch_size", "micro_batch_size", "packing")


def by_step(delivered: Delivered, mixture: Mapping[str, Any]) -> Dict[int, Dict[str, Any]]:
    """The settings of each step of a run, from its start."""
    out: Dict[int, Dict[str, Any]] = {}
    now = {"micro_batch_size": 1, "packing": "best_fit", **{key: mixture[key] for key in OWN if key in mixture}}
    ramp, later = mixture.get("rampup_batch_size"), list(mixture.get("stages", []))
    tokens = consumed = 0  # tokens since the run's start, sequences since the stage's start
    for step, segments in delivered.steps().items():
        while later and (step if "from_step" in later[0] else tokens) >= later[0].get(
            "from_step", later[0].get("from_tokens")
        ):
            stage = later.pop(0)
            now = {**now, **{key: stage[key] for key in OWN if key in stage}}
            ramp, consumed = stage.get("rampup_batch_size"), 0
        size = now["global_batch_size"]
        if ramp and consumed <= ramp["samples"]:
            increments = (size - ramp["start"]) // ramp["increment"]
            size = ramp["start"] + consumed * increments // ramp["samples"] * ramp["increment"]
        out[step] = {**now, "global_batch_size": size}
        if now["packing"] == "bucketed":
            out[step]["sequence_length"] = bucket(
                now["sequence_length"], mixture.get("pad_multiple", 1), max(s[LENGTH] for s in segments)
            )
        consumed += size
        tokens += sum(s[LENGTH] for s in segments)
    assert not later, f"the run does not reach {later}"
    return out


def bucket(length: int, multiple: int, longest: int) -> int:
    """The row length of a bucketed step, given its longest segment: the sequence length, halved while the segment
    fits."""
    for _ in range(7):
        if length % 2 or length // 2 % multiple or length // 2 < longest:
            break
        length //= 2
    return length
