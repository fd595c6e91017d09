"""Files that are added to a source, or removed from it, while a run stops (docs/resume.md)."""

from __future__ import annotations

import collections
import copy
import json
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Sequence, Set, Tuple

import pytest

import corpus
from conftest import Stage
from harness import EPOCH, ID, LENGTH, OFFSET, SOURCE

SETTING: Dict[str, Any] = {
    "version": 1,
    "seed": 11,
    "tokenizer": {"name": "gpt2"},
    "sequence_length": 64,
    "global_batch_size": 6,
    "micro_batch_size": 1,
    "stop": {"epochs": 3},
    "mixture": {"weights": {"code": 1, "web": 4}},
    "sources": {"code": {"path": "code/*.jsonl"}, "web": {"path": "web/*.jsonl"}},
}
DOCUMENTS = 60  # of a file
PACKED: Dict[str, Any] = {
    "seekable_copies": False,
    "sources": {"code": {"path": "code/*.jsonl"}, "web": {"path": "web/*.jsonl.gz"}},
}
TOKENS: Dict[str, Any] = {
    "sources": {
        "code": {"path": "code/*.jsonl"},
        "web": {"format": "megatron", "path": "web/*.bin", "long_documents": "shuffle"},
    },
}
GLOBAL, BLOCKS, NONE, PIECES = "global", "blocks", "none", "pieces"
SETTINGS: Dict[str, Dict[str, Any]] = {
    GLOBAL: {}, BLOCKS: PACKED, NONE: {"shuffle": "none"}, PIECES: TOKENS,
    "concat": {"carry": 0, "packing": "concat"},
}


def short_for(name: str) -> List[Any]:
    """The settings, all but one for the long variants: property tests of sources/facts/growth go over all of them."""
    return [pytest.param(s, id=n, marks=[] if n == name else pytest.mark.long) for n, s in SETTINGS.items()]

Key = Tuple[int, str]  # an epoch and a document


