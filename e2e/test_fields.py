"""Documents of templates, of columns of ids and with missing fields; init and inspect."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import oracle
from harness import ID, LENGTH, OFFSET, ROW, SOURCE, START, Delivered, Run, write_mixture

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
             "loss_mask": [int(j > i % 5) for j in range(3 + i % 20)],
             "seq_start_id": list(range(0, 3 + i % 20, 2 + i % 7))} for i in range(RECORDS)]


def write(directory: Path) -> Dict[str, Any]:
    (directory / "qa.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records()))
    table = pa.table({name: pa.array([row[name] for row in columns()], pa.list_(pa.int32()))
                      for name in ("input_ids", "loss_mask", "seq_start_id")})
    pq.write_table(table, directory / "ids.parquet")
    return {
        "version": 1, "seed": 3, "tokenizer": {"name": "gpt2"}, "sequence_length": 64, "global_batch_size": 4,
        "stop": {"epochs": 1}, "mixture": {"weights": {"qa": 1, "ids": 1}},
        "sources": {
            "qa": {"path": "qa.jsonl", "text": "{title}\n\n{meta.body}", "missing": "skip",
                   "filter": 'lang == "en"'},
            "ids": {"path": "ids.parquet", "tokens": "input_ids", "mask": "loss_mask",
                    "starts": "seq_start_id"},
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
            if identifier.startswith("ids"):  # A row has several sequences, and a label is never of another one.
                row_of = columns()[int(identifier.split("#")[1])]
                starts = row_of["seq_start_id"]
                mask = [0 if j in starts else m for j, m in enumerate(row_of["loss_mask"])]
                assert not set(starts) & set(range(offset + 1, offset + length)), "a segment has two sequences"
            assert batch.tensors["position_ids"][row, start:start + length].tolist() == list(range(length))
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
    assert "tokens: input_ids, mask: loss_mask, starts: seq_start_id" in done.stdout and "text: title" in done.stdout
    (tmp_path / "mixture.yaml").write_text(done.stdout)
    check = subprocess.run([binary, "check", "mixture.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert check.returncode == 0, check.stderr
    done = subprocess.run([binary, "inspect", "qa.jsonl", "--json"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    fields = {f["name"]: f for f in json.loads(done.stdout)["fields"]}
    assert sorted(fields) == ["lang", "meta", "title"]
    assert fields["title"]["present"] == RECORDS and fields["meta"]["kinds"] == ["object of body"]


PASSED = 200


def passing(directory: Path) -> Dict[str, Any]:
    """Sources that pass fields to the trainer: of each kind, in global order and in blocks, and one without fields."""
    rows = [
        {"text": f"document {i} " * (1 + i % 60), "lang": ["en", "de"][i % 2], "n": i, "q": i / 3,
         "meta": {"url": f"https://a.b/?x={i}&y=<é>", "tags": ["a", str(i)]}} for i in range(PASSED)
    ]
    for row in rows[::7]:
        del row["lang"]
    lines = "".join(json.dumps(r) + "\n" for r in rows)
    (directory / "a.jsonl").write_text(lines)
    with gzip.open(directory / "b.jsonl.gz", "wt") as f:
        f.write(lines)
    pq.write_table(pa.Table.from_pylist([{"ids": list(range(i % 90)), "id": f"row {i}"} for i in range(PASSED)]),
                   directory / "c.parquet", row_group_size=30)
    return {
        "version": 1, "seed": 3, "tokenizer": {"name": "gpt2"}, "sequence_length": 64, "global_batch_size": 8,
        "stop": {"epochs": 1}, "loaders": 2, "mixture": {"weights": {"a": 1, "b": 1, "c": 1, "d": 1}},
        "sources": {
            "a": {"path": "a.jsonl", "fields": ["n", "lang", "meta.url"]},
            "b": {"path": "b.jsonl.gz", "fields": ["q", "meta"], "filter": "n != 5"},
            "c": {"path": "c.parquet", "tokens": "ids", "fields": ["id"]},
            "d": {"path": "a.jsonl"},
        },
    }


def passed(source: str, i: int) -> Optional[Dict[str, Any]]:
    """The fields of a record, made without the program."""
    url = f"https://a.b/?x={i}&y=<é>"
    lang = None if i % 7 == 0 else ["en", "de"][i % 2]
    return {
        "a": {"n": i, "lang": lang, "meta.url": url},
        "b": {"q": i / 3, "meta": {"url": url, "tags": ["a", str(i)]}},
        "c": {"id": f"row {i}"},
    }.get(source)


def check_passed(delivered: Delivered) -> int:
    """Compares the fields of every segment; returns the number of segments that are not a document's first."""
    later = 0
    for batches in delivered.ranks:
        for batch in batches:
            assert len(batch.fields) == len(batch.segments)
            for s, got in zip(batch.segments, batch.fields):
                assert got == passed(s[SOURCE], int(s[ID].split("#")[1])), s
                later += s[OFFSET] > 0
    return later


@pytest.mark.parametrize("shuffle, fault", [
    ("global", ""),
    pytest.param("blocks", "", marks=pytest.mark.long),
    pytest.param("global", "loader/reply/before=kill@9", marks=pytest.mark.long),
    ("global", "loader/arena=torn@60"),
    ("blocks", "sidecar/fetch/after=kill@40"),
])  # fmt: skip
def test_fields_reach_the_trainer(binary: Path, tmp_path: Path, shuffle: str, fault: str) -> None:
    """Every segment has its record's fields, through kills. A resumed run on other ranks has them, too."""
    mixture = {**passing(tmp_path), "shuffle": shuffle}
    path = write_mixture(tmp_path, mixture)
    env = {"MILLRACE_FAILPOINTS": fault} if fault else {}
    with Run(binary, path, tmp_path / "run", ranks=2, env=env) as run:
        delivered = run.train(states=True, patience=30.0)
        assert delivered.ends == ["end"] * 2, f"{delivered.ends}\n{run.stderr()}"
    assert check_passed(delivered) > 50
    if fault:
        return
    middle = [b for b in delivered.ranks[0] if b.microbatch == b.num_microbatches - 1][4]
    with Run(binary, path, tmp_path / "again", ranks=1) as run:
        resumed = run.train(state=json.loads(middle.state))
    check_passed(resumed)
    content = delivered.content()
    assert {step: digest for step, digest in content.items() if step > middle.step} == resumed.content()


def test_preview_and_limit(binary: Path, tmp_path: Path) -> None:
    """preview shows the fields. A record with too many bytes of them is quarantined with the numbers."""
    path = write_mixture(tmp_path, passing(tmp_path))
    done = subprocess.run([binary, "preview", "--step", "0", "--rank", "0", "--json", path], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    segments = [s for m in json.loads(done.stdout)["microbatches"] for s in m["segments"]]
    assert segments
    for s in segments:
        assert s.get("fields") == passed(s["source"], int(s["id"].split("#")[1]))
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x", "lang": "é" * 3000}) + "\n")
    path = write_mixture(tmp_path, {
        "version": 1, "tokenizer": {"name": "gpt2"}, "sequence_length": 64, "global_batch_size": 8,
        "mixture": {"weights": {"a": 1}}, "sources": {"a": {"path": "a.jsonl", "fields": ["n", "lang"]}}})
    done = subprocess.run([binary, "check", path], capture_output=True, text=True)
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "a.jsonl#0" in said, said
    assert '`fields` take 6020 bytes, of which "lang" takes 6010; the limit is 4096' in said, said
