"""The examples for bare PyTorch and its ecosystem. Each is killed twice and resumes on other numbers of ranks."""

from __future__ import annotations

from typing import Callable, List

import pytest

from ordeal import Ordeal


@pytest.mark.parametrize("script", ["train_ddp.py"])
def test_every_microbatch_is_trained_once(ordeal: Callable[..., Ordeal], losses: List[float], script: str) -> None:
    ordeal(script).run().judge(losses)
