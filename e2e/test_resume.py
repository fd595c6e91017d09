"""The changes between a state and the run that resumes from it, and the effect of each (docs/resume.md)."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Set, Tuple

import pytest

import corpus
import millrace
import oracle
from conftest import HERE, Stage
from harness import DEADLINE, EPOCH, ID, LENGTH, OFFSET, ORDINAL, SOURCE
from stages import by_step

BATCH = 24
SOURCES = ("code", "ids", "web")
SETTING: Dict[str, Any] = {
    "version": 1,
    "seed": 5,
    "tokenizer": {"name": "gpt2"},
    "sequence_length": 64,
    "global_batch_size": BATCH,
    "micro_batch_size": 1,
    "stop": {"epochs": 2},
    "quarantine": {"budget": 1},
    "mixture": {
        "schedule": [
            {"from_step": 0, "weights": {"code": 3, "ids": 1, "web": 6}},
            {"from_step": 3, "weights": {"code": 5, "ids": 2, "web": 1}, "ramp": "linear", "over_steps": 4},
        ]
    },
    "sources": {
        "code": {"path": "code/*.jsonl"},
        "ids": {"format": "megatron", "path": "ids/x"},
        "web": {"path": "web/*.jsonl.gz"},
    },
}


def write_corpus(at: Path) -> None:
    """Writes the sources. Every file of `code` ends with records that cannot be decoded."""
    for i in range(4):
        corpus.write_jsonl(at / "code" / f"{i}.jsonl", corpus.synthetic_texts(i + 1, 30, 40))
        with open(at / "code" / f"{i}.jsonl", "a", encoding="utf-8") as f:
            f.write("\n" + "{broken\n" * (2 + i))
    for i in range(2):
        corpus.write_jsonl(at / "web" / f"{i}.jsonl.gz", corpus.synthetic_texts(i + 10, 90, 50))
    corpus.write_jsonl(at / "more" / "0.jsonl", corpus.synthetic_texts(99, 60, 40))
    corpus.write_megatron(
        at / "ids" / "x",
        [[(d * 7919 + k * 31) % 50000 for k in range(d * 13 % 150)] for d in range(40)],
        "u2",
        pieces=2,
    )


class Scene(Stage):
    """The corpus above, with whole runs by their numbers of ranks and microbatch size."""

    def whole(self, ranks: int, micro: int = 1, **change: Any) -> Any:
        return self.delivered({**SETTING, "micro_batch_size": micro, **change}, ranks, states=True)

    def state(self, step: int, **change: Any) -> Dict[str, Any]:
        """Returns the state after a step of the run with two ranks."""
        batches = self.whole(2, **change).ranks[0]
        found: Dict[str, Any] = json.loads([b.state for b in batches if b.step == step][-1])
        return found

    def resume(self, state: Any, ranks: int, mixture: Any, **orders: Any) -> Any:
        with self.up(mixture, ranks) as run:
            return run.train(state=state, **orders)


@pytest.fixture(scope="module")
def scene(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    at = tmp_path_factory.mktemp("resume")
    write_corpus(at)
    return Scene(binary, at, tmp_path_factory.mktemp("resumed"))


def per_rank(ranks: int, micro: int) -> int:
    return BATCH // micro // ranks


# Growing batches, then longer sequences, then, from a token count on, shorter sequences of one document each.
STAGES: Dict[str, Any] = {
    "stop": {"epochs": 4},
    "global_batch_size": 2 * BATCH,
    "rampup_batch_size": {"start": BATCH, "increment": BATCH, "samples": 2 * BATCH},
    "stages": [
        {"from_tokens": 6000, "sequence_length": 192, "global_batch_size": BATCH},
        {"from_tokens": 14000, "sequence_length": 32, "micro_batch_size": 1, "packing": "pad"},
        {"from_tokens": 16000, "sequence_length": 64, "packing": "best_fit"},
    ],
}


# Ranks, microbatch size, loaders, and whether the trainer is slow for its first two steps, in which loaders read ahead
# up to their limit.
CHAIN = [(2, 2, 2, True), (1, 1, 8, False), (3, 4, 2, True), (8, 3, 1, False), (2, 2, 8, True)]


WINDOWS: Dict[str, Any] = {"carry": 16, "window": 3}
CONCAT: Dict[str, Any] = {"packing": "concat", "window": 4}
BUCKETED: Dict[str, Any] = {"packing": "bucketed"}
CONSTANT: Dict[str, Any] = {"packing": "bucketed", "bucket_rows": "constant", "window": 3, "carry": 16}


# Constant rows have buckets, windows and carry together. The long variants have them one by one, none of them, and
# documents that follow each other.
@pytest.mark.parametrize(
    "setting",
    [
        pytest.param({}, id="plain", marks=pytest.mark.long),
        pytest.param(STAGES, id="stages"),
        pytest.param(WINDOWS, id="windows", marks=pytest.mark.long),
        pytest.param(CONCAT, id="concat", marks=pytest.mark.long),
        pytest.param(BUCKETED, id="bucketed", marks=pytest.mark.long),
        pytest.param(CONSTANT, id="constant rows"),
    ],
)
def test_chain(scene: Scene, setting: Any) -> None:
    """Resumes repeatedly with other ranks, microbatches and loaders: the content of one run, the bytes of each
    topology."""
    first = scene.whole(*CHAIN[0][:2], **setting)
    last = max(first.steps())
    if "stages" in setting:
        lengths = [now["sequence_length"] for now in by_step(first, {**SETTING, **setting}).values()]
        assert [length for length, after in zip(lengths, lengths[1:] + [0]) if length != after] == [64, 192, 32, 64]
    assert last > 2 * len(CHAIN)
    state: Any = None
    content: Dict[int, str] = {}
    for i, (ranks, micro, loaders, slow) in enumerate(CHAIN):
        whole = scene.whole(ranks, micro, **setting)
        leave = (
            None
            if i == len(CHAIN) - 1
            else (2 * i + 1, max(b.microbatch for b in whole.ranks[0] if b.step == 2 * i + 1))
        )
        part = scene.resume(
            state,
            ranks,
            {**SETTING, **setting, "micro_batch_size": micro, "loaders": loaders},
            states=True,
            leave_after=leave,
            pause=0.03 if slow else 0,
            slow=2 * per_rank(ranks, micro),
        )
        assert part.ends == ["left" if leave else "end"] * ranks, part.ends
        assert part.bytes() == {s: d for s, d in whole.bytes().items() if 2 * i <= s[0] <= (leave or (last,))[0]}
        content.update(part.content())
        ends = [json.loads(batches[-1].state) for batches in part.ranks]
        assert all(end == ends[0] for end in ends), "ranks differ at a step's end"
        state = ends[i % ranks]
    assert content == first.content()


def test_edges(scene: Scene) -> None:
    """Resumes from the first and the last step of an epoch, of the run, and of the ramp."""
    whole = scene.whole(2)
    turns = sorted(
        {
            min(
                step
                for step, segments in whole.steps().items()
                if any(s[SOURCE] == name and s[EPOCH] == 1 for s in segments)
            )
            for name in SOURCES
        }
    )
    last = max(whole.steps())
    with scene.up(SETTING, 2) as run:
        for step in sorted({0, 2, 3, 6, *(t - 1 for t in turns), *turns, last - 1, last}):
            expected = {s: d for s, d in whole.bytes().items() if step < s[0] <= step + 1}
            leave = (step + 1, per_rank(2, 1) - 1) if step < last else None
            got = run.train(state=scene.state(step), leave_after=leave)
            assert got.bytes() == expected and got.ends == ["left" if leave else "end"] * 2, (step, got.ends)


def test_twice_from_one_state(scene: Scene) -> None:
    """Each start below the watermark opens the next attempt. One state gives the same bytes each time, and the ledger
    keeps every attempt."""
    attempts: List[int] = []
    directory = scene.new_dir()
    with scene.up(SETTING, 2, directory) as run:
        for step, until in ((-1, 5), (2, 4), (2, 6), (0, 1)):
            got = run.train(
                state=scene.state(step) if step >= 0 else None, states=True, leave_after=(until, per_rank(2, 1) - 1)
            )
            assert got.bytes() == {s: d for s, d in scene.whole(2).bytes().items() if step < s[0] <= until}
            attempts.append(json.loads(got.ranks[0][-1].state)["attempt"])
    assert attempts == [1, 2, 3, 4]


def test_moved(scene: Scene, tmp_path: Path) -> None:
    """Resumes in a new run directory with the files under another path."""
    shutil.copytree(scene.corpus, tmp_path / "elsewhere")
    there = Scene(scene.binary, tmp_path / "elsewhere", tmp_path)
    for step in (1, 5):
        got = there.resume(scene.state(step), 3, SETTING, leave_after=(step + 2, per_rank(3, 1) - 1))
        assert got.bytes() == {s: d for s, d in scene.whole(3).bytes().items() if step < s[0] <= step + 2}


Change = Callable[[Dict[str, Any]], None]


def change(path: str, value: Any) -> Change:
    def apply(mixture: Dict[str, Any]) -> None:
        *rooms, key = path.split("/")
        for room in rooms:
            mixture = mixture[room]
        mixture[key] = value

    return apply


def with_more(mixture: Dict[str, Any]) -> None:
    mixture["sources"]["more"] = {"path": "more/*.jsonl"}
    mixture["mixture"] = {"weights": {"code": 3, "ids": 1, "web": 6, "more": 20}}


def without_web(mixture: Dict[str, Any]) -> None:
    del mixture["sources"]["web"]
    mixture["mixture"] = {"weights": {"code": 3, "ids": 1}}


def without_code(mixture: Dict[str, Any]) -> None:
    del mixture["sources"]["code"]
    mixture["mixture"] = {"weights": {"ids": 1, "web": 6}}


def other_files(mixture: Dict[str, Any]) -> None:
    mixture["sources"]["code"]["path"] = "code/[013].jsonl"


PLAIN = {"mixture": {"weights": {"code": 3, "ids": 1, "web": 6}}}
NONE_WAITS = {**PLAIN, "carry": 0}
STEP = 3
# A longer sequence lengthens the pieces of the token source, so its ordinals then name other pieces.
PIECES = ("long_documents", "sources.ids")
# For each case: a name, the mixture of the state's run, the change and the names of the override. Then the names in the
# refusal without an override, and the sources that continue without a gap.
OVERRIDES: List[Tuple[str, Dict[str, Any], Change, Sequence[str], Sequence[str], Sequence[str]]] = [
    ("added", NONE_WAITS, with_more, ("sources.more",), ("sources.more: added", "mixture.weights.more"), SOURCES),
    ("joined", PLAIN, with_more, ("sources.more",), ("sources.more: added", "mixture.weights.more"), SOURCES),
    ("removed", NONE_WAITS, without_web, ("sources",), ("sources.web: removed",), ("code", "ids")),
    ("files", PLAIN, other_files, ("sources.code",), ("sources.code.files",), ("ids", "web")),
    (
        "weights",
        PLAIN,
        change("mixture/weights/code", 40),
        ("mixture.weights.code",),
        ("mixture.weights.code: 3 -> 40",),
        SOURCES,
    ),
    (
        "schedule",
        {},
        change("mixture", PLAIN["mixture"]),
        ("mixture",),
        ("mixture.schedule[0]", "mixture.schedule[1]", "mixture.weights.code"),
        SOURCES,
    ),
    (
        "unit",
        PLAIN,
        change("mixture/unit", "samples"),
        ("mixture.unit",),
        ("mixture.unit: tokens -> samples",),
        SOURCES,
    ),
    ("seed", PLAIN, change("seed", 6), ("seed",), ("seed: 5 -> 6",), ()),
    (
        "shuffle",
        PLAIN,
        change("shuffle", "none"),
        ("shuffle", "sources", "long_documents"),
        ("shuffle: global -> none", "long_documents: removed"),
        (),
    ),
    (
        "tokenizer",
        NONE_WAITS,
        change("tokenizer", {"name": "gpt2", "add_eos": False}),
        ("tokenizer",),
        ("tokenizer.add_eos: true -> false",),
        ("ids",),
    ),
    ("epochs", PLAIN, change("stop", {"epochs": 3}), ("stop.epochs",), ("stop.epochs: 2 -> 3",), SOURCES),
    (
        "sequences",
        PLAIN,
        change("sequence_length", 128),
        ("sequence_length", *PIECES),
        ("sequence_length: 64 -> 128", "pieces of 64 -> shuffle pieces of 128", *map('"{}"'.format, PIECES)),
        ("code", "web"),
    ),
    (
        "shorter",
        PLAIN,
        change("stages", [{"from_step": 5, "sequence_length": 32}]),
        ("stages",),
        ("stages[0]: added",),
        SOURCES,
    ),
    (
        "batch",
        PLAIN,
        change("global_batch_size", 48),
        ("global_batch_size", "packing"),
        ("global_batch_size: 24 -> 48",),
        SOURCES,
    ),
    (
        "stages",
        PLAIN,
        change("stages", [{"from_step": 5, "sequence_length": 128}]),
        ("stages", *PIECES),
        ("stages[0]: added", "pieces of 64 -> shuffle pieces of 128", *map('"{}"'.format, PIECES)),
        ("code", "web"),
    ),
    ("packing", PLAIN, change("packing", "pad"), ("packing",), ("packing: best_fit -> pad",), SOURCES),
]


@pytest.mark.parametrize("row", OVERRIDES, ids=lambda row: row[0])
def test_overrides(scene: Scene, row: Any) -> None:
    """A changed identity is refused with the changed names. With an override the run continues, and unchanged sources
    have no gap."""
    _, before, apply, override, named, unbroken = row
    mixture = copy.deepcopy({**SETTING, **before})
    whole = scene.whole(2, **before)
    apply(mixture)
    with scene.up(mixture, 1) as run:
        refused = run.train(state=scene.state(STEP, **before)).ends[0]
        assert refused[1] == "StartError" and all(name in refused[2] for name in named), refused
        rest = run.train(state=scene.state(STEP, **before), override=override)
        assert rest.ends == ["end"] and run.wait() == 0, (rest.ends, run.stderr())
    assert min(rest.steps()) == STEP + 1
    taken = [s for step, segments in whole.steps().items() if step <= STEP for s in segments]
    for name in unbroken:
        check_unbroken(
            *([s for s in part if s[SOURCE] == name] for part in (taken, rest.segments(), whole.segments())),
            oracle.piece_tokens(mixture, name),
        )
    if row[0] == "added":
        more = sorted((s[ORDINAL], s[OFFSET]) for s in rest.segments() if s[SOURCE] == "more")
        assert more[0] == (0, 0)
        first = rest.steps()[STEP + 1]
        assert sum(s[LENGTH] for s in first if s[SOURCE] == "more") > sum(s[LENGTH] for s in first) / 2, (
            "the new weight does not hold at once"
        )
    if row[0] == "removed":
        assert not any(s[SOURCE] == "web" for s in rest.segments())


def check_unbroken(before: Sequence[Any], after: Sequence[Any], whole: Sequence[Any], piece: int) -> None:
    """Checks that a source's segments before and after the resume have each token of the whole run once, without a
    gap."""
    at = ends([*before, *after], piece)
    expected = ends(whole, piece)
    assert before and after and {ordinal: at.get(ordinal) for ordinal in expected} == expected


def ends(segments: Sequence[Any], piece: int) -> Dict[int, int]:
    """The offset in its document at which each ordinal ends. Its segments must follow each other without a gap."""
    at: Dict[int, int] = {}
    for ordinal, offset, length in sorted((s[ORDINAL], s[OFFSET], s[LENGTH]) for s in segments):
        begin = offset // piece * piece if piece else 0
        assert offset == at.get(ordinal, begin), f"ordinal {ordinal}: {offset} follows {at.get(ordinal, begin)}"
        at[ordinal] = offset + length
    return at


def test_removed_while_segments_wait(scene: Scene) -> None:
    """A removed source whose segments wait is refused. It can go once it was kept at weight 0 until they are placed."""
    setting = {**PLAIN, "stop": {"epochs": 4}}
    mixture = copy.deepcopy({**SETTING, **setting})
    without_code(mixture)
    with scene.up(mixture, 1) as run:
        refused = run.train(state=scene.state(STEP, **setting), override=("sources",)).ends[0]
    assert refused[1] == "StartError" and 'segments of source "code" wait to be placed' in refused[2], refused
    found = re.search("keep it, with a weight of 0, until they are placed, at most ([0-9]+) steps later", refused[2])
    assert found, refused
    kept = copy.deepcopy({**SETTING, **setting})
    kept["mixture"]["weights"]["code"] = 0
    part = scene.resume(
        scene.state(STEP, **setting),
        2,
        kept,
        override=("mixture.weights.code",),
        states=True,
        leave_after=(STEP + int(found[1]), per_rank(2, 1) - 1),
    )
    assert part.ends == ["left"] * 2, part.ends
    whole = scene.whole(2, **setting)
    before = [s for step, of in whole.steps().items() if step <= STEP for s in of if s[SOURCE] == "code"]
    late = [s for s in part.segments() if s[SOURCE] == "code"]
    drawn, expected = ends([*before, *late], 0), ends([s for s in whole.segments() if s[SOURCE] == "code"], 0)
    last = max(drawn)  # this document may be cut
    assert late and {o: end for o, end in drawn.items() if o < last} == {
        o: end for o, end in expected.items() if o < last
    }, "a segment that waited is lost"
    rest = scene.resume(json.loads(part.ranks[0][-1].state), 2, mixture, override=("sources",))
    assert rest.ends == ["end"] * 2 and {s[SOURCE] for s in rest.segments()} == {"ids", "web"}


def test_emptied(scene: Scene, tmp_path: Path) -> None:
    """Files without a record are an error. The run continues when their source is removed from the mixture."""
    shutil.copytree(scene.corpus, tmp_path / "there")
    for path in (tmp_path / "there" / "code").iterdir():
        path.write_bytes(b"\n")
    mixture = copy.deepcopy({**SETTING, **NONE_WAITS})
    there = Scene(scene.binary, tmp_path / "there", tmp_path)
    # The run may fail before a rank can connect.
    path, directory = there.mixture(mixture), there.new_dir()
    done = subprocess.run(
        [scene.binary, "up", path, "--run-dir", directory],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    said = done.stderr.strip().splitlines()[-1]
    assert (
        done.returncode == 1 and "source code: no records in 4 files" in said and "take it out of the mixture" in said
    ), done
    with pytest.raises(millrace.RunError, match="source code: no records in 4 files"):
        next(iter(millrace.connect(str(directory / "rank-0.sock"), patience=1)))
    del mixture["sources"]["code"], mixture["mixture"]["weights"]["code"]
    rest = there.resume(scene.state(STEP, **NONE_WAITS), 2, mixture, override=("sources.code",))
    assert rest.ends == ["end"] * 2 and {s[SOURCE] for s in rest.segments()} == {"ids", "web"}


def edited(name: str, value: Any) -> Callable[[Dict[str, Any]], Dict[str, Any]]:
    return lambda state: {**state, name: value}


DAMAGES: List[Tuple[str, Callable[[Dict[str, Any]], Any], str]] = [
    ("newer", edited("millrace", 99), "version 99"),
    ("older", edited("millrace", 1), "version 1"),
    ("of another loader", lambda state: {"epoch": 1, "samples": 5}, "no state of a run"),
    ("empty", lambda state: {}, "no state of a run"),
    ("cut", lambda state: {k: v for k, v in state.items() if k != "planner"}, "planner state"),
    ("planner cut", lambda state: {**state, "planner": state["planner"][:-8]}, "cut off"),
    (
        "planner edited",
        lambda state: {**state, "planner": state["planner"][:8] + "zz" + state["planner"][10:]},
        "its sum does not match",
    ),
    ("step", edited("step", 7), "step 7, but its planner stands at"),
    ("types", edited("attempt", "first"), "holds a string, not a whole number"),
    ("huge", edited("step", 10**30), "not a whole number"),
    ("sources", edited("sources", ""), "its sources are not readable"),
    ("identity", edited("identity", [1]), "read identity"),
    ("microbatch", lambda state: {**state, "microbatch": 3, "placement": "00"}, "placement"),
]


def test_damaged_states(scene: Scene) -> None:
    """The error names the defect and the remedy. The same loader can then start from a correct state."""
    state = scene.state(STEP)
    with scene.up(SETTING, 1) as run:
        loader = millrace.connect(run.sockets()[0], tensors="numpy")
        for name, damage, expected in DAMAGES:
            loader.load_state_dict(damage(state))
            with pytest.raises(millrace.StartError) as refused:
                next(loader)
            assert expected in refused.value.reason, (name, refused.value.reason)
            assert any(
                cure in refused.value.reason for cure in ("unchanged", "go on with the program", "resume with the same")
            ), (name, refused.value.reason)
        with pytest.raises(TypeError):
            loader.load_state_dict([state])  # type: ignore[arg-type]
        loader.load_state_dict(state)
        assert next(loader).digest == scene.whole(1).bytes()[STEP + 1, 0, 0]
        loader.close()


def test_an_earlier_state_keeps_its_order(scene: Scene) -> None:
    """A state of the first planner that knew no pieces continues with the documents whole, as they were: earlier.json
    has such a state and the content digests of the steps after it. A new run shuffles the pieces of `ids`."""
    earlier = json.loads((HERE / "earlier.json").read_text())
    state, content = earlier["state"], earlier["content"]
    for ranks in (1, 3, 2):  # each resumes from a state of the run before
        resumed = scene.resume(state, ranks, SETTING, states=True)
        assert {str(step): digest for step, digest in resumed.content().items()} == content
        first = min(resumed.content())
        state = json.loads([b.state for b in resumed.ranks[0] if b.step == first][-1])
        content = {step: digest for step, digest in content.items() if int(step) > first}
    again = scene.delivered({**SETTING, "long_documents": "consecutive"}, 1)
    assert ordinals_of_long(again) == 1 and ordinals_of_long(scene.whole(1)) == 3
    spread = copy.deepcopy(SETTING)
    spread["sources"]["ids"]["long_documents"] = "shuffle"
    with scene.up(spread, 1) as run:
        loader = millrace.connect(run.sockets()[0], tensors="numpy")
        loader.load_state_dict(earlier["state"])
        with pytest.raises(millrace.StartError) as refused:
            next(loader)
        assert "long_documents: added" in refused.value.reason
        loader.close()


def ordinals_of_long(delivered: Any) -> int:
    """The most ordinals that one pass over a document of `ids` has."""
    found: Dict[Tuple[str, int], Set[int]] = {}
    for segment in delivered.segments():
        if segment[SOURCE] == "ids":
            found.setdefault((segment[ID], segment[EPOCH]), set()).add(segment[ORDINAL])
    return max(len(ordinals) for ordinals in found.values())
