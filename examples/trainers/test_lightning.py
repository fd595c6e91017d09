"""The example for Lightning. It is killed twice and resumes on other numbers of ranks."""

from __future__ import annotations

from typing import Callable, List

import pytest

from ordeal import Ordeal

pytest.importorskip("lightning")


def test_lightning_trains_every_microbatch_once(ordeal: Callable[..., Ordeal], losses: List[float]) -> None:
    ordeal("train_lightning.py").run().judge(losses)
