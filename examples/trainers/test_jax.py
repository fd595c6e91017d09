"""JAX with Orbax: killed twice, resumed on other numbers of processes."""

from __future__ import annotations

import socket
from typing import Callable

import pytest

from ordeal import Life, Ordeal

pytest.importorskip("jax")
pytest.importorskip("orbax.checkpoint")


@pytest.fixture(autouse=True)
def coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", f"127.0.0.1:{free.getsockname()[1]}")


def test_every_microbatch_is_trained_once(
    ordeal: Callable[..., Ordeal], tmp_path_factory: pytest.TempPathFactory
) -> None:
    losses = ordeal("train_jax.py", at=tmp_path_factory.mktemp("whole")).run([Life(1)]).losses()
    assert losses[-1] < losses[0] - 0.5, "the model does not learn"
    ordeal("train_jax.py").run().judge(losses)
