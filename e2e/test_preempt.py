"""Preemption: a scheduler sends SIGTERM to all processes of a job. Trainers end their step and save it."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any, Dict, List

import pytest

from conftest import variant
from harness import DEADLINE, Delivered, Run
from trainer import Orders

RANKS = 2
MIXTURE = variant({"global_batch_size": 8, "micro_batch_size": 2, "stop": {"steps": 40}})
LAST = 12  # the step that trainers end
SOON = 4.0  # seconds from the last trainer's end to that of `up`


def preempt(run: Run) -> None:
    """Sends SIGTERM to `up` and to all its roles."""
    for pid in [run.process.pid, *run.children()]:
        os.kill(pid, signal.SIGTERM)


def content(delivered: Delivered) -> List[Dict[Any, str]]:
    return [{(b.step, b.microbatch): b.digest for b in rank} for rank in delivered.ranks]


@pytest.mark.parametrize("to_all", [True, False])
def test_trainers_end_their_step(stage: Any, to_all: bool) -> None:
    """The next run continues from the saved state. Together, both have the batches of a run without preemption."""
    golden = content(stage.delivered(MIXTURE, RANKS))
    orders = Orders(pause=0.05, states=True, leave_after=(LAST, 1), patience=DEADLINE)
    with stage.up(MIXTURE, RANKS, stage.new_dir()) as run:
        trainers = run.start(orders)
        trainers.collect(until=3)
        if to_all:
            preempt(run)
        else:
            run.process.send_signal(signal.SIGTERM)
        first = trainers.collect()
        left = time.monotonic()
        assert run.wait() == 0, run.stderr()
        assert time.monotonic() - left < SOON, run.stderr()
        assert first.ends == ["left"] * RANKS, (first.ends, run.stderr())
        assert "SIGTERM: " in run.stderr()
    state = json.loads(first.ranks[0][-1].state)
    with stage.up(MIXTURE, RANKS, stage.new_dir()) as run:
        second = run.train(state=state)
        assert run.wait() == 0, run.stderr()
    assert [{**a, **b} for a, b in zip(content(first), content(second))] == golden


@pytest.mark.parametrize("how", ["grace", "second signal"])
def test_the_grace_ends(stage: Any, how: str) -> None:
    """Trainers that go on get the reason when the grace is over, and at a second signal."""
    args = ["--grace", "2s"] if how == "grace" else []
    with stage.up({**MIXTURE, "stop": {"steps": 10_000}}, RANKS, stage.new_dir(), args=args) as run:
        trainers = run.start(pause=0.02, patience=30.0)
        trainers.collect(until=3)
        began = time.monotonic()
        run.process.send_signal(signal.SIGTERM)
        if how == "second signal":
            time.sleep(1)
            assert run.process.poll() is None
            run.process.send_signal(signal.SIGTERM)
        delivered = trainers.collect()
        assert run.wait() == 0, run.stderr()
        took = time.monotonic() - began
    assert [end[1] for end in delivered.ends] == ["RunError"] * RANKS, delivered.ends
    assert (2 if how == "grace" else 1) <= took < 15, took


def test_without_trainers_the_stop_is_at_once(stage: Any) -> None:
    with stage.up(MIXTURE, RANKS, stage.new_dir()) as run:
        began = time.monotonic()
        run.process.send_signal(signal.SIGTERM)
        assert run.wait() == 0, run.stderr()
        assert time.monotonic() - began < SOON
        assert "SIGTERM" not in run.stderr()
