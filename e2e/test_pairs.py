"""Preference pairs, from JSON lines and Parquet to tensors: both segments side by side, with their masks and marks."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millrace
from conftest import cases
from harness import Run, write_mixture

SPECIALS = {"<|im_start|>": 256, "<|im_end|>": 257, "<|end|>": 258}
LENGTH, PAIRS = 160, 60


def texts() -> List[Dict[str, Any]]:
    return [
        {"p": f"question {i} ", "good": "g" * (1 + i * 7 % 50), "bad": "b" * (1 + i * 11 % 90), "n": i}
        for i in range(PAIRS)
    ]


def talks() -> List[Dict[str, Any]]:
    """TRL's form without a prompt: whole conversations that share their beginning."""
    out = []
    for i in range(PAIRS):
        first = [{"role": "user", "content": f"q{i}"}]
        out.append({
            "chosen": first + [{"role": "assistant", "content": "y" * (i % 13)}],
            "rejected": first + [{"role": "assistant", "content": "n" * (1 + i % 9)}],
        })
    return out


Half = Tuple[List[int], List[bool]]


def wanted() -> Dict[Tuple[str, str], Tuple[Half, Half]]:
    """The halves of each pair with their masks, made without the program: a token a byte."""

    def text(prompt: str, answer: str) -> Half:
        return [*prompt.encode(), *answer.encode(), 258], [False] * len(prompt) + [True] * (len(answer) + 1)

    def talk(messages: List[Dict[str, str]]) -> Half:
        ids: List[int] = []
        mask: List[bool] = []
        for m in messages:
            for tokens, trained in (([256, *m["role"].encode(), 10], False),
                                    ([*m["content"].encode(), 257], m["role"] == "assistant"), ([10], False)):
                ids += tokens
                mask += [trained] * len(tokens)
        return ids, mask

    out = {}
    for i, r in enumerate(texts()):
        halves = [text(r["p"], r["good"]), text(r["p"], r["bad"])]
        room = LENGTH // 2
        lengths = [min(len(h[0]), max(room, LENGTH - len(o[0]))) for h, o in zip(halves, halves[::-1])]
        lengths[1] = min(len(halves[1][0]), LENGTH - lengths[0])
        cut = [(ids[:n], mask[:n]) for (ids, mask), n in zip(halves, lengths)]
        out["texts", f"t.jsonl#{i}"] = cut[0], cut[1]
    for i, r in enumerate(talks()):
        out["talks", f"t.parquet#{i}"] = talk(r["chosen"]), talk(r["rejected"])
    return out


def mixture(directory: Path, layout: str) -> Path:
    (directory / "b.tiktoken").write_text(
        "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256)))
    (directory / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in texts()))
    pq.write_table(pa.Table.from_pylist(talks()), directory / "t.parquet")
    return write_mixture(directory, {
        "version": 1, "sequence_length": LENGTH, "global_batch_size": 4, "stop": {"epochs": 1}, "layout": layout,
        "tokenizer": {"path": "b.tiktoken", "pattern": "cl100k", "specials": SPECIALS, "eos": "<|end|>"},
        "mixture": {"weights": {"texts": 1, "talks": 1}},
        "cache": {"tokens": "1MiB", "dir": str(directory / "tokens")}, "index_dir": str(directory / "index"),
        "sources": {
            "texts": {"path": "t.jsonl", "prompt": "p", "chosen": "good", "rejected": "bad", "fields": ["n"]},
            "talks": {"path": "t.parquet", "chosen": "chosen", "rejected": "rejected", "template": "chatml"},
        },
    })


@pytest.mark.parametrize("layout", ["packed", "varlen"])
def test_every_pair(binary: Path, tmp_path: Path, layout: str) -> None:
    """Each pair comes once: two segments side by side in one row, with tokens, labels, positions and borders."""
    want, seen = wanted(), []
    with Run(binary, mixture(tmp_path, layout), tmp_path / "run") as run:
        with millrace.connect(run.sockets()[0], tensors="numpy") as loader:
            for batch in loader:
                segments, number = batch.segments, {}
                for i, s in enumerate(segments):
                    if s.pair == "chosen":
                        other = segments[i + 1]
                        assert (other.pair, other.id, other.row) == ("rejected", s.id, s.row)
                        assert (other.start, other.offset) == (s.start + s.length, s.length)
                        assert other.fields == s.fields
                        seen.append((s.source, s.id))
                    ids, mask = want[s.source, s.id][s.pair == "rejected"]
                    if s.source == "texts":
                        assert s.fields == {"n": int(s.id.split("#")[1])}
                    where = slice(s.start, s.start + s.length)
                    row = {k: batch[k][where] if layout == "varlen" else batch[k][s.row, where]
                           for k in ("tokens", "labels", "loss_mask", "position_ids")}
                    assert row["tokens"].tolist() == ids
                    label = [t if trained else -100 for t, trained in zip(ids[1:], mask[1:])] + [-100]
                    assert row["labels"].tolist() == label
                    assert row["loss_mask"].tolist() == [float(x != -100) for x in label]
                    assert row["position_ids"].tolist() == list(range(len(ids)))
                    number[s.row] = number.get(s.row, 0) + 1
                    if layout == "packed":
                        assert set(batch["segment_ids"][s.row, where].tolist()) == {number[s.row]}
                if layout == "varlen":
                    assert batch["cu_seqlens"].tolist()[: len(segments)] == [s.start for s in segments]
                assert batch.loss_tokens == int((batch["labels"] != -100).sum())
        assert run.wait() == 0
    assert sorted(seen) == sorted(want)


@pytest.mark.parametrize("layout", cases(["packed", "varlen"], short=["varlen"]))
def test_pairs_survive(binary: Path, tmp_path: Path, layout: str) -> None:
    """After a kill of all processes, each batch is the one of an undisturbed run, under two ranks. The later runs take
    documents from the token cache, and lengths from the index."""
    path = mixture(tmp_path, layout)
    with Run(binary, path, tmp_path / "whole", ranks=2) as run:
        whole = run.train()
        assert run.wait() == 0
    with Run(binary, path, tmp_path / "run", ranks=2) as run:
        first = run.train(leave_after=(5, 0))
        run.kill()
    with Run(binary, path, tmp_path / "run", ranks=2) as run:
        second = run.train(start="latest")
        assert second.ends == ["end"] * 2
    for part in (first, second):
        for slot, digest in part.bytes().items():
            assert whole.bytes()[slot] == digest
    assert set(first.bytes()) | set(second.bytes()) == set(whole.bytes())
