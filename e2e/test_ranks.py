"""A run refuses ranks that it does not serve at once. Trainers get an error soon after the run was stopped."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import millrace
import pytest

from conftest import variant
from harness import SOON, command

ENDLESS = {key: value for key, value in variant({"global_batch_size": 8}).items() if key != "stop"}


@pytest.mark.parametrize("ranks, served", [(1, "this run serves rank 0 alone"), (2, "this run serves ranks 0 to 1")])
def test_unserved_rank_is_refused(stage: Any, ranks: int, served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLRACE_SOCKET", raising=False)
    with stage.up(ENDLESS, ranks) as run:
        monkeypatch.setenv("MILLRACE_RUN_DIR", str(run.directory))
        for rank in (ranks, ranks + 6):
            monkeypatch.setenv("LOCAL_RANK", str(rank))
            began = time.monotonic()
            with pytest.raises(millrace.StartError, match=f"rank {rank}: {served}"):
                next(millrace.connect(tensors="numpy"))
            assert time.monotonic() - began < SOON


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_trainers_notice_a_stop(stage: Any, kind: signal.Signals) -> None:
    """Trainers that would wait 30 s for a dead `up` notice a stop within 2 s, each with the reason."""
    with stage.up(ENDLESS, 2, args=["--grace", "0s"]) as run:
        trainers = run.start(patience=30.0, pause=0.02)
        trainers.collect(until=3)
        run.process.send_signal(kind)
        assert run.wait() == 0, run.stderr()
        began = time.monotonic()
        delivered = trainers.collect()
        took = time.monotonic() - began
    assert [end[1] for end in delivered.ends] == ["RunError"] * 2, delivered.ends
    assert all("stopped" in end[2] for end in delivered.ends), delivered.ends
    assert took < 2
    stopped = json.loads(command(stage.binary, "status", str(run.directory), "--json"))
    assert not stopped["running"] and not stopped["ended"]
