"""A run on hosts with a network of their own, which fails. `make chaos-net` injects more faults."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import net
from conftest import variant
from harness import DEADLINE
from test_cluster import program
from trainer import Orders

MIXTURE = variant({"global_batch_size": 6, "micro_batch_size": 1, "stop": {"steps": 60}, "loaders": 1})


@pytest.mark.parametrize("name", ["leader host lost", "leader unplugged", "one way"])
def test_a_fault_changes_no_byte(stage: Any, tmp_path: Path, name: str) -> None:
    golden = stage.delivered(MIXTURE, len(net.TRAINING))
    with net.running(stage, tmp_path, program(), MIXTURE) as run:
        trainers = run.train(Orders(pause=0.2, patience=net.PATIENCE))
        trainers.collect(until=3)
        done = net.faults(MIXTURE)[name](run, random.Random(1))
        delivered = trainers.collect()
        assert delivered.ends == ["end"] * run.world, (name, done, delivered.ends, run.said())
        for up in run.runs.values():
            assert up.wait(DEADLINE) == 0, run.said()
        assert delivered.bytes() == golden.bytes(), (name, done)
