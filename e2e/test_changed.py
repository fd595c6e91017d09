"""A file that changes under a run, or between a run and its resume, is an error with its name. No changed byte is
served."""

from __future__ import annotations

import contextlib
import copy
import json
import time
from pathlib import Path
from typing import Any, Dict

import pytest

import contract
import corpus
from conftest import Stage
from harness import LOOK, SOON, Delivered, Run, command

# The file is longer than 2 MiB. A change in its middle keeps its size, its first MiB and its last MiB.
TEXTS = ["the quick brown fox jumps over a lazy dog by the river, number %06d of many. " % n * 8 for n in range(6000)]
SOURCES: Dict[str, Dict[str, Any]] = {
    "jsonl": {"path": "lines.jsonl"},
    "parquet": {"path": "table.parquet"},
    "megatron": {"format": "megatron", "path": "ids/x"},
}
FILES = {"jsonl": "lines.jsonl", "parquet": "table.parquet", "megatron": "ids/x.bin"}
SETTING: Dict[str, Any] = {
    "version": 1,
    "tokenizer": {"name": "gpt2"},
    "sequence_length": 512,
    "global_batch_size": 8,
    "mixture": {"weights": {"s": 1}},
    "limits": {"loader_memory": "64MiB", "sample_bytes": "1MiB"},
}


@pytest.fixture
def changing(binary: Path, tmp_path: Path) -> Stage:
    """A corpus of its own for each test, because the test changes it."""
    at = tmp_path / "corpus"
    corpus.write_jsonl(at / "lines.jsonl", TEXTS, odd=False)
    corpus.write_parquet(at / "table.parquet", TEXTS, "text", "none", 100)
    corpus.write_megatron(at / "ids" / "x", [[(d * 31 + k) % 900 for k in range(400)] for d in range(5000)], "u2")
    (tmp_path / "runs").mkdir()
    return Stage(binary, at, tmp_path / "runs")


def mixture(kind: str) -> Dict[str, Any]:
    return copy.deepcopy({**SETTING, "sources": {"s": SOURCES[kind]}})


def overwrite(path: Path) -> None:
    """Changes bytes in the middle third of a file in place. Records keep their number and their lengths in bytes."""
    with open(path, "r+b") as f:
        raw = f.read()
        third = len(raw) // 3
        middle = raw[third : 2 * third]
        assert len(raw) > 3 << 20
        f.seek(third)
        if path.suffix == ".bin":
            f.write(b"\x87\x03" * (third // 2))  # token 903, which no document has
        else:
            f.write(middle.replace(b"quick brown fox", b"quirk crown box"))


def planned(stage: Stage, directory: Path) -> int:
    return int(json.loads(command(stage.binary, "status", str(directory), "--json"))["planned"])


@pytest.mark.parametrize("kind", SOURCES)
def test_changed_under_a_run(changing: Stage, kind: str) -> None:
    setting = mixture(kind)
    documents = changing.documents(setting)
    directory = changing.new_dir()
    (hold := Path(f"{directory}.hold")).touch()
    with changing.up(setting, 1, directory) as run:
        trainers = run.start(pause=2.0, hold=str(hold), tensors=True)
        trainers.collect(until=0)
        until = time.monotonic() + SOON
        while planned(changing, directory) < 3 and time.monotonic() < until:
            time.sleep(LOOK)
        overwrite(changing.corpus / FILES[kind])
        hold.unlink()
        delivered = trainers.collect()
        assert run.wait() == 1
        reason = run.stderr().strip().splitlines()[-1]
    assert f"{FILES[kind]} of source s changed" in reason and "restore the file" in reason, reason
    assert delivered.ends[0][1] == "RunError" and delivered.ends[0][2].endswith(reason), delivered.ends
    assert 0 < len(delivered.ranks[0])
    contract.check_batches(delivered, documents, setting)


SHORT = {("jsonl", False), ("parquet", True), ("megatron", False)}


@pytest.mark.parametrize("kind, fresh", [
    pytest.param(kind, fresh, id=f"{'new' if fresh else 'same'} directory-{kind}",
                 marks=[] if (kind, fresh) in SHORT else pytest.mark.long)
    for fresh in (False, True) for kind in SOURCES
])  # fmt: skip
def test_changed_before_a_resume(changing: Stage, kind: str, fresh: bool) -> None:
    setting = mixture(kind)
    documents = changing.documents(setting)
    directory = changing.new_dir()
    with changing.up(setting, 1, directory) as before:
        first = before.train(states=True, leave_after=(3, 7))
    state = json.loads(first.ranks[0][-1].state or "")
    overwrite(changing.corpus / FILES[kind])
    resumed = changing.new_dir() if fresh else directory
    run = Run(changing.binary, changing.mixture(setting), resumed)
    try:
        run.__enter__()
    except AssertionError:  # `up` failed before a rank could connect
        assert run.process.returncode == 1
        delivered = Delivered([[]], [])
    else:
        with contextlib.ExitStack() as end:
            end.push(run.__exit__)
            delivered = run.train(state=state, tensors=True)
            assert run.wait() == 1
    reason = Path(f"{resumed}.stderr").read_text(encoding="utf-8").strip().splitlines()[-1]
    assert f"{FILES[kind]} of source s changed" in reason and "restore the file" in reason, reason
    assert all(name in ("RunError", "StartError") and told.endswith(reason) for _, name, told in delivered.ends), (
        delivered.ends
    )
    contract.check_batches(delivered, documents, setting)
