"""The ends of runs: every document is delivered, and every rank ends with the same step."""

from __future__ import annotations

import re
from typing import Any

import pytest

import contract
import corpus
import oracle
from conftest import cases, variant
from harness import tokens_by_source


def padding_share(delivered: Any, step: int) -> float:
    batches = [b for b in delivered.slots().values() if b.step == step]
    return 1 - sum(s[5] for b in batches for s in b.segments) / sum(b.tensors["tokens"].size for b in batches)


@pytest.mark.parametrize("epochs", cases([1, 2], short=[2]))
@pytest.mark.parametrize("last", ["pad", "short", "drop"])
def test_last_step(stage: Any, epochs: int, last: str) -> None:
    """pad and short deliver everything, with equal content. drop leaves out the incomplete last step."""
    mixture = variant({"stop": {"epochs": epochs}, "last_step": last, "micro_batch_size": 1})
    documents = stage.documents(mixture)
    delivered = stage.delivered(mixture, 4, tensors=True)
    padded = stage.delivered({**mixture, "last_step": "pad"}, 4, tensors=True)
    steps, reference = delivered.steps(), padded.content()
    assert all({b.step for b in batches} == set(steps) for batches in delivered.ranks), "ranks end at different steps"
    if last == "drop":
        got = delivered.content()
        assert got == {step: reference[step] for step in got} and len(reference) - 1 <= len(got) <= len(reference)
        contract.check_batches(delivered, documents, mixture)
        return
    assert delivered.content() == reference
    contract.check_complete(delivered, documents, epochs, mixture)
    contract.check_batches(delivered, documents, mixture)
    end = max(steps)
    of_end = [b for b in delivered.slots().values() if b.step == end]
    numbers = {b.microbatch for b in of_end}
    filled = {b.microbatch for b in of_end if b.segments}
    assert numbers == set(range(of_end[0].num_microbatches))
    if last == "short":
        assert filled == numbers, "a microbatch that is padding on every rank was delivered"
    else:
        assert numbers == set(range(mixture["global_batch_size"] // 4)), "the last step is not filled up"


def test_stop_steps(stage: Any) -> None:
    mixture = variant({"stop": {"steps": 5}})
    whole = stage.delivered(variant({}), 2, tensors=True)
    delivered = stage.delivered(mixture, 2)
    assert list(delivered.steps()) == list(range(5))
    # `epochs` is part of the identity, `steps` is not. Here the sources repeat, and 5 steps end within their first
    # pass.
    assert delivered.content() == {step: d for step, d in whole.content().items() if step < 5}


def test_stop_tokens(stage: Any) -> None:
    """The end is the first complete step that reaches n document tokens."""
    n = 9000
    counts = [
        sum(s[5] for s in segments)
        for segments in stage.delivered(variant({"stop": {"tokens": n}}), 2).steps().values()
    ]
    assert sum(counts) >= n > sum(counts[:-1])


def test_repeat(stage: Any) -> None:
    """Without `epochs` an exhausted source repeats in another order, and the mixture stays."""
    mixture = variant({"stop": {"steps": 40}, "carry": 0})
    delivered = stage.delivered(mixture, 2)
    passes = {name: oracle.ordinals(mixture, name, of) for name, of in stage.documents(mixture).items()}
    books = passes["books"]
    epochs = {s[2] for s in delivered.segments()}
    assert epochs >= {0, 1}
    for s in delivered.segments():
        assert s[3] // passes[s[0]] == s[2], s
    first, second = (
        [s[3] % books for s in sorted(delivered.segments(), key=lambda s: s[3]) if s[0] == "books" and s[2] == e]
        for e in (0, 1)
    )
    ids = [
        [s[1] for s in sorted(delivered.segments(), key=lambda s: s[3]) if s[0] == "books" and s[2] == e]
        for e in (0, 1)
    ]
    assert first and second and ids[0][: len(ids[1])] != ids[1][: len(ids[0])]
    longest = max(s[5] for s in delivered.segments())
    for step, deviation, name in contract.deviations(delivered, mixture):
        assert deviation <= 2 * longest, f"step {step}: {name} is {float(deviation)} tokens from its target"


def exhausting(**kind: Any) -> Any:
    mixture = variant({})
    del mixture["stop"]
    for name, source in mixture["sources"].items():
        source["max_epochs"] = 1
        source["on_exhausted"] = kind.get(name, "renormalize")
    return mixture


def test_renormalize(stage: Any) -> None:
    """max_epochs with renormalize equals `epochs`: the run reads everything and ends by itself."""
    mixture = exhausting()
    delivered = stage.delivered(mixture, 2, tensors=True)
    contract.check_complete(delivered, stage.documents(mixture), 1, mixture)
    assert delivered.content() == stage.delivered(variant({}), 2, tensors=True).content()


def test_stop_with_source(stage: Any) -> None:
    """The source with `stop` is read to its end, and the run ends once the segments that wait are delivered."""
    mixture = exhausting(books="stop")
    mixture["mixture"]["weights"]["books"] = 0.5
    delivered = stage.delivered(mixture, 2)
    documents = stage.documents(mixture)
    ended = contract.exhausted_at(delivered, documents, 1)
    assert max(delivered.steps()) - 3 <= ended.get("books", 0) <= max(delivered.steps())
    all_tokens = {source: sum(map(len, of.values())) for source, of in documents.items()}
    assert tokens_by_source(delivered.segments())["plain"] < all_tokens["plain"]


def test_error_with_source(stage: Any) -> None:
    """With `error` the run delivers all complete steps and then fails on every rank."""
    mixture = exhausting(books="error")
    mixture["mixture"]["weights"]["books"] = 0.5
    with stage.up(mixture, 2) as run:
        delivered = run.train()
        assert run.wait() == 1
        reason = run.stderr().strip().splitlines()[-1]
    assert "books" in reason and "exhausted" in reason
    for end in delivered.ends:
        assert isinstance(end, tuple) and end[1] == "RunError" and "books" in end[2], end
    failed = re.search(r"plan step (\d+)", reason)
    assert failed and [turns[-1].step for turns in delivered.ranks] == [int(failed[1]) - 1] * 2, reason


def test_zero_weight(stage: Any) -> None:
    """A source of weight 0 stays unread. The run ends without it and reports it."""
    mixture = variant({})
    mixture["mixture"]["weights"]["books"] = 0
    with stage.up(mixture, 2) as run:
        delivered = run.train()
        assert run.wait() == 0
        said = run.stderr()
    documents = stage.documents(mixture)
    contract.check_complete(delivered, {name: of for name, of in documents.items() if name != "books"}, 1, mixture)
    assert "books" in said


def test_only_empty_documents(stage: Any) -> None:
    """Documents without tokens keep their ordinals and records. "" with add_eos is a document of one token."""
    corpus.write_jsonl(stage.corpus / "empties" / "e.jsonl", ["", "x", "", "", "y z", ""], odd=False)
    for eos in (False, True):
        mixture = variant(
            {
                "sources": {"e": {"path": "empties/e.jsonl"}},
                "mixture": {"weights": {"e": 1}},
                "tokenizer": {"name": "gpt2", "add_eos": eos},
            }
        )
        delivered = stage.delivered(mixture, 2, tensors=True)
        documents = stage.documents(mixture)
        assert len(documents["e"]) == 6
        contract.check_complete(delivered, documents, 1, mixture)
        contract.check_batches(delivered, documents, mixture)
        assert len(delivered.segments()) == (6 if eos else 2)
        assert len(delivered.steps()) == 1


@pytest.mark.parametrize(
    "path, root, want",
    [
        ("ids/a/*.jsonl", None, {"x.jsonl#0", "x.jsonl#1", "y.jsonl#0", "y.jsonl#1"}),
        ("ids/*/x.jsonl", None, {"a/x.jsonl#0", "a/x.jsonl#1", "b/x.jsonl#0", "b/x.jsonl#1"}),
        ("ids/a/x.jsonl", None, {"x.jsonl#0", "x.jsonl#1"}),
        ("ids/b", None, {"x.jsonl#0", "x.jsonl#1"}),
        (["ids/a/x.jsonl", "ids/a/*.jsonl"], None, {"x.jsonl#0", "x.jsonl#1", "y.jsonl#0", "y.jsonl#1"}),
        (["ids/a/x.jsonl", "ids/b/x.jsonl"], "ids", {"a/x.jsonl#0", "a/x.jsonl#1", "b/x.jsonl#0", "b/x.jsonl#1"}),
        ("ids/{a,b}/x.jsonl", None, {"a/x.jsonl#0", "a/x.jsonl#1", "b/x.jsonl#0", "b/x.jsonl#1"}),
    ],
)
def test_ids(stage: Any, path: Any, root: Any, want: Any) -> None:
    """Ids are paths below the root and record numbers. A file that two patterns match counts once."""
    for name in ("a/x", "a/y", "b/x"):
        corpus.write_jsonl(stage.corpus / "ids" / f"{name}.jsonl", [f"one of {name}", f"two of {name}"], odd=False)
    source = {"path": path, "format": "jsonl", **({"root": root} if root else {})}
    delivered = stage.delivered(
        variant({"sources": {"s": source}, "mixture": {"weights": {"s": 1}}, "global_batch_size": 2}), 1
    )
    assert sorted(s[1] for s in delivered.segments()) == sorted(want)
