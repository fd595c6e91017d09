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
            multiple, longest = mixture.get("pad_multiple", 1), max(s[LENGTH] for s in segments)
            if mixture.get("bucket_rows") == "constant":
                out[step]["sequence_length"] = bucket(now["sequence_length"], multiple, longest)
            else:
                out[step].update(token_rows(delivered, step, out[step], multiple, longest))
        consumed += size
        tokens += sum(s[LENGTH] for s in segments)
    assert not later, f"the run does not reach {later}"
    return out


def token_rows(
    delivered: Delivered, step: int, now: Mapping[str, Any], multiple: int, longest: int
) -> Dict[str, Any]:
    """The settings of a bucketed step whose rows are as many as have the tokens of the batch: the rows that replace one
    sequence fit into it."""
    length = rung(now["sequence_length"] // multiple, -(-longest // multiple)) * multiple
    batch = next(b for rank in delivered.ranks for b in rank if b.step == step)
    times, rest = divmod(batch.shapes["tokens"][0][0], now["micro_batch_size"])
    assert rest == 0 and 1 <= times <= now["sequence_length"] // length, (
        f"step {step}: {batch.shapes['tokens']} for a longest segment of {longest}"
    )
    return {
        "sequence_length": length,
        "micro_batch_size": now["micro_batch_size"] * times,
        "global_batch_size": now["global_batch_size"] * times,
    }


def rung(length: int, longest: int) -> int:
    """The shortest row for a segment: six binary digits, at least a 128th of the sequence, at most the sequence."""
    least = max(longest, (length - 1) // 128 + 1)
    step = 1
    while least > 64 * step:
        step *= 2
    return min(length, -(-least // step) * step)


def bucket(length: int, multiple: int, longest: int) -> int:
    """The row length of a bucketed step, given its longest segment: the sequence length, halved while the segment
    fits."""
    for _ in range(7):
        if length % 2 or length // 2 % multiple or length // 2 < longest:
            break
        length //= 2
    return length
