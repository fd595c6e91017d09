"""Bytes do not depend on timing, and content does not depend on topology."""

from __future__ import annotations

import json
import random
import shutil
from typing import Any, Dict

import pytest

from conftest import VARIANTS, cases, variant
from harness import LENGTH, OFFSET, command, content_digest

JITTER = {
    # Random delays of roles, at failpoints around waits of one role for another.
    "slow loaders": "loader-0:loader/offer/before=sleep:40ms@0;loader-1:loader/fetch/before=sleep:15ms@0",
    "slow planner": "orchestrator/journal/before=sleep:20ms@0;orchestrator/publish/before=sleep:30ms@2",
    "slow sidecar": "sidecar/filling=sleep:10ms@0;sidecar/committed=sleep:30ms@0",
}


@pytest.mark.parametrize("cores", cases(["1", "2", "7"], short=["1", "7"]))
def test_cores(stage: Any, cores: str) -> None:
    mixture = variant(VARIANTS["base"])
    assert (
        stage.delivered(mixture, 2, env={"GOMAXPROCS": cores}).bytes()
        == stage.delivered(mixture, 2, tensors=True).bytes()
    )


@pytest.mark.parametrize("loaders", cases([1, 2, 5, 7], short=[1, 7]))
def test_loaders(stage: Any, loaders: int) -> None:
    mixture = variant(VARIANTS["base"])
    assert (
        stage.delivered({**mixture, "loaders": loaders}, 2).bytes() == stage.delivered(mixture, 2, tensors=True).bytes()
    )


@pytest.mark.parametrize("slow", JITTER)
def test_timing(stage: Any, slow: str) -> None:
    mixture = variant(VARIANTS["base"])
    assert (
        stage.delivered(mixture, 2, env={"MILLRACE_FAILPOINTS": JITTER[slow]}).bytes()
        == stage.delivered(mixture, 2, tensors=True).bytes()
    )


@pytest.mark.parametrize("name", cases(["base", "samples"], short=["samples"]))
def test_index_cold_and_warm(stage: Any, name: str) -> None:
    """An index from earlier runs changes no byte."""
    mixture = {**variant(VARIANTS[name]), "index_dir": f"index-{name}"}
    cold = stage.delivered(mixture, 2, env={"COLD": "1"}).bytes()
    warm = stage.delivered(mixture, 2, env={"COLD": "0"}).bytes()
    shutil.rmtree(stage.corpus / f"index-{name}")
    assert cold == warm == stage.delivered(variant(VARIANTS[name]), 2, tensors=True).bytes()


# The long variants have one, four and eight ranks of each. test_axes and test_resume compare one rank for other
# mixtures, too. Constant rows have windows and buckets.
FEW = {
    ("base", 1), ("base", 8), ("samples", 1), ("samples", 4), ("varlen", 4), ("filtered", 4), ("stages", 8),
    ("concat", 4), ("constant rows", 4),
}  # fmt: skip


@pytest.mark.parametrize("name, ranks", [
    pytest.param(name, ranks, marks=[] if (name, ranks) in FEW else pytest.mark.long)
    for name in VARIANTS
    for ranks in (1, 4, 8)
])  # fmt: skip
def test_ranks(stage: Any, name: str, ranks: int) -> None:
    """Steps have the segments of those of two ranks, and all ranks of a step get the same number of microbatches."""
    mixture = variant(VARIANTS[name])
    delivered, reference = stage.delivered(mixture, ranks), stage.delivered(mixture, 2, tensors=True)
    assert delivered.content() == reference.content()
    strip = {step: sorted(s[:6] for s in segments) for step, segments in delivered.steps().items()}
    assert strip == {step: sorted(s[:6] for s in segments) for step, segments in reference.steps().items()}
    for step, counts in microbatches(delivered).items():
        assert len(set(counts)) == 1 and len(counts) == ranks, f"step {step}: microbatches {counts} of {ranks} ranks"


def microbatches(delivered: Any) -> Dict[int, list]:
    """By step, the number of microbatches of each rank. It equals the announced number of each batch."""
    out: Dict[int, list] = {}
    for batches in delivered.ranks:
        steps: Dict[int, int] = {}
        for b in batches:
            assert b.microbatch == steps.get(b.step, 0)
            steps[b.step] = b.microbatch + 1
        for b in batches:
            assert b.num_microbatches == steps[b.step]
        for step, n in steps.items():
            out.setdefault(step, []).append(n)
    return out


