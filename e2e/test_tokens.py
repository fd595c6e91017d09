"""The trainers' tensors, compared with independent readers and tiktoken."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import contract
from conftest import VARIANTS, variant


@pytest.mark.parametrize("name", VARIANTS)
def test_tensors(stage: Any, name: str) -> None:
    """Checks the tokens, labels, positions, masks and lengths of every batch. Each epoch has every document and label
    once."""
    mixture = variant(VARIANTS[name])
    documents = stage.documents(mixture)
    delivered = stage.delivered(mixture, ranks=2, tensors=True)
    contract.check_batches(delivered, documents, mixture)
    contract.check_cuts(delivered, documents, mixture)
    contract.check_complete(delivered, documents, mixture["stop"]["epochs"], mixture)
    contract.check_labels_once(delivered, documents)


def test_checks_can_fail(stage: Any) -> None:
    """Each of the checks above notices one wrong element."""
    mixture = variant(VARIANTS["base"])
    documents = stage.documents(mixture)
    good = stage.delivered(mixture, ranks=2, tensors=True)

    def spoiled(change: Any) -> Any:
        bad = copy.deepcopy(good)
        batch = next(b for b in bad.ranks[1] if b.segments and b.segments[0][5] > 1)
        change(batch, batch.segments[0])
        return bad

    def element(name: str, value: Any, column: int = 0) -> Any:
        def change(batch: Any, s: Any) -> None:
            batch.tensors[name][s[6], s[7] + column] = value

        return change

    for name, value in [
        ("tokens", 50256),
        ("labels", -100),
        ("position_ids", 3),
        ("segment_ids", 9),
        ("loss_mask", 0.5),
    ]:
        with pytest.raises(AssertionError):
            contract.check_batches(spoiled(element(name, value)), documents, mixture)
    with pytest.raises(AssertionError):
        contract.check_labels_once(spoiled(element("labels", -100)), documents)
    with pytest.raises(AssertionError):
        contract.check_complete(spoiled(lambda batch, s: batch.segments.remove(s)), documents, 1, mixture)
    with pytest.raises(AssertionError):
        contract.check_complete(spoiled(lambda batch, s: batch.segments.append(s)), documents, 1, mixture)
    wrong = variant({"mixture": {"weights": {**mixture["mixture"]["weights"], "plain": 0.5}}})
    assert max(d for _, d, _ in contract.deviations(good, wrong)) > 2 * mixture["sequence_length"]
