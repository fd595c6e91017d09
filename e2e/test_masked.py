"""Samples that become unreadable after their plan was sealed: a shard is damaged after the length store has its
lengths.

The mixtures have `verify: off`, because a file with changed times ends the run. Real damage below the file system does
not change the times.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import corpus
from conftest import variant
from harness import ID, LENGTH, ROW, SOURCE, START, Delivered, Run, Segment, Slot, command, write_mixture

RANKS, STEPS = 2, 22
TEXTS = corpus.synthetic_texts(5, 400, 250)
BALLAST = "-" * 8192  # in each record, so that the file is longer than the part under its digest (1 MiB at each end)
MIDDLE = [n for n in range(150, 250) if len(TEXTS[n]) > 200]  # between both ends, long enough to be unique


def mixture(name: str, **change: Any) -> Dict[str, Any]:
    return variant({
        "sources": {"big": {"path": name}, "small": {"path": "small.jsonl"}},
        "mixture": {"weights": {"big": 3, "small": 1}},
        "global_batch_size": 8, "micro_batch_size": 2, "sequence_length": 512, "stop": {"steps": STEPS}, "loaders": 2,
        "quarantine": {"budget": 0.9}, "reliability": {"shadows": 1}, "verify": "off", **change,
    })  # fmt: skip


def written(directory: Path, name: str) -> Path:
    corpus.write_jsonl(directory / "small.jsonl", TEXTS[:300], odd=False)
    if name.endswith(".jsonl"):
        (directory / name).write_text("".join(json.dumps({"text": text, "ballast": BALLAST}) + "\n" for text in TEXTS))
    else:
        table = pyarrow.table({"text": TEXTS, "ballast": [BALLAST] * len(TEXTS)})
        pyarrow.parquet.write_table(
            table, directory / name, row_group_size=10, compression=None, use_dictionary=False, write_page_checksum=True
        )
    return directory / name


def whole_run(stage: Any, mixture: Path) -> Delivered:
    with Run(stage.binary, mixture, stage.new_dir(), RANKS) as run:
        out = run.train(tensors=True)
        assert out.ends == ["end"] * RANKS and run.wait() == 0, run.stderr()
    return out


def damaged(path: Path, record: int) -> bytes:
    """Damages a record in the file and returns the original bytes."""
    was = path.read_bytes()
    at = was.index(json.dumps(TEXTS[record]).encode() if path.suffix == ".jsonl" else TEXTS[record].encode())
    assert 1 << 20 < at < len(was) - (1 << 20)
    path.write_bytes(was[:at] + b"\x01" + was[at + 1 :])
    return was


def masked(golden: Delivered, bad: List[Tuple[int, Segment]]) -> Dict[Slot, Dict[str, np.ndarray]]:
    """The golden run's tensors with these segments masked: pad tokens without loss, everything else unchanged."""
    out = {
        slot: {name: a.copy() for name, a in b.tensors.items()}
        for slot, b in golden.slots().items()
        if b.tensors is not None
    }
    slots = golden.slots()
    for step, segment in bad:
        slot = next(s for s, b in slots.items() if s[0] == step and segment in b.segments)
        row, part = segment[ROW], slice(segment[START], segment[START] + segment[LENGTH])
        for name, value in (("tokens", PAD), ("labels", IGNORED), ("loss_mask", 0)):
            out[slot][name][row, part] = value
    return out


PAD, IGNORED = 0, -100  # the values of padding


