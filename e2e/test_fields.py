"""Documents of templates, of columns of ids and with missing fields; init and inspect."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pyarrow as pa
import pyarrow.parquet as pq

import oracle
from harness import ID, LENGTH, OFFSET, ROW, START, Run, write_mixture

RECORDS = 60


def records() -> List[Dict[str, Any]]:
    """Every fifth record lacks a body in another way, and one record in three is not English."""
    out = []
    for i in range(RECORDS):
        record: Dict[str, Any] = {"title": f"Title {i}", "meta": {"body": f"body {i} " * (1 + i % 7)},
                                  "lang": "de" if i % 3 == 1 else "en"}
        if i % 15 == 5:
            record["meta"]["body"] = None
        elif i % 15 == 10:
            del record["meta"]
        elif i % 15 == 0:
            record["meta"]["body"] = ""
        out.append(record)
    return out


def columns() -> List[Dict[str, Any]]:
    return [{"input_ids": [(7 * i + j) % 50000 for j in range(3 + i % 20)],
             "loss_mask": [int(j > i % 5) for j in range(3 + i % 20)]} for i in range(RECORDS)]


def write(directory: Path) -> Dict[str, Any]:
    (directory / "qa.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records()))
    table = pa.table({name: pa.array([row[name] for row in columns()], pa.list_(pa.int32()))
                      for name in ("input_ids", "loss_mask")})
    pq.write_table(table, directory / "ids.parquet")
    return {
        "version": 1, "seed": 3, "tokenizer": {"name": "gpt2"}, "sequence_length": 64, "global_batch_size": 4,
        "stop": {"epochs": 1}, "mixture": {"weights": {"qa": 1, "ids": 1}},
        "sources": {
            "qa": {"path": "qa.jsonl", "text": "{title}\n\n{meta.body}", "missing": "skip",
                   "filter": 'lang == "en"'},
            "ids": {"path": "ids.parquet", "tokens": "input_ids", "mask": "loss_mask"},
        },
    }


def documents() -> Dict[str, List[int]]:
    """The documents by id, made without the program."""
    (encoding, end), out = oracle.encoding("gpt2"), {}
    for i, r in enumerate(records()):
        body = r.get("meta", {}).get("body")
        if body and r["lang"] == "en":
            out[f"qa.jsonl#{i}"] = encoding.encode_ordinary(r["title"] + "\n\n" + body) + [end]
    for i, row in enumerate(columns()):
        out[f"ids.parquet#{i}"] = row["input_ids"]
    return out


def test_documents_and_masks(binary: Path, tmp_path: Path) -> None:
    """Every token and every label of a run is that of the records; skipped records spend no budget."""
    path = write_mixture(tmp_path, write(tmp_path))
    want, seen = documents(), {}
    with Run(binary, path, tmp_path / "run", ranks=1) as run:
        delivered = run.train(tensors=True)
    for batch in delivered.ranks[0]:
        for s in batch.segments:
            identifier, offset, length, row, start = (s[x] for x in (ID, OFFSET, LENGTH, ROW, START))
            tokens = batch.tensors["tokens"][row, start:start + length].tolist()
            labels = batch.tensors["labels"][row, start:start + length].tolist()
            document = want[identifier]
            assert tokens == document[offset:offset + length]
            mask = [1] * len(document)
            if identifier.startswith("ids"):
                mask = columns()[int(identifier.split("#")[1])]["loss_mask"]
            for i, label in enumerate(labels):
                at = offset + i + 1
                assert label == (document[at] if at < len(document) and mask[at] else -100), (identifier, at)
            seen[identifier] = seen.get(identifier, 0) + length
    assert seen == {name: len(tokens) for name, tokens in want.items()}


def test_check_counts_apart(binary: Path, tmp_path: Path) -> None:
    """check counts skipped records apart from refused and bad ones; without skip it says how a field is missing."""
    mixture = write(tmp_path)
    path = write_mixture(tmp_path, mixture)
    done = subprocess.run([binary, "check", "--json", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    qa = next(s for s in json.loads(done.stdout)["sources"] if s["name"] == "qa")
    missing = [i for i in range(RECORDS) if i % 5 == 0]
    refused = [i for i, r in enumerate(records()) if r["lang"] == "de"]
    assert (qa["missing"], qa["refused"], qa["bad"]) == (len(set(missing) - set(refused)), len(refused), 0)
    del mixture["sources"]["qa"]["missing"]
    done = subprocess.run([binary, "check", write_mixture(tmp_path, mixture)], capture_output=True, text=True)
    assert done.returncode == 1
    assert 'field "meta.body" is null' in done.stdout + done.stderr
    assert "missing: skip" in done.stderr


def test_init_and_inspect(binary: Path, tmp_path: Path) -> None:
    """check accepts what init writes; inspect shows the fields."""
    write(tmp_path)
    done = subprocess.run([binary, "init", "qa.jsonl", "ids.parquet"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "tokens: input_ids, mask: loss_mask" in done.stdout and "text: title" in done.stdout
    (tmp_path / "mixture.yaml").write_text(done.stdout)
    check = subprocess.run([binary, "check", "mixture.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert check.returncode == 0, check.stderr
    done = subprocess.run([binary, "inspect", "qa.jsonl", "--json"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    fields = {f["name"]: f for f in json.loads(done.stdout)["fields"]}
    assert sorted(fields) == ["lang", "meta", "title"]
    assert fields["title"]["present"] == RECORDS and fields["meta"]["kinds"] == ["object of body"]
