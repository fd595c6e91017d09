"""The realised mixture, counted on delivered batches, stays within its bounds at the end of every step."""

from __future__ import annotations

import collections
from fractions import Fraction
from typing import Any

import pytest

import contract
from conftest import cases, variant
from harness import tokens_by_source

# Tokens: twice the longest segment. Samples with constant weights: one document, by Tijdeman's theorem. Samples with
# changing weights: two documents, because a rule does not have later weights.
SCHEDULES = {
    "constant": {"weights": {"plain": 0.4, "packed": 0.15, "frames": 0.15, "tables": 0.2, "books": 0.1}},
    "skewed": {"weights": {"plain": 100, "packed": 1, "frames": 0.5, "tables": 3, "books": 0.01}},
    "milestones": {
        "schedule": [
            {"from_step": 0, "weights": {"plain": 1, "packed": 0, "frames": 1, "tables": 1, "books": 0}},
            {"from_step": 7, "weights": {"plain": 1, "packed": 5, "frames": 0, "tables": 1, "books": 2}},
            {"from_step": 19, "weights": {"plain": 0, "packed": 1, "frames": 3, "tables": 0, "books": 1}},
        ]
    },
    "ramp": {
        "schedule": [
            {"from_step": 0, "weights": {"plain": 8, "packed": 1, "frames": 1, "tables": 1, "books": 1}},
            {
                "from_step": 5,
                "weights": {"plain": 1, "packed": 1, "frames": 3, "tables": 1, "books": 6},
                "ramp": "linear",
                "over_steps": 20,
            },
        ]
    },
    "tokens": {
        "schedule": [
            {"from_tokens": 0, "weights": {"plain": 8, "packed": 1, "frames": 1, "tables": 1, "books": 1}},
            {
                "from_tokens": 20000,
                "weights": {"plain": 1, "packed": 1, "frames": 3, "tables": 1, "books": 6},
                "ramp": "linear",
                "over_tokens": 50000,
            },
        ]
    },
}


# Property tests of the mixing package go over all of them. The short form has every schedule, each in one unit.
@pytest.mark.parametrize("name, unit", [
    pytest.param(name, unit, id=f"{name}-{unit}", marks=[] if i % 2 == j else pytest.mark.long)
    for i, name in enumerate(SCHEDULES) for j, unit in enumerate(["tokens", "samples"])
])  # fmt: skip
def test_bounds(stage: Any, name: str, unit: str) -> None:
    """Over endless sources, across milestones and ramps, from step 0 to every step. No segment waits."""
    mixture = variant({"stop": {"steps": 35}, "carry": 0, "mixture": {"unit": unit, **SCHEDULES[name]}})
    delivered = stage.delivered(mixture, 2)
    longest = max(s[5] for s in delivered.segments())
    bound = 2 * longest if unit == "tokens" else 1 if "weights" in SCHEDULES[name] else 2
    found = contract.deviations(delivered, mixture)
    assert len(found) == 35
    for step, deviation, source in found:
        assert deviation <= bound, (
            f"step {step}: {source} is {float(deviation):.2f} {unit} from its target, {bound} are allowed"
        )


@pytest.mark.parametrize("unit", cases(["tokens", "samples"], short=["tokens"]))
def test_bounds_with_exhaustion(stage: Any, unit: str) -> None:
    """When a source is exhausted, the others share its weight and grow by their new shares from then on."""
    mixture = variant({"carry": 0, "mixture": {"unit": unit, **SCHEDULES["constant"]}})
    delivered, documents = stage.delivered(mixture, 2), stage.documents(mixture)
    ended = contract.exhausted_at(delivered, documents, 1)
    longest = max(s[5] for s in delivered.segments()) if unit == "tokens" else 1
    first = min(ended.values())
    for step, deviation, source in contract.deviations(delivered, mixture, until=first):
        assert deviation <= 2 * longest, f"step {step}: {source} is {float(deviation):.2f} from its target"
    # Only whole steps are compared, because the change happens between two documents of a step. Both ends of a range
    # of steps may deviate by the bound.
    steps, checked = delivered.steps(), 0
    milestones = sorted({*ended.values(), max(steps)})
    for a, b in zip(milestones, milestones[1:]):
        active = {n: w for n, w in contract.weights_at(mixture, 0, 0).items() if ended.get(n, b) >= b}
        total = sum(active.values())
        got: Any = collections.Counter()
        for step in range(a + 1, b):
            got.update(contract.charges(steps[step], mixture))
            assert set(got) <= set(active)
            for source, weight in active.items():
                deviation = abs(got[source] - weight / total * sum(got.values()))
                assert deviation <= 4 * longest, (
                    f"steps {a + 1} … {step}: {source} is {float(deviation):.2f} from its share"
                )
            checked += 1
    assert checked > 0


def test_totals(stage: Any) -> None:
    """Over a long run the shares equal the weights, to a thousandth."""
    mixture = variant({"stop": {"steps": 150}})
    got = tokens_by_source(stage.delivered(mixture, 1).segments())
    for source, weight in contract.weights_at(mixture, 0, 0).items():
        assert abs(Fraction(got[source], sum(got.values())) - weight) < Fraction(1, 1000)
