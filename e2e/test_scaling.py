"""The number of loaders follows the work: a slow source gets loaders, and gives them back when ranks need less."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from conftest import variant
from harness import DEADLINE, Delivered, Trainers
from test_failover import Watch

RANKS = 2
BATCHES = {"global_batch_size": 8, "stop": {"steps": 400}, "reliability": {"shadows": 0}}
SLOW = "loader/tokenise/before=sleep:60ms@0"  # for each record, in every loader


@pytest.fixture(scope="module")
def golden(stage: Any) -> Delivered:
    return stage.delivered(variant({**BATCHES, "loaders": 2}), RANKS)


def loaders(trainers: Trainers, least: int, most: int) -> Callable[[Dict[str, Any]], bool]:
    """Whether so many loaders are there, all of them read, and the run wishes no others."""

    def found(status: Dict[str, Any]) -> bool:
        trainers.drain()
        there = {role["name"] for role in status["roles"] if role["role"] == "loader"}
        readers = {stripe["loader"] for stripe in status["stripes"]}
        return least <= len(there) <= most and readers == there and status["scaling"]["wished"] == len(there)

    return found


def test_loaders_follow_the_work(stage: Any, tmp_path: Path, golden: Delivered) -> None:
    hold = tmp_path / "hold"
    with stage.up(variant({**BATCHES, "loaders": "1-4"}), RANKS, env={"MILLRACE_FAILPOINTS": SLOW}) as run:
        watch = Watch(stage, run)
        trainers = watch.start(pause=0.5, hold=str(hold), patience=DEADLINE)
        watch.until(loaders(trainers, 2, 4), within=DEADLINE)  # the ranks wait for the slow source
        hold.touch()
        watch.until(loaders(trainers, 1, 1), within=3 * DEADLINE)  # a step takes a second: one loader is enough
        hold.unlink()
        delivered = trainers.collect()
        assert delivered.ends == ["end"] * RANKS, run.stderr()
        assert run.wait(DEADLINE) == 0, run.stderr()
        assert "scale: 1 loaders instead of" in run.stderr(), run.stderr()
    assert delivered.bytes() == golden.bytes()
