"""Rows of `plan`, `ledger`, `mix show` and `status` as Parquet and Arrow files, read by pyarrow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

from conftest import variant
from harness import command

SHORT = variant({"stop": {"steps": 4}, "global_batch_size": 8, "micro_batch_size": 2, "sequence_length": 192})


def rows(stage: Any, ending: str, path: Path, *args: Any) -> List[Dict[str, Any]]:
    """Return the rows that a command writes to a file, and check that it prints nothing."""
    file = path / f"rows.{ending}"
    assert command(stage.binary, *map(str, args), "--to", str(file)) == ""
    table = pyarrow.parquet.read_table(file) if ending == "parquet" else pyarrow.feather.read_table(file)
    known = {"int64", "string", "bool", "double", "timestamp[us, tz=UTC]"}
    assert {str(f.type) for f in table.schema if not str(f.type).startswith("list<")} <= known, table.schema
    return [dict(row) for row in table.to_pylist()]


def answers(stage: Any, *args: Any) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in command(stage.binary, *map(str, args), "--json").splitlines()]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_rows(stage: Any, tmp_path: Path, ending: str) -> None:
    directory, mixture = stage.new_dir(), stage.mixture(SHORT)
    with stage.up(SHORT, 1, directory) as run:
        mix = rows(stage, ending, tmp_path, "mix", "show", directory)
        weights = {row["source"]: row["weight"] for row in mix if row["kind"] == "weight"}
        (shown,) = answers(stage, "mix", "show", directory)
        assert weights == shown["weights"]
        run.train()
        assert run.wait() == 0, run.stderr()

    for args in (["plan", mixture], ["plan", directory]):
        planned = rows(stage, ending, tmp_path, *args, "--steps", "1..3")
        want = [
            {"step": a["step"], "content_digest": a["content_digest"], "placement_digest": a["placement_digest"], **s,
             "changes": []}
            for a in answers(stage, *args, "--steps", "1..3") for s in a["segments"]
        ]  # fmt: skip
        assert planned == want and {r["step"] for r in planned} == {1, 2}

    held = rows(stage, ending, tmp_path, "ledger", directory, "--step", "2")
    (entry,) = answers(stage, "ledger", directory, "--step", "2")
    assert [{k: r[k] for k in entry["segments"][0]} for r in held] == entry["segments"]
    assert {(r["kind"], r["attempt"], r["complete"], r["acknowledged"]) for r in held} == {("segment", 1, True, True)}

    (status,) = answers(stage, "status", directory)
    for row in rows(stage, ending, tmp_path, "status", directory):
        source = status["sources"][row["source"]]
        assert row["step"] == status["step"] and row["stream"] == "train" and not row["running"]
        assert all(row[k] == source[k] for k in ("tokens", "samples", "epoch", "share", "shuffle"))