def test_seed(stage: Any) -> None:
    """Another seed gives another order of the same documents."""
    one, two = (stage.delivered({**variant({}), "seed": seed}, 1) for seed in (11, 12))
    assert one.content() != two.content()
    assert sorted((s[0], s[1], s[4]) for s in one.segments()) == sorted((s[0], s[1], s[4]) for s in two.segments())


def test_filters(stage: Any) -> None:
    """Every document that the filters keep is delivered once in one epoch, and no other. Segments that wait from before
    a stage are kept by its filters, so none waits here."""
    mixture = variant({**VARIANTS["filtered"], "carry": 0})
    delivered, documents = stage.delivered(mixture, 2, tensors=True), stage.documents(variant(VARIANTS["base"]))
    for s, step in ((s, step) for step, segments in delivered.steps().items() if 3 <= step < 6 for s in segments):
        assert s[0] != "tables" or s[OFFSET] > 0 or int(s[1].rsplit("#", 1)[1]) > 20, (step, s)
        assert s[0] != "frames" or s[OFFSET] > 0 or s[LENGTH] > 10, (step, s)
    kept = {
        "books": lambda record, tokens: tokens >= 20,
        "plain": lambda record, tokens: tokens > 3,
    }
    for source, keeps in kept.items():
        got = {s[1] for s in delivered.segments() if s[0] == source}
        want = {
            key
            for key, tokens in documents[source].items()
            if len(tokens) > 0 and keeps(int(key.rsplit("#", 1)[1]), len(tokens))
        }
        assert got == want and 0 < len(got) < len(documents[source]), source


@pytest.mark.parametrize("name", cases(VARIANTS, short=[name for name, _ in FEW]))
def test_plan_command(stage: Any, name: str) -> None:
    """`millrace plan` predicts every rank's segments."""
    mixture = variant(VARIANTS[name])
    delivered = stage.delivered(mixture, 2, tensors=True)
    last = max(delivered.steps()) + 1
    lines = command(
        stage.binary, "plan", stage.mixture(mixture), "--ranks", 2, "--steps", f"0..{last}", "--json"
    ).splitlines()
    plans = [json.loads(line) for line in lines]
    assert [p["step"] for p in plans] == list(range(last))
    assert {p["step"]: p["content_digest"] for p in plans} == delivered.content()
    keys = ["source", "id", "epoch", "ordinal", "offset", "length", "row", "start"]
    planned = {(p["step"], s["rank"], s["microbatch"], *(s[k] for k in keys)) for p in plans for s in p["segments"]}
    assert planned == {(step, rank, mb, *s) for (step, rank, mb), b in delivered.slots().items() for s in b.segments}
    for p in plans:
        assert p["content_digest"] == content_digest([tuple(s[k] for k in keys) for s in p["segments"]])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(25))
def test_random_timing(stage: Any, seed: int) -> None:
    """Random delays at random places in every role, with random cores, loaders and ranks."""
    rng = random.Random(seed)
    name, ranks = rng.choice(sorted(VARIANTS)), rng.choice([1, 2, 4, 8])
    places = [
        "loader/offer/before", "loader/fetch/before", "loader/fetch/after", "orchestrator/journal/before",
        "orchestrator/journal/after",
    ]
    places += [
        "orchestrator/publish/before", "sidecar/filling", "sidecar/pushed", "sidecar/commit/before",
        "sidecar/committed",
    ]
    points = ";".join(
        f"{place}=sleep:{rng.randrange(1, 60)}ms@{rng.choice([0, 1, 2, 5, 9])}" for place in rng.sample(places, 4)
    )
    env = {"MILLRACE_FAILPOINTS": points, "GOMAXPROCS": str(rng.choice([1, 2, 3, 8]))}
    reference = stage.delivered(variant(VARIANTS[name]), ranks)
    with stage.up({**variant(VARIANTS[name]), "loaders": rng.randrange(1, 8)}, ranks, env=env) as run:
        delivered = run.train(pause=rng.choice([0, 0, 0.005]))
        assert run.wait() == 0
    assert delivered.bytes() == reference.bytes()
