"""Fixtures of the examples' tests: the program, a small dataset, and the losses of an uninterrupted training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Callable, List

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "clients" / "python" / "src")]

from ordeal import Ordeal, find_binary, uninterrupted, write_data  # noqa: E402


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return find_binary(tmp_path_factory.mktemp("bin"))


@pytest.fixture(scope="session")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def losses(binary: Path, mixture: Path, tmp_path_factory: pytest.TempPathFactory) -> List[float]:
    """The loss of each step, of a training without interruption."""
    return uninterrupted(binary, mixture, tmp_path_factory.mktemp("reference"))


@pytest.fixture
def ordeal(binary: Path, mixture: Path, tmp_path: Path) -> Callable[..., Ordeal]:
    """Makes the ordeal of a script: ordeal("train_ddp.py").run().judge(losses)."""

    def make(script: str, *arguments: str, at: Path = tmp_path) -> Ordeal:
        return Ordeal(binary, mixture, at, script, arguments)

    return make
