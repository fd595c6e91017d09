"""Tensor, context and pipeline parallelism: the batches of each world rank. Content is equal under every topology."""

from __future__ import annotations

import json
from typing import Any, Dict, Tuple

import numpy as np
import pytest

from conftest import cases, variant
from contract import IGNORED, check_batches, check_complete
from harness import Delivered, content_digest

# dp, cp, tp, pp
TOPOLOGIES = [(2, 2, 1, 1), (1, 2, 2, 1), (1, 1, 2, 2), (1, 4, 1, 1)]
LAYOUTS: Dict[str, Dict[str, Any]] = {
    "packed": {"pad_multiple": 8},
    "varlen": {"pad_multiple": 8, "layout": "varlen", "token_dtype": "int32", "balance": "dp"},
    "local": {"pad_multiple": 8, "layout": "varlen", "cp_local": 90, "cap_slack": 1.2},
}


def mixture_of(layout: str, cp: int = 1, tp: int = 1, pp: int = 1, **change: Any) -> Dict[str, Any]:
    return {**variant(LAYOUTS[layout]), "parallelism": {"tp": tp, "cp": cp, "pp": pp}, **change}


def run(
    stage: Any, layout: str, topology: Tuple[int, int, int, int], **change: Any
) -> Tuple[Delivered, Dict[str, Any]]:
    dp, cp, tp, pp = topology
    mixture = mixture_of(layout, cp, tp, pp, **change)
    return stage.delivered(mixture, dp * cp * tp * pp, tensors=True, states=True), mixture


def losses(delivered: Delivered, tp: int, cp: int, dp: int) -> Dict[int, Tuple[int, int]]:
    """By step: the sum and the number of all labels' losses over ranks with different tokens. A loss is an integer from
    token, label and position, so rounding hides no difference."""
    out: Dict[int, Tuple[int, int]] = {}
    for rank, batches in enumerate(delivered.ranks):
        if rank % tp or rank >= tp * cp * dp:
            continue
        for b in batches:
            assert b.tensors is not None
            t, l, p = (b.tensors[name].astype(np.uint64).ravel() for name in ("tokens", "labels", "position_ids"))
            counted = b.tensors["labels"].ravel() != IGNORED
            value = int(
                ((t * np.uint64(1_000_003)) ^ (l * np.uint64(7919)) ^ (p << np.uint64(20)))[counted].sum(
                    dtype=np.uint64
                )
            )
            loss, labels = out.get(b.step, (0, 0))
            out[b.step] = ((loss + value) % 2**64, labels + int(counted.sum()))
    return out


def named(topology: Tuple[int, int, int, int]) -> str:
    return "dp{}-cp{}-tp{}-pp{}".format(*topology)


# Every layout in the first topology, and every topology in one layout. The long variants have all pairs.
PAIRS = [
    pytest.param(topology, layout, id=f"{named(topology)}-{layout}",
                 marks=[] if i == 0 or i % len(LAYOUTS) == j else pytest.mark.long)
    for i, topology in enumerate(TOPOLOGIES) for j, layout in enumerate(LAYOUTS)
]  # fmt: skip


