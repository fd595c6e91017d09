"""The sidecar reads 16-bit ids in place, where they lie in a file. The loader sends the others."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any, Dict

import pytest

import contract
import corpus
from conftest import Stage
from harness import DEADLINE, processes_of

SETTING: Dict[str, Any] = {
    "version": 1,
    "tokenizer": {"name": "gpt2"},
    "sequence_length": 512,
    "global_batch_size": 8,
    "stop": {"epochs": 1},
    "mixture": {"weights": {"s": 1}},
    "sources": {"s": {"format": "megatron", "path": "ids/x"}},
}
TOLD = "the loader sends the tokens of a file that this process cannot read in place"


def is_open_in_sidecar(directory: Path, name: str) -> bool:
    """Reads /proc again if the sidecar closes a file meanwhile."""
    over = time.monotonic() + DEADLINE
    while time.monotonic() < over:
        for pid in processes_of(directory):
            with contextlib.suppress(OSError):
                if b"sidecar" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    return any(os.readlink(fd).endswith(name) for fd in Path(f"/proc/{pid}/fd").iterdir())
    raise AssertionError("there is no sidecar")


@pytest.mark.parametrize("dtype, change", [("u2", ""), ("u2", "touch"), ("u2", "move"), ("i4", "")])
def test_in_place(binary: Path, tmp_path: Path, dtype: str, change: str) -> None:
    """The batches are those of the documents. After a change of the file's mode, the loader finds the same content, and
    names the new identity. The loader can read a file that was moved away, because it has it open; the sidecar cannot
    open it."""
    at = tmp_path / "corpus"
    corpus.write_megatron(at / "ids" / "x", corpus.token_documents(7, 900, 700, 50000), dtype)
    (tmp_path / "runs").mkdir()
    stage = Stage(binary, at, tmp_path / "runs")
    documents = stage.documents(SETTING)
    directory = stage.new_dir()
    (hold := Path(f"{directory}.hold")).touch()
    with stage.up(SETTING, 1, directory) as run:
        trainers = run.start(pause=2.0, hold=str(hold), tensors=True)
        trainers.collect(until=0)
        assert is_open_in_sidecar(directory, "x.bin") == (dtype == "u2")
        if change == "touch":
            os.chmod(at / "ids" / "x.bin", 0o640)
        if change == "move":
            os.rename(at / "ids" / "x.bin", at / "x.moved")
        hold.unlink()
        delivered = trainers.collect()
        assert run.wait() == 0, run.stderr()
        told = [line for line in run.stderr().splitlines() if TOLD in line]
        if change == "touch":  # a reply may name the earlier identity if the change comes between it and the read
            told = [line for line in told if "the file changed: its inode was changed" not in line]
        assert bool(told) == (change == "move"), run.stderr()
    contract.check_batches(delivered, documents, SETTING)
    contract.check_complete(delivered, documents, 1, SETTING)
