"""`millrace bench`: a run of all roles that is measured, and mock batches for a trainer of one's own."""

from __future__ import annotations

import json
import logging
import subprocess
import threading
from typing import Any, List

import pytest

import millrace
from conftest import variant
from harness import command

ENDLESS = variant(
    {"stop": {"steps": 1_000_000}, "global_batch_size": 8, "micro_batch_size": 2, "sequence_length": 192}
)


def test_a_run_is_measured(stage: Any) -> None:
    mixture = stage.mixture(ENDLESS)
    figures = json.loads(command(stage.binary, "bench", str(mixture), "--ranks", "2", "--seconds", "3", "--json"))
    assert not figures["mock"] and not figures["ended"] and figures["ranks"] == 2
    assert 2.9 < figures["seconds"] < 6 and figures["steps"] > 3
    batches_of_a_step = 4  # 8 sequences of 2
    assert figures["batches"] == pytest.approx(batches_of_a_step * figures["steps"], rel=0.2, abs=8)
    # A step holds 8 * 192 tokens at most, and packing leaves little room. Two steps may be in flight at an end.
    assert 0.7 * 8 * 192 * figures["steps"] < figures["tokens"] <= 8 * 192 * (figures["steps"] + 2)
    assert figures["tokens_per_second"] == pytest.approx(figures["tokens"] / figures["seconds"])
    assert 0 < figures["step_seconds"]["mean"] <= figures["seconds"]
    roles = {r["role"]: r for r in figures["roles"]}
    assert set(roles) >= {"loader", "orchestrator", "sidecar", "trainers"}
    assert 0 < sum(r["cores"] for r in roles.values()) <= figures["cpus"] + 0.2
    assert figures["limit"]
    work = {(a["role"], a["kind"]) for a in figures["activities"] if a["seconds"] > 0}
    assert work >= {("loader", "tokenise"), ("sidecar", "build")}, work


def test_mock_batches_are_the_first_step_again(stage: Any, caplog: pytest.LogCaptureFixture) -> None:
    mixture, directory = stage.mixture(ENDLESS), stage.new_dir()
    expected = []
    for rank in range(2):
        preview = command(stage.binary, "preview", str(mixture), "--ranks", "2", "--rank", str(rank), "--json")
        seen = json.loads(preview.splitlines()[0])
        expected.append([m["digest"] for m in seen["microbatches"]])
    bench = subprocess.Popen(
        [str(stage.binary), "bench", str(mixture), str(directory), "--ranks", "2", "--mock", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert bench.stderr is not None and bench.stderr.readline().startswith("ready")
    steps, taken = 5, [[], []]  # type: ignore[var-annotated]

    def train(rank: int, into: List[Any]) -> None:
        with millrace.connect(str(directory / f"rank-{rank}.sock"), tensors="numpy") as loader:
            for batch in loader:
                if batch.step == steps:
                    break
                into.append((batch.step, batch.microbatch, batch.digest))
            assert loader.state_dict()["mock"] is True

    with caplog.at_level(logging.WARNING, logger="millrace"):
        threads = [threading.Thread(target=train, args=(r, taken[r])) for r in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
    out, err = bench.communicate(timeout=30)  # it ends because its trainers have left
    assert bench.returncode == 0, err
    for rank in range(2):
        assert taken[rank] == [(s, m, d) for s in range(steps) for m, d in enumerate(expected[rank])]
    assert "mock" in caplog.text
    figures = json.loads(out)
    assert figures["mock"] and figures["steps"] == steps


def test_a_run_is_not_overwritten(stage: Any) -> None:
    directory = stage.new_dir()
    (directory / "journal").mkdir(parents=True)
    refused = subprocess.run(
        [str(stage.binary), "bench", str(stage.mixture(ENDLESS)), str(directory)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert refused.returncode == 2 and "holds a run" in refused.stderr
