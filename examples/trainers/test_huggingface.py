"""The examples for Hugging Face's libraries. Each is killed twice and resumes on other numbers of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, List

import pytest

from ordeal import Ordeal, uninterrupted

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def llama_losses(binary: Path, mixture: Path, tmp_path_factory: pytest.TempPathFactory) -> List[float]:
    """The loss of each step of a bare loop over the model of train_hf.py, with a mask for each document."""
    from train_hf import make_llama

    def logits(llama, batch):
        segments = batch["segment_ids"]
        alone = (segments[:, :, None] == segments[:, None, :]).tril()[:, None]
        return llama(
            input_ids=batch["tokens"], position_ids=batch["position_ids"], attention_mask=alone, use_cache=False
        ).logits

    return uninterrupted(binary, mixture, tmp_path_factory.mktemp("llama"), make_llama, logits)


def test_the_trainer_trains_every_microbatch_once(ordeal: Callable[..., Ordeal], llama_losses: List[float]) -> None:
    ordeal("train_hf.py").run().judge(llama_losses, tolerance=1e-5)  # transformers computes losses in float32


def test_accelerate_trains_every_microbatch_once(ordeal: Callable[..., Ordeal], losses: List[float]) -> None:
    ordeal("train_accelerate.py").run().judge(losses)