def same(delivered: Delivered, expected: Dict[Slot, Dict[str, np.ndarray]]) -> None:
    for slot, batch in delivered.slots().items():
        for name, a in expected[slot].items():
            assert np.array_equal(batch.tensors[name], a), (slot, name, np.argwhere(batch.tensors[name] != a)[:9])


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_damaged_after_lengths(stage: Any, tmp_path: Path, name: str) -> None:
    """The sample is masked, and no other byte changes. A rollback delivers the same bytes, even after the file is
    repaired."""
    path = written(tmp_path, name)
    golden = whole_run(stage, write_mixture(tmp_path, mixture(name)))
    number = next(
        int(s[ID].split("#")[1])
        for step, ss in golden.steps().items()
        for s in ss
        if s[SOURCE] == "big" and step > 3 and int(s[ID].split("#")[1]) in MIDDLE
    )
    was = damaged(path, number)
    group = {f"{name}#{number}"} if name == "a.jsonl" else {f"{name}#{number // 10 * 10 + i}" for i in range(10)}
    bad = [(step, s) for step, ss in golden.steps().items() for s in ss if s[SOURCE] == "big" and s[ID] in group]
    with Run(stage.binary, write_mixture(tmp_path, mixture(name)), stage.new_dir(), RANKS) as run:
        first = run.train(tensors=True, states=True, leave_after=(STEPS - 2, 1))
        bad = [(step, s) for step, s in bad if step < STEPS - 1]
        same(first, masked(golden, bad))
        status = json.loads(command(stage.binary, "status", str(run.directory), "--json"))
        assert status["masked"] >= len(bad) and f"{name}#{number}" in {q["id"] for q in status["quarantined"]["recent"]}
        step = next(at for at, _ in bad if at > 3)
        path.write_bytes(was)
        state = json.loads(next(b.state for b in first.ranks[0] if b.step == step - 2 and b.microbatch == 1))
        second = run.train(state=state, tensors=True, leave_after=(STEPS - 2, 1))
        assert min(second.steps()) == step - 1
        same(second, masked(golden, bad))
        held = [
            json.loads(line)
            for line in command(stage.binary, "ledger", str(run.directory), "--step", str(step), "--json").splitlines()
        ]
        assert [h["attempt"] for h in held] == [1, 2]
        for h in held:
            assert {s["id"] for s in h["segments"] if s["masked"]} == {s[ID] for at, s in bad if at == step}
        lines = [line for line in run.stderr().splitlines() if line.startswith(f"quarantined big {name}#{number} ")]
        assert lines and all("masked" in line for line in lines), run.stderr()


def test_next_attempt_without_lengths(stage: Any, tmp_path: Path) -> None:
    """Between two attempts of one run directory, a sample of a delivered step is damaged, one that was quarantined is
    repaired, and the length store is lost. So loaders offer both otherwise. Each step keeps its segments."""
    path = written(tmp_path, "a.jsonl")
    golden = whole_run(stage, write_mixture(tmp_path, mixture("a.jsonl")))
    early = [s for step in range(2, 8) for s in golden.steps()[step] if s[SOURCE] == "big"]
    poor, late = [n for n in (int(s[ID].split("#")[1]) for s in early) if n in MIDDLE][:2]
    was = damaged(path, poor)
    file = write_mixture(tmp_path, mixture("a.jsonl", index_dir="index"))
    directory = stage.new_dir()
    with Run(stage.binary, file, directory, RANKS) as run:
        first = run.train(tensors=True, states=True, leave_after=(STEPS - 2, 1))
        assert f"quarantined big a.jsonl#{poor} " in run.stderr() and "masked" not in run.stderr()
    path.write_bytes(was)
    damaged(path, late)
    shutil.rmtree(tmp_path / "index")
    state = json.loads(next(b.state for b in first.ranks[0] if b.step == 0 and b.microbatch == 1))
    with Run(stage.binary, file, directory, RANKS) as run:
        second = run.train(state=state, tensors=True, leave_after=(STEPS - 2, 1))
        assert min(second.steps()) == 1 and f"quarantined big a.jsonl#{late} " in run.stderr(), run.stderr()
    gone = [(step, s) for step, ss in first.steps().items() for s in ss if s[:2] == ("big", f"a.jsonl#{late}")]
    assert gone and not any(s[ID] == f"a.jsonl#{poor}" for s in first.segments())
    same(second, masked(first, gone))


def test_budget_spent_after_sealing(stage: Any, tmp_path: Path) -> None:
    """More masked samples than the budget end the run. The error names the source."""
    path = written(tmp_path, "a.jsonl")
    golden = whole_run(stage, write_mixture(tmp_path, mixture("a.jsonl")))
    number = next(
        int(s[ID].split("#")[1]) for s in golden.segments() if s[SOURCE] == "big" and int(s[ID].split("#")[1]) in MIDDLE
    )
    damaged(path, number)
    with Run(
        stage.binary, write_mixture(tmp_path, mixture("a.jsonl", quarantine={"budget": 0})), stage.new_dir(), RANKS
    ) as run:
        delivered = run.train()
        assert run.wait() == 1
        reason = run.stderr().strip().splitlines()[-1]
    assert "big" in reason and "budget" in reason, reason
    assert all(end[1] == "RunError" and end[2] == reason for end in delivered.ends), delivered.ends