class Scene(Stage):
    """The source `web`, whose files come and go, and a source that stays as it is."""

    setting: Dict[str, Any]

    def name(self, number: int) -> str:
        return "%02d" % number + Path(self.setting["sources"]["web"]["path"]).name[1:]

    def add(self, number: int, seed: int = 0) -> None:
        at = self.corpus / "web" / self.name(number)
        texts = corpus.synthetic_texts(seed or number + 1, DOCUMENTS, 60)
        if at.suffix == ".bin":
            documents = [[(len(t) * 7919 + k * 31 + number) % 50000 for k in range(len(t) // 3 + 1)] for t in texts]
            corpus.write_megatron(at.with_suffix(""), documents, "u2")
        else:
            corpus.write_jsonl(at, texts, odd=False)

    def remove(self, number: int) -> None:
        for path in (self.corpus / "web").glob("%02d.*" % number):
            path.unlink()

    def index(self, mixture: Dict[str, Any], *args: str) -> None:
        subprocess.run([str(self.binary), "index", str(self.mixture(mixture)), *args], check=True, capture_output=True)

    def begin(self, setting: Dict[str, Any]) -> Dict[str, Any]:
        self.setting = {**copy.deepcopy(SETTING), **copy.deepcopy(setting)}
        corpus.write_jsonl(self.corpus / "code" / "0.jsonl", corpus.synthetic_texts(99, 30, 40), odd=False)
        for number in (1, 3, 5, 7):
            self.add(number)
        return self.setting


@pytest.fixture
def scene(binary: Path, tmp_path: Path) -> Scene:
    for room in ("data", "runs"):
        (tmp_path / room).mkdir()
    return Scene(binary, tmp_path / "data", tmp_path / "runs")


def file_of(document: str) -> int:
    return int(document[:2])


class Count:
    """The tokens of `web` that a run delivered, by epoch and document."""

    def __init__(self) -> None:
        self.parts: Dict[Key, List[Tuple[int, int]]] = collections.defaultdict(list)

    def add(self, delivered: Any, last: int) -> None:
        for step, segments in delivered.steps().items():
            for s in segments if step <= last else []:
                if s[SOURCE] == "web":
                    self.parts[s[EPOCH], s[ID]].append((s[OFFSET], s[LENGTH]))

    def read(self, epoch: int) -> Set[str]:
        return {document for e, document in self.parts if e == epoch}

    def check(self, files: Sequence[Tuple[int, Sequence[int]]], cut: Sequence[int] = ()) -> None:
        """Every epoch reads each document of its files once. Of removed files (cut), documents may miss their end."""
        lengths: Dict[str, int] = {}
        for (epoch, document), parts in sorted(self.parts.items()):
            at = 0
            for offset, length in sorted(parts):
                assert offset == at or offset > at and file_of(document) in cut, (epoch, document, parts)
                at = offset + length
            if file_of(document) not in cut:
                assert lengths.setdefault(document, at) == at, (epoch, document, parts)
        for epoch, numbers in files:
            want = {d for d in lengths if file_of(d) in numbers}
            assert len(want) >= (DOCUMENTS - 2) * len(numbers), "documents without tokens are no more than a few"
            got = {d for d in self.read(epoch) if file_of(d) not in cut or file_of(d) in numbers}
            assert got == want, (epoch, sorted(got - want), sorted(want - got))


def last_state(delivered: Any) -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(delivered.ranks[0][-1].state)
    return found


def leave(ranks: int, after: int) -> Dict[str, Any]:
    return {"states": True, "leave_after": (after, SETTING["global_batch_size"] // ranks - 1)}


def said_so(stderr: str) -> None:
    """The growth says its numbers, or their sum if not all files were counted."""
    assert "this pass reads 0 twice and 0 never" in stderr or "no document is read twice or never" in stderr, stderr


# Hosts, streams and successive changes have a short form of the other settings.
@pytest.mark.parametrize("setting", short_for(GLOBAL))
def test_growing_and_shrinking(scene: Scene, setting: Dict[str, Any]) -> None:
    """Files come and go at two resumes, on other numbers of ranks and through a kill. Each epoch reads each document
    of its files once, and the resumes say so."""
    mixture, count = scene.begin(setting), Count()
    with scene.up(mixture, 2) as run:
        first = run.train(**leave(2, 9))
        assert first.ends == ["left"] * 2, (first.ends, run.stderr())
    count.add(first, 9)
    assert count.read(0) and not count.read(1)

    scene.add(2)
    scene.add(9)
    with scene.up(mixture, 3) as run:
        refused = run.train(state=last_state(first)).ends[0]
        for words in (scene.name(2), scene.name(9), '"sources.web.files=append"'):
            assert words in refused[2], refused
        wrong = run.train(state=last_state(first), override=("sources.web.files=mask",)).ends[0]
        assert scene.name(2) in wrong[2] and "append" in wrong[2], wrong
        grown = run.train(state=last_state(first), override=("sources.web.files=append",), **leave(3, 13))
        said = run.stderr()
        run.kill()
    said_so(said)
    assert min(grown.steps()) == 10
    count.add(grown, 13)
    where = run.directory
    with scene.up(mixture, 3, where) as run:
        grown = run.train(state=last_state(grown), **leave(3, 17))
    assert min(grown.steps()) == 14
    count.add(grown, 17)
    assert not count.read(1)

    scene.index(mixture)  # the number of a removed file's documents has to be known
    scene.remove(5)
    with scene.up(mixture, 1) as run:
        refused = run.train(state=last_state(grown)).ends[0]
        assert scene.name(5) in refused[2] and '"sources.web.files=mask"' in refused[2], refused
        masked = run.train(state=last_state(grown), override=("sources.web.files=mask",), states=True)
        assert masked.ends == ["end"] and run.wait() == 0, (masked.ends, run.stderr())
        said_so(run.stderr())
    count.add(masked, max(masked.steps()))
    count.check([(0, (1, 3, 7)), (1, (1, 2, 3, 7, 9)), (2, (1, 2, 3, 7, 9))], cut=(5,))
    before = {d for d in count.read(0) if file_of(d) == 5}
    assert before and not any(file_of(d) == 5 for d in count.read(1) | count.read(2))

    state = json.loads(next(t.state for t in masked.ranks[0] if t.step == 30 and t.microbatch == 5))
    again = scene.delivered(mixture, 2, state=state)  # without an override: the state has the files of each epoch
    assert again.content() == {step: digest for step, digest in masked.content().items() if step > 30}


def compare(scene: Scene, mixture: Dict[str, Any], state: Dict[str, Any], *args: str) -> Tuple[int, Any, str]:
    """Runs `millrace check --against`. Returns its status, its object and its stderr."""
    path = scene.scratch / "state.json"
    path.write_text(json.dumps(state))
    done = subprocess.run(
        [str(scene.binary), "check", str(scene.mixture(mixture)), "--json", "--against", str(path), *args],
        capture_output=True, text=True,
    )
    return done.returncode, json.loads(done.stdout)["against"] if done.stdout else None, done.stderr


def choices(against: Any) -> Dict[Tuple[str, ...], Any]:
    (source,) = against["sources"]
    return {tuple(choice["override"]): choice for choice in source["choices"]}


def test_numbers_before_a_run(scene: Scene) -> None:
    """`check --against` counts for each override what the pass under way reads twice and never. The override that reads
    in the new order does exactly that, and says so."""
    mixture = scene.begin({})
    with scene.up(mixture, 2) as run:
        first = run.train(**leave(2, 9))
    state, count = last_state(first), Count()
    count.add(first, 9)
    status, same, _ = compare(scene, mixture, state)
    assert status == 0 and "sources" not in same and "refused" not in same, same

    scene.add(2)
    status, against, stderr = compare(scene, mixture, state)
    assert status == 0 and scene.name(2) in against["refused"], (status, against, stderr)
    found = choices(against)
    assert "refused" in found["sources.web.files=mask",]
    grown = found["sources.web.files=append",]["numbers"]
    assert (grown["known"], grown["twice"], grown["never"]) == (True, 0, 0) and grown["from_pass"] == 2, grown
    status, against, stderr = compare(scene, mixture, state, "--override", "sources.web.files=mask")
    assert status == 1 and scene.name(2) in stderr, (status, stderr)
    status, against, _ = compare(scene, mixture, state, "--override", "sources.web.files=append")
    assert status == 0 and "0 twice" in against["said"][0], (status, against)

    anew = found["sources.web.files",]["numbers"]
    with scene.up(mixture, 2) as run:
        rest = run.train(state=state, override=("sources.web.files",), states=True)
        assert rest.ends == ["end"] * 2, (rest.ends, run.stderr())
        assert found["sources.web.files",]["text"] in run.stderr(), run.stderr()
    again = Count()
    again.add(rest, max(rest.steps()))
    pass_now = min(epoch for epoch, _ in again.parts)
    before, after = count.read(0), again.read(pass_now)
    everything = again.read(pass_now + 1)
    old = {d for d in everything if file_of(d) != 2}
    # a document that waited at the state was drawn and is dropped, and one without tokens is in no batch
    assert abs(len(before & after) - anew["twice"]) <= 8, (len(before & after), anew)
    assert abs(len(old - before - after) - anew["never"]) <= 8, (len(old - before - after), anew)
    assert anew["twice"] > 20 and anew["never"] > 20 and anew["documents"] == 4 * DOCUMENTS, anew


def test_another_data_set(scene: Scene) -> None:
    """Another data set under an old source's name: the resume says how many of its documents the pass skips."""
    mixture = scene.begin({})
    with scene.up(mixture, 2) as run:
        first = run.train(**leave(2, 9))
    for number in (1, 3, 5, 7):
        scene.add(number, seed=100 + number)
    status, against, stderr = compare(scene, mixture, last_state(first))
    assert status == 0, stderr
    anew = choices(against)["sources.web.files",]
    assert anew["numbers"]["added"] == 4 * DOCUMENTS and anew["numbers"]["documents"] == 0, anew
    assert 50 < anew["numbers"]["skipped"] < 4 * DOCUMENTS, anew
    with scene.up(mixture, 1) as run:
        run.train(state=last_state(first), override=("sources.web",), **leave(1, 11))
        assert anew["text"] in run.stderr(), run.stderr()
