"""The labels of each step that count in the loss: every rank of every topology knows their number before it has them.
The number is counted again from the labels of all ranks. Documents without a label are bad records."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Dict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import cases, variant
from contract import IGNORED
from harness import DEADLINE, Delivered, command
from inputs import checked
from test_axes import losses
from test_cluster import running
from test_hosts import finished, on_loopback, spread
from trainer import Orders

LENGTH = 64


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations, ids with masks, packed documents and pairs. Many are longer than a sequence, and are cut."""
    at, rng = tmp_path_factory.mktemp("trained"), random.Random(5)
    with open(at / "talks.jsonl", "w") as f:
        for i in range(300):
            turns = []
            for k in range(2 * (1 + i % 4)):
                words = " ".join(f"w{rng.randrange(50)}" for _ in range(rng.choice((1, 3, 9, 30))))
                turns.append({"role": ("user", "assistant")[k % 2], "content": words})
            f.write(json.dumps({"messages": turns}) + "\n")
    ids = [[rng.randrange(40_000) for _ in range(rng.choice((2, 9, 60, 64, 65, 200, 333)))] for _ in range(300)]
    mask = [[rng.random() < 0.6 for _ in x] for x in ids]
    for x in mask:
        x[-1] = True
    starts = [sorted({0, *(rng.randrange(len(x)) for _ in range(len(x) // 20))}) for x in ids]
    table = {"ids": pa.array(ids, pa.list_(pa.int32())), "mask": mask, "starts": pa.array(starts, pa.list_(pa.int32()))}
    pq.write_table(pa.table(table), at / "ids.parquet", row_group_size=40)
    with open(at / "pairs.jsonl", "w") as f:
        for i in range(200):
            f.write(json.dumps({"p": f"question {i} ", "good": "g " * (1 + i % 17), "bad": "b " * (1 + i % 9)}) + "\n")
    return at


def mixture_of(data: Path, **change: Any) -> Dict[str, Any]:
    """Half of the sources leave tokens out of the loss; the last one does not."""
    cp = change.get("parallelism", {}).get("cp", 1) > 1
    sources: Dict[str, Any] = {
        "talks": {"path": str(data / "talks.jsonl"), "messages": "messages", "template": "chatml"},
        "masked": {"path": str(data / "ids.parquet"), "tokens": "ids", "mask": "mask"},
        "books": variant({})["sources"]["books"],
    }
    if not cp:  # these exclude context parallelism
        sources["packed"] = {"path": str(data / "ids.parquet"), "tokens": "ids", "starts": "starts",
                             "unused": ["mask"]}
        if change.get("packing") != "concat":
            pair = {"prompt": "p", "chosen": "good", "rejected": "bad"}
            sources["pairs"] = {"path": str(data / "pairs.jsonl"), **pair}
    return variant({
        "sources": sources, "mixture": {"weights": {name: 1 for name in sources}}, "sequence_length": LENGTH,
        "global_batch_size": 8, "micro_batch_size": 1, "stop": {"steps": 12}, "pad_multiple": 4 if cp else 1, **change,
    })


def counted(delivered: Delivered, tp: int = 1, cp: int = 1, dp: int = 1) -> None:
    """Each batch of each rank has the number of labels of its step. Some labels are left out, and some are not."""
    want = {step: labels for step, (_, labels) in losses(delivered, tp, cp, dp).items()}
    assert len(want) == 12
    trained = everything = 0
    for batches in delivered.ranks:
        for b in batches:
            assert b.step_loss_tokens == want[b.step], f"step {b.step}: {b.step_loss_tokens}, want {want[b.step]}"
    for b in delivered.ranks[0]:
        assert b.tensors is not None
        trained += int((b.tensors["labels"] != IGNORED).sum())
        everything += int((b.tensors["tokens"] != 0).sum())
    assert 0 < trained < everything


# dp, cp, tp, pp, and further settings
CASES: Dict[str, Any] = {
    "dp": (4, 1, 1, 1, {}),
    "dp-tp-pp": (1, 1, 2, 2, {}),
    "dp-cp": (2, 2, 1, 1, {}),
    "varlen": (2, 1, 1, 1, {"layout": "varlen"}),
    "concat": (2, 1, 1, 1, {"packing": "concat"}),
    "carry": (2, 1, 1, 1, {"carry": 40, "window": 3}),
    "stages": (2, 1, 1, 1, {"stages": [{"from_step": 4, "sequence_length": 48, "global_batch_size": 8}]}),
    "pieces": (2, 1, 1, 1, {"long_documents": "shuffle"}),
    "blocks": (2, 1, 1, 1, {"shuffle": "blocks"}),
}


@pytest.mark.parametrize("case", cases(CASES, short=["dp-tp-pp", "dp-cp", "concat", "stages", "pieces", "blocks"]))
def test_every_rank_knows_the_labels_of_a_step(stage: Any, data: Path, case: str) -> None:
    dp, cp, tp, pp, change = CASES[case]
    mixture = mixture_of(data, parallelism={"tp": tp, "cp": cp, "pp": pp}, **change)
    if case in ("stages", "pieces"):  # pairs need one length, and starts no pieces
        for name in ("pairs", "packed"):
            mixture["sources"].pop(name, None)
            mixture["mixture"]["weights"].pop(name, None)
    delivered = stage.delivered(mixture, dp * cp * tp * pp, tensors=True)
    counted(delivered, tp, cp, dp)


@pytest.mark.needs("etcd")
@pytest.mark.parametrize("pp", [1, 2])
def test_hosts_that_lack_tokens_know_them(stage: Any, tmp_path: Path, data: Path, pp: int) -> None:
    """No host has all tokens of a step."""
    mixture = mixture_of(data, parallelism={"tp": 1, "cp": 1, "pp": pp})
    with running(stage, tmp_path) as member:
        with spread(stage, mixture, on_loopback(f"http://{member.address}", tmp_path)) as both:
            delivered = both.start(Orders(tensors=True)).collect()
            finished(both, delivered)
    counted(delivered, dp=4 // pp)


def test_known_lengths_and_a_resume_change_nothing(stage: Any, tmp_path: Path, data: Path) -> None:
    """With lengths from an index, and from a state on other ranks in another directory, steps have the same numbers."""
    mixture = mixture_of(data, index_dir=str(tmp_path / "index"))
    alone = stage.delivered(mixture, 1, tensors=True)
    counted(alone)
    want = {b.step: b.step_loss_tokens for b in alone.ranks[0]}
    command(stage.binary, "index", str(stage.mixture(mixture)), "--lengths")
    with stage.up(mixture, 2) as run:
        first = run.train(states=True, leave_after=(5, 3))
        state = json.loads(first.ranks[0][-1].state or "")
    with stage.up(mixture, 2) as run:
        rest = run.train(state=state)
        assert rest.ends == ["end"] * 2 and run.wait(DEADLINE) == 0, run.stderr()
    for batches in (*first.ranks, *rest.ranks):
        for b in batches:
            assert b.step_loss_tokens == want[b.step]
    assert rest.ranks[0][0].step == 6


TALK = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
NOTHING: Dict[str, Any] = {
    "roles": (
        {"c": TALK},
        {"messages": "c", "role": "from", "content": "value", "template": "chatml"},
        ['"human" and "gpt"', 'trains on "assistant"', "roles: {gpt: assistant}"],
    ),
    "truncate": (
        {"messages": [{"role": "user", "content": "q " * 80}, {"role": "assistant", "content": "a"}]},
        {"messages": "messages", "template": "chatml", "too_long": "truncate"},
        ["too_long: truncate keeps 64 tokens", '"assistant"'],
    ),
    "no answer": (
        {"messages": [{"role": "user", "content": "q"}]},
        {"messages": "messages", "template": "chatml"},
        ['the roles "user"', "train_on: assistant"],
    ),
    "mask": ({"ids": [5, 6, 7], "m": [0, 0, 0]}, {"tokens": "ids", "mask": "m"}, ['field "m" is 0 for each']),
    "labels": (
        {"ids": [5, 6, 7], "l": [-100] * 3}, {"tokens": "ids", "labels": "l"}, ['field "l" is -100 for each'],
    ),
    "completion": ({"p": "question", "c": ""}, {"prompt": "p", "completion": "c"}, ['the completion "c" is empty']),
    "completion behind the end": (
        {"p": "question " * 80, "c": "x"}, {"prompt": "p", "completion": "c", "too_long": "truncate"},
        ["too_long: truncate keeps 64 tokens, and the completion is behind them"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOTHING)
def test_a_document_without_a_label_is_a_bad_record(stage: Any, tmp_path: Path, case: str) -> None:
    """`check` refuses a source of such documents. Among others, they are quarantined."""
    record, keys, words = NOTHING[case]
    good = {"roles": {"c": [{**TALK[0], "from": "assistant"}]}, "mask": {"ids": [5, 6], "m": [0, 1]},
            "labels": {"ids": [5, 6], "l": [-100, 6]}, "completion": {"p": "question", "c": " yes"},
            "completion behind the end": {"p": "question", "c": " yes"}}.get(
        case, {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})  # fmt: skip
    file = tmp_path / "a.jsonl"
    mixture = variant({
        "sources": {"t": {"path": str(file), **keys}}, "mixture": {"weights": {"t": 1}}, "sequence_length": LENGTH,
        "global_batch_size": 2, "micro_batch_size": 1, "stop": {"epochs": 1}, "quarantine": {"budget": 0.5},
    })
    mixture["tokenizer"] = {**mixture["tokenizer"], "add_eos": False}  # the end would be trained on
    file.write_text((json.dumps(record) + "\n") * 3)
    status, _, stderr = checked(stage, tmp_path, mixture)
    assert status == 1 and all(w in stderr for w in words), stderr
    file.write_text((json.dumps(record) + "\n") * 3 + (json.dumps(good) + "\n") * 7)
    status, report, stderr = checked(stage, tmp_path, mixture)
    assert status == 0, stderr
    assert report["quarantined"]["count"] == report["sources"][0]["bad"] == 3
    assert all(w in report["quarantined"]["recent"][0]["reason"] for w in words)
    with stage.up(mixture, 1) as run:
        out = run.train()
        assert out.ends == ["end"] and run.wait(DEADLINE) == 0, run.stderr()
        assert run.stderr().count("quarantined t ") == 3
    assert sum(b.loss_tokens for b in out.ranks[0]) == report["sources"][0]["trained_tokens"] > 0
