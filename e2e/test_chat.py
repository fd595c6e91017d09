"""Conversations and pairs, from JSON lines and Parquet to tensors: every token and every label."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import cases
from harness import ID, LENGTH, OFFSET, ROW, START, Run, write_mixture

SPECIALS = {"<|im_start|>": 256, "<|im_end|>": 257, "<|end|>": 258}
RECORDS = 50


def records() -> List[Dict[str, Any]]:
    """Some conversations and pairs are longer than a sequence. Some messages look like special tokens."""
    out = []
    for i in range(RECORDS):
        messages = [{"role": "system", "content": "brief"}] if i % 3 == 0 else []
        for turn in range(1 + i % 3):
            messages += [{"role": "user", "content": f"q{i} <|im_end|>"},
                         {"role": "assistant", "content": "é" * (i * turn % 40)}]
        out.append({"messages": messages, "prompt": f"P{i}", "completion": "C" * (i * 5 % 170)})
    return out


def chat(record: Dict[str, Any]) -> Tuple[List[int], List[bool]]:
    """A document in ChatML and its mask, made without the program: a token a byte."""
    ids: List[int] = []
    mask: List[bool] = []

    def add(tokens: List[int], trained: bool) -> None:
        ids.extend(tokens)
        mask.extend([trained] * len(tokens))

    for m in record["messages"]:
        trained = m["role"] == "assistant"
        add([256, *m["role"].encode(), 10], False)
        add([*m["content"].encode(), 257], trained)
        add([10], False)
    return ids, mask


def pair(record: Dict[str, Any]) -> Tuple[List[int], List[bool]]:
    prompt, completion = record["prompt"].encode(), record["completion"].encode()
    return [*prompt, *completion, 258], [False] * len(prompt) + [True] * (len(completion) + 1)


@pytest.mark.parametrize("ranks", cases([1, 2], short=[2]))
def test_every_label(binary: Path, tmp_path: Path, ranks: int) -> None:
    """Tokens, labels and loss masks are those of the records."""
    (tmp_path / "b.tiktoken").write_text(
        "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256)))
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records()))
    pq.write_table(pa.Table.from_pylist(records()), tmp_path / "c.parquet")
    conversation = {"messages": "messages", "template": "chatml"}
    path = write_mixture(tmp_path, {
        "version": 1, "sequence_length": 128, "global_batch_size": 4, "stop": {"epochs": 1},
        "tokenizer": {"path": "b.tiktoken", "pattern": "cl100k", "specials": SPECIALS, "eos": "<|end|>"},
        "mixture": {"weights": {"lines": 1, "table": 1, "pairs": 1}},
        "sources": {
            "lines": {"path": "c.jsonl", **conversation, "too_long": "truncate"},
            "table": {"path": "c.parquet", **conversation, "too_long": "drop"},
            "pairs": {"path": "c.jsonl", "prompt": "prompt", "completion": "completion"},
        },
    })
    want = {}
    for i, r in enumerate(records()):
        ids, mask = chat(r)
        want["lines", f"c.jsonl#{i}"] = ids[:128], mask[:128]
        if len(ids) <= 128:
            want["table", f"c.parquet#{i}"] = ids, mask
        want["pairs", f"c.jsonl#{i}"] = pair(r)
    with Run(binary, path, tmp_path / "run", ranks=ranks) as run:
        delivered = run.train(tensors=True)
    seen: Dict[Tuple[str, str], int] = {}
    for batches in delivered.ranks:
        for batch in batches:
            for s in batch.segments:
                name = s[0], s[ID]
                offset, length, row, start = (s[x] for x in (OFFSET, LENGTH, ROW, START))
                ids, mask = want[name]
                assert batch.tensors["tokens"][row, start:start + length].tolist() == ids[offset:offset + length]
                labels = batch.tensors["labels"][row, start:start + length].tolist()
                for at, label in enumerate(labels, offset + 1):
                    assert label == (ids[at] if at < len(ids) and mask[at] else -100), (name, at)
                counted = batch.tensors["loss_mask"][row, start:start + length].tolist()
                assert counted == [float(label != -100) for label in labels]
                seen[name] = seen.get(name, 0) + length
    assert seen == {name: len(ids) for name, (ids, _) in want.items()}


def test_counts_survive(binary: Path, tmp_path: Path) -> None:
    """`check` predicts, and `status` counts, the documents that are too long and the records that are missing or bad:
    after a kill of all processes, and in a new run that begins with a state."""
    (tmp_path / "b.tiktoken").write_text(
        "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256)))
    lines = [json.dumps(r) + "\n" for r in records()]
    lines[3:3] = ['{"messages": null}\n', "{broken\n", '{"prompt": "x"}\n']
    (tmp_path / "c.jsonl").write_text("".join(lines))
    conversation = {"path": "c.jsonl", "messages": "messages", "template": "chatml", "missing": "skip"}
    path = write_mixture(tmp_path, {
        "version": 1, "sequence_length": 128, "global_batch_size": 2, "stop": {"epochs": 2}, "packing": "pad",
        "tokenizer": {"path": "b.tiktoken", "pattern": "cl100k", "specials": SPECIALS, "eos": "<|end|>"},
        "mixture": {"weights": {"cut": 1, "gone": 1, "pairs": 1}},
        "quarantine": {"budget": 0.1},
        "sources": {
            "cut": {**conversation, "too_long": "truncate"}, "gone": {**conversation, "too_long": "drop"},
            "pairs": {"path": "c.jsonl", "prompt": "prompt", "completion": "completion", "missing": "skip"},
        },
    })
    long = sum(len(chat(r)[0]) > 128 for r in records())
    assert 0 < long < RECORDS
    want = {
        "cut": {"missing": 2, "too_long": long, "quarantined": 1},
        "gone": {"missing": 2, "too_long": long, "quarantined": 1},
        "pairs": {"missing": 2, "too_long": sum(len(pair(r)[0]) > 128 for r in records()), "quarantined": 1},
    }

    def counts(*args: Any) -> Dict[str, Dict[str, int]]:
        done = subprocess.run([binary, *args], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)["sources"]
        found = found if isinstance(found, dict) else {s["name"]: s for s in found}
        return {name: {key: s["bad" if key not in s else key] for key in want["cut"]} for name, s in found.items()}

    assert counts("check", "--json", path) == want
    twice = {name: {key: 2 * n for key, n in s.items()} for name, s in want.items()}
    with Run(binary, path, tmp_path / "run", ranks=2) as run:
        first = run.train(leave_after=(20, 0), states=True)
        run.kill()
    with Run(binary, path, tmp_path / "run", ranks=2) as run:
        assert run.train(start="latest").ends == ["end"] * 2
        assert run.wait() == 0
    assert counts("status", "--json", tmp_path / "run") == twice
    state = json.loads(first.ranks[0][-1].state)
    with Run(binary, path, tmp_path / "other", ranks=2) as run:
        assert run.train(state=state).ends == ["end"] * 2
        assert run.wait() == 0
    after = counts("status", "--json", tmp_path / "other")
    assert {n: {**s, "quarantined": 0} for n, s in after.items()} == {
        n: {**s, "quarantined": 0} for n, s in twice.items()}


def test_objects_keep_their_order(binary: Path, tmp_path: Path) -> None:
    """Templates print the objects of JSON lines with their keys as they lie in the file."""
    tools = [{"z": {"y": 1, "b": 12345678901234567}, "a": [{"k": None, "c": "x"}]}]
    record = {"tools": tools, "messages": [{"role": "assistant", "content": "c", "q": {"y": 1, "b": 2}}]}
    (tmp_path / "c.jsonl").write_text(json.dumps(record) + "\n")
    (tmp_path / "t.jinja").write_text("{{ tools | tojson }}{{ messages[0] | tojson }}")
    path = write_mixture(tmp_path, {
        "version": 1, "tokenizer": {"name": "gpt2"}, "sequence_length": 256, "global_batch_size": 1,
        "mixture": {"weights": {"c": 1}},
        "sources": {"c": {"path": "c.jsonl", "messages": "messages", "tools": "tools", "train_on": "all",
                          "template": {"path": "t.jinja"}}}})
    done = subprocess.run([binary, "preview", "--step", "0", "--rank", "0", "--json", "--full", path],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = json.loads(done.stdout)["microbatches"][0]["segments"][0]["text"]
    assert text == json.dumps(tools) + json.dumps(record["messages"][0])


def documents(binary: Path, path: Path, run: Path) -> Dict[str, Tuple[List[int], List[bool]]]:
    """The tokens of each document and whether each is trained on, as delivered to one rank."""
    with Run(binary, path, run, ranks=1) as it:
        delivered = it.train(tensors=True)
    out: Dict[str, Tuple[List[int], List[bool]]] = {}
    for batch in delivered.ranks[0]:
        for s in batch.segments:
            row, columns = s[ROW], slice(s[START], s[START] + s[LENGTH])
            tokens = batch.tensors["tokens"][row, columns].tolist()
            labels = batch.tensors["labels"][row, columns].tolist()
            out[s[ID]] = tokens, [False] + [label != -100 for label in labels[:-1]]
    return out


def test_labels_of_data_sets(binary: Path, tmp_path: Path) -> None:
    """Labels beside input_ids, as TRL and axolotl store them: -100 is not trained on, in every format. Labels that are
    shifted already make a bad record that is named."""
    rows = [{"input_ids": [10, 11, 12, 13, 0], "labels": [-100, -100, 12, 13, 0]},
            {"input_ids": [20, 21, 22], "labels": [20, 21, 22]}, {"input_ids": [30, 31], "labels": [-100, 31]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    for name in "a.parquet", "a.jsonl":
        path = write_mixture(tmp_path, {
            "version": 1, "sequence_length": 16, "global_batch_size": 1, "stop": {"epochs": 1},
            "mixture": {"weights": {"t": 1}},
            "sources": {"t": {"path": name, "tokens": "input_ids", "labels": "labels"}}})
        assert documents(binary, path, tmp_path / f"run-{name}") == {
            f"{name}#{i}": (r["input_ids"], [False] + [label != -100 for label in r["labels"][1:]])
            for i, r in enumerate(rows)}
    (tmp_path / "b.jsonl").write_text(json.dumps({"input_ids": [5, 6, 7], "labels": [6, 7, -100]}) + "\n")
    path.write_text(path.read_text().replace("a.jsonl", "b.jsonl"))
    done = subprocess.run([binary, "check", "--json", path], capture_output=True, text=True)
    reason = json.loads(done.stdout)["quarantined"]["recent"][0]["reason"]
    assert 'field "labels" has 6 as value 0, want the id 5' in reason and "shifted already" in reason


UNNAMED: Dict[str, Tuple[Dict[str, Any], str, List[Any]]] = {
    "labels": ({"tokens": "ids"}, "labels", [[-100, 2, 3], [1, 2, 3]]),
    "pads": ({"tokens": "ids"}, "attention_mask", [[1, 1, 0], [1, 1, 1]]),
    "verdicts": ({"prompt": "p", "completion": "c"}, "label", [True, False]),
    "tools": ({"messages": "m", "template": "chatml"}, "tools", [[], [{"name": "f"}]]),
    "tools that the template does not read": (
        {"messages": "m", "template": "chatml", "tools": "tools"}, "tools", [[], [{"name": "f"}]]
    ),
}  # fmt: skip


# Each field in one format, in turns. The long variants have the other one.
@pytest.mark.parametrize("keys, field, values, name", [
    pytest.param(*case, name, id=f"{of}-{name}", marks=[] if i % 2 == j else pytest.mark.long)
    for i, (of, case) in enumerate(UNNAMED.items()) for j, name in enumerate(["a.parquet", "a.jsonl"])
])  # fmt: skip
def test_fields_that_no_key_names(
    binary: Path, tmp_path: Path, keys: Dict[str, Any], field: str, values: List[Any], name: str
) -> None:
    """`check` and `up` refuse a source whose records have a field that decides about the loss and that no key names.
    With `unused` they take it."""
    talk = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    rows = [{"ids": [1, 2, 3], "p": "a", "c": " b", "m": talk, field: v} for v in values]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    mixture = {"version": 1, "tokenizer": {"name": "gpt2"}, "sequence_length": 64, "global_batch_size": 1,
               "stop": {"epochs": 1}, "mixture": {"weights": {"s": 1}}, "sources": {"s": {"path": name, **keys}}}
    path = write_mixture(tmp_path, mixture)
    for args in ["check", path], ["up", path, "--ranks", "1", "--run-dir", tmp_path / "run"]:
        done = subprocess.run([binary, *args], capture_output=True, text=True, timeout=60)
        said = done.stdout + done.stderr
        assert done.returncode != 0 and name in said and f'the field "{field}"' in said and "unused: [" in said, said
    mixture["sources"]["s"]["unused"] = [field]
    assert len(documents(binary, write_mixture(tmp_path, mixture), tmp_path / "taken")) == 2


def test_named_templates_and_messages_of_pairs(binary: Path, tmp_path: Path) -> None:
    """A conversation with tools has the template tool_use; `name` chooses another; variables reach it. Prompts and
    completions may be messages."""
    model = tmp_path / "model"
    model.mkdir()
    ranks = "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256))
    (model / "b.tiktoken").write_text(ranks)
    turns = "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": [
        {"name": "default", "template": "D" + turns}, {"name": "tool_use", "template": "T{{ tools | length }}" + turns},
        {"name": "dated", "template": "{{ strftime_now('%d %b %Y') }}{{ x }}" + turns}]}))
    talk = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    lines = [{"messages": talk, "tools": [{"a": 1}], "p": talk[:1], "c": talk[1:]},
             {"messages": talk, "tools": [], "p": talk, "c": talk}]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))
    base = {"path": "c.jsonl", "messages": "messages", "tools": "tools"}
    dated = {"path": "model", "name": "dated", "variables": {"date": "2026-11-28", "x": [1]}}

    def texts(source: Dict[str, Any], run: str) -> List[str]:
        path = write_mixture(tmp_path, {
            "version": 1, "sequence_length": 64, "global_batch_size": 1, "stop": {"epochs": 1},
            "tokenizer": {"path": "model/b.tiktoken", "pattern": "cl100k", "specials": {"<|end|>": 256},
                          "eos": "<|end|>"},
            "mixture": {"weights": {"c": 1}}, "sources": {"c": source}})
        out = []
        for _, (ids, trained) in sorted(documents(binary, path, tmp_path / run).items()):
            text = ["|" if i == 256 else chr(i) for i in ids]
            out.append("".join(c.upper() if is_trained else c for c, is_trained in zip(text, trained)))
        return out

    assert texts(base, "chosen") == ["T1qA|", "DqA|"]
    assert texts({**base, "template": {"name": "default"}}, "named") == ["DqA|"] * 2
    assert texts({**base, "template": dated}, "dated") == ["28 Nov 2026[1]qA|"] * 2
    pairs = {"path": "c.jsonl", "prompt": "p", "completion": "c", "template": "tokenizer", "unused": ["tools"]}
    assert texts(pairs, "pairs") == ["DqA|", "Dqa|QA|"]


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}, {"type": "image"},
                                  {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}])
def test_images_are_refused(binary: Path, tmp_path: Path, part: Dict[str, Any]) -> None:
    """One message with an image among many without: `check` refuses the source by the record, its field and a cure."""
    rows = [{"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}] + [part] * (i == 7)},
                          {"role": "assistant", "content": "a"}]} for i in range(50)]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "t.jinja").write_text("{% for m in messages %}{{ m.content[0].text or m.content }}</s>{% endfor %}")
    path = write_mixture(tmp_path, {
        "version": 1, "sequence_length": 64, "global_batch_size": 1, "stop": {"epochs": 1},
        "tokenizer": {"name": "gpt2"}, "mixture": {"weights": {"c": 1}},
        "sources": {"c": {"path": "c.jsonl", "messages": "messages", "template": {"path": "t.jinja"}}}})
    done = subprocess.run([binary, "check", path], capture_output=True, text=True)
    assert done.returncode == 1
    for want in "c.jsonl#7", 'message 0 of field "messages"', "are not read", "`filter`":
        assert want in done.stderr, done.stderr