@pytest.mark.parametrize("topology, layout", PAIRS)
def test_slices(stage: Any, layout: str, topology: Tuple[int, int, int, int]) -> None:
    """Every element of every rank's tensors equals the oracle's. Ranks of one data-parallel rank differ only in their
    slices. Content, losses and denominators equal those of a run on one rank."""
    dp, cp, tp, pp = topology
    delivered, mixture = run(stage, layout, topology)
    alone, _ = run(stage, layout, (1, 1, 1, 1))
    documents = stage.documents(mixture)
    check_batches(delivered, documents, mixture)
    data = delivered.along(tp, cp, pp)
    assert data.content() == alone.content()
    check_complete(data, documents, 1, mixture)
    held = {holder for b in delivered.slots().values() for _, _, holder in b.slices}
    assert held <= {None, *range(cp)} and (len(held) == 3) == (layout == "local" and cp == 2), (
        f"documents are whole on {held}"
    )  # with cp 4, a microbatch has too few documents to balance the ranks
    slots = delivered.slots()
    for (step, rank, micro), b in slots.items():
        first = tp * (rank // tp % (cp * dp))  # the rank with the same slice: tp 0 of stage 0
        assert b.digest == slots[step, first, micro].digest, (
            f"step {step}: rank {rank} has other bytes than rank {first}"
        )
    want = losses(alone, 1, 1, 1)
    assert losses(delivered, tp, cp, dp) == want
    for b in slots.values():
        assert b.step_loss_tokens == want[b.step][1]


@pytest.mark.parametrize("topology", cases([(4, 1, 1, 1), (2, 2, 1, 1)], short=[(2, 2, 1, 1)]), ids=named)
def test_split_documents(stage: Any, topology: Tuple[int, int, int, int]) -> None:
    """Long documents span data-parallel ranks, and each slice is cut again for context-parallel ranks. The tensors
    equal the oracle's. Loss, denominators and content equal those of a run on one rank."""
    dp, cp, tp, pp = topology
    change = {
        "split_documents": {"above": "mean"},
        "cost": {"linear": 1, "quadratic": 30},
        "cap_slack": 2,
        "balance": "fsdp",
        "micro_batch_size": 1,
    }
    delivered, mixture = run(stage, "varlen", topology, **change)
    alone, _ = run(stage, "varlen", (1, 1, 1, 1))
    check_batches(delivered, stage.documents(mixture), mixture)
    assert max(parts for b in delivered.slots().values() for _, parts, _ in b.slices) > 1, "no document is split"
    assert losses(delivered, tp, cp, dp) == losses(alone, 1, 1, 1)
    once = {step: content_digest({s[:6] + (0, 0) for s in segments}) for step, segments in delivered.steps().items()}
    assert once == alone.content()
    assert all(b.step_loss_tokens == losses(alone, 1, 1, 1)[b.step][1] for b in delivered.ranks[0])


# Two sources, which give a third of the steps: runs of many ranks cost time for each batch of each rank.
FEW: Dict[str, Any] = {
    "sources": {name: variant({})["sources"][name] for name in ("frames", "books")},
    "mixture": {"weights": {"frames": 1, "books": 2}},
}


def test_broadcast(stage: Any) -> None:
    """With `broadcast` along tp and pp, only the first tensor-parallel rank of the first and last stage receives
    tensors. The others receive everything else and the rank that has the tensors."""
    tp, pp, cp = 2, 3, 2
    whole, _ = run(stage, "varlen", (1, cp, tp, pp), **FEW)
    expected = whole.bytes()
    for axes, source in (  # test_groups has pp alone
        (["tp", "pp"], lambda t, c, p: tp * (c + cp * (p if p == pp - 1 else 0))),
        (["tp"], lambda t, c, p: tp * (c + cp * p)),
    ):
        delivered, mixture = run(stage, "varlen", (1, cp, tp, pp), broadcast=axes, **FEW)
        check_batches(delivered, stage.documents(mixture), mixture)
        delivered.along(tp, cp, pp)
        for (step, rank, micro), b in delivered.slots().items():
            t, c, p = rank % tp, rank // tp % cp, rank // (tp * cp)
            assert b.source == (None if source(t, c, p) == rank else source(t, c, p)), f"rank {rank}: {b.source}"
            if b.source is None:
                assert b.digest == expected[step, rank, micro]


@pytest.mark.parametrize("layout", cases(["packed", "varlen"], short=["varlen"]))
def test_middle_stages_get_positions(stage: Any, layout: str) -> None:
    """With `middle_stages: positions`, the middle stage has no tokens, labels and mask. All other tensors are as
    before, and so are the batches of the first and the last stage."""
    tp, pp, cp = 1, 3, 2
    whole, _ = run(stage, layout, (1, cp, tp, pp), **FEW)
    delivered, mixture = run(stage, layout, (1, cp, tp, pp), middle_stages="positions", **FEW)
    check_batches(delivered, stage.documents(mixture), mixture)
    before = whole.slots()
    for slot, b in delivered.slots().items():
        assert b.tensors is not None and b.source is None and b.loss_tokens == before[slot].loss_tokens
        assert ("tokens" in b.tensors) == (b.place[3] != 1)
        assert b.segments == before[slot].segments and (b.place[3] == 1 or b.digest == before[slot].digest)


def test_shared_memory(stage: Any) -> None:
    """With `shared_memory`, the ranks of a group map one copy. Every rank receives the same bytes as without."""
    topology = (2, 1, 2, 2)
    whole, _ = run(stage, "varlen", topology, **FEW)
    for axes in (["tp"], ["pp"], ["tp", "pp"]):
        delivered, mixture = run(stage, "varlen", topology, shared_memory=axes, **FEW)
        check_batches(delivered, stage.documents(mixture), mixture)
        assert delivered.bytes() == whole.bytes()


# A chain of resumes: dp, cp, tp, pp, and the last step before the trainers leave.
CHAIN = [((2, 2, 1, 1), 1), ((1, 2, 2, 1), 3), ((1, 1, 2, 2), 4), ((4, 1, 1, 1), 6), ((1, 4, 1, 1), None)]


@pytest.mark.parametrize("change", [
    pytest.param({}, id="plain", marks=pytest.mark.long),
    pytest.param({"window": 3, "carry": 40}, id="window and carry"),
])  # fmt: skip
def test_resume_over_axes(stage: Any, change: Dict[str, Any]) -> None:
    """Each resume uses another topology. Together they have the content of one run."""
    alone, _ = run(stage, "packed", (1, 1, 1, 1), **change)
    assert max(alone.steps()) > 7
    state, content = None, {}
    for (dp, cp, tp, pp), until in CHAIN:
        mixture = mixture_of("packed", cp, tp, pp, **change)
        leave = (
            None if until is None else (until, mixture["global_batch_size"] // mixture["micro_batch_size"] // dp - 1)
        )
        with stage.up(mixture, dp * cp * tp * pp) as up:
            part = up.train(state=state, leave_after=leave, states=True)
        assert part.ends == ["left" if leave else "end"] * len(part.ends), part.ends
        content.update(part.along(tp, cp, pp).content())
        states = {batches[-1].state for batches in part.ranks}
        assert len(states) == 1, "ranks differ at a step's end"
        state = json.loads(states.pop())
    assert content == alone.content()
