"""Files come and go several times, at other ends of a source, and where the index directory lacks the earlier list."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import pytest

from conftest import cases
from harness import EPOCH, ID, SOURCE, command
from test_growth import (
    DOCUMENTS, GLOBAL, PACKED, PIECES, Count, Scene, choices, compare, file_of, last_state, leave, said_so, scene,
    short_for,
)

assert scene  # a fixture

FIRST = (1, 3, 5, 7)


def override(append: bool = False, mask: bool = False) -> Tuple[str, ...]:
    return ("sources.web.files=append",) * append + ("sources.web.files=mask",) * mask


class Career:
    """A run that stops and goes on several times, each time in a new run directory if files came or went."""

    def __init__(self, scene: Scene, mixture: Dict[str, Any], args: Sequence[str] = ()) -> None:
        self.scene, self.mixture, self.count = scene, mixture, Count()
        self.state: Any = None
        self.step = -1  # the last one
        self.directories: List[Path] = []
        self.said: List[str] = []
        self.all: List[Any] = []

    def go(self, last: int, ranks: int = 2, over: Tuple[str, ...] = ()) -> Any:
        """Trains to the end of a step, from the last state."""
        with self.scene.up(self.mixture, ranks) as run:
            out = run.train(state=self.state, override=over, **leave(ranks, last))
            assert out.ends == ["left"] * ranks, (out.ends, run.stderr())
            self.note(run, out, last)
        return out

    def to_end(self, ranks: int = 1, over: Tuple[str, ...] = (), ends: str = "end") -> Any:
        with self.scene.up(self.mixture, ranks) as run:
            out = run.train(state=self.state, override=over, states=True)
            if ends == "end":
                assert out.ends == ["end"] * ranks and run.wait() == 0, (out.ends, run.stderr())
            else:
                assert ends in out.reasons()[0], (out.ends, run.stderr())
            self.note(run, out, max(out.steps()))
        return out

    def note(self, run: Any, out: Any, last: int) -> None:
        assert min(out.steps()) == self.step + 1, "a step came twice or never"
        self.said.append(run.stderr())
        self.count.add(out, last)
        self.all.append(out)
        self.state, self.step = last_state(out), last
        self.directories.append(run.directory)

    def under_way(self, epoch: int) -> None:
        assert self.count.read(epoch) and not self.count.read(epoch + 1), "the passes are longer or shorter than here"

    def until(self, epoch: int, ranks: int = 2, over: Tuple[str, ...] = ()) -> None:
        """Trains to some steps of an epoch, and not to its end."""
        self.go(self.step + 3, ranks, over)
        while not self.count.read(epoch):
            self.go(self.step + 3, ranks)
        self.under_way(epoch)


def halves(count: Count) -> Tuple[Count, Count]:
    """What the first pass read, and what all others read."""
    out = Count(), Count()
    for (epoch, document), parts in count.parts.items():
        out[epoch > 0].parts[epoch, document] = parts
    return out


@pytest.mark.parametrize("setting", short_for(PIECES))
def test_successive_changes(scene: Scene, setting: Dict[str, Any]) -> None:
    """Three changes in the first pass, a change of what the pass before appended in the second one, and a removed file
    that comes back."""
    mixture = scene.begin(setting)
    run = Career(scene, mixture)
    run.go(5)
    scene.add(2)
    run.go(7, 3, override(append=True))
    scene.add(9)
    run.go(9, 1, override(append=True))
    scene.index(mixture)
    scene.remove(3)
    run.go(11, 2, override(mask=True))
    for said in run.said[1:]:
        said_so(said)
    run.under_way(0)

    run.until(1)
    scene.index(mixture)
    scene.remove(9)
    scene.add(4)
    run.go(run.step + 2, 3, override(append=True, mask=True))
    said_so(run.said[-1])
    scene.add(3)
    run.go(run.step + 2, 2, override(append=True))
    said_so(run.said[-1])
    run.under_way(1)
    run.to_end()
    first, rest = halves(run.count)  # file 3 was cut in the first pass and is whole in the third one
    first.check([(0, (1, 5, 7))], cut=(3,))
    rest.check([(1, (1, 2, 5, 7)), (2, (1, 2, 3, 4, 5, 7))], cut=(9,))
    assert {file_of(d) for d in first.read(0)} <= set(FIRST)
    assert {file_of(d) for d in rest.read(1)} <= {1, 2, 5, 7, 9}
    assert {file_of(d) for d in rest.read(2)} == {1, 2, 3, 4, 5, 7}


def ledger(scene: Scene, directory: Path, document: str) -> List[Tuple[int, int]]:
    """The steps and epochs that `ledger --sample` prints for a document of `web`."""
    text = command(scene.binary, "ledger", str(directory), "--sample", f"web/{document}", "--json")
    found = []
    for line in map(json.loads, text.splitlines()):
        assert line["segments"] and all(s["id"] == document for s in line["segments"]), line
        found += [(line["step"], s["epoch"]) for s in line["segments"]]
    return sorted(found)


@pytest.mark.parametrize("setting", short_for(GLOBAL))
def test_the_ledger_knows_the_documents_of_each_pass(scene: Scene, setting: Dict[str, Any]) -> None:
    """`ledger --sample` names the steps of a document in the passes before a change and after it, also of a document
    in a file that was removed later."""
    mixture = scene.begin(setting)
    run = Career(scene, mixture)
    run.go(5)
    scene.add(2)
    scene.add(9)
    run.go(7, 2, override(append=True))
    run.until(1)
    scene.index(mixture)
    scene.remove(5)
    run.to_end(2, override(mask=True))
    searched: Dict[Tuple[int, int], str] = {}  # one document of each file in each pass, of each directory
    for directory, out in zip(run.directories, run.all):
        where: Dict[str, List[Tuple[int, int]]] = {}
        for step, segments in out.steps().items():
            for s in segments:
                if s[SOURCE] == "web":
                    where.setdefault(s[ID], []).append((step, s[EPOCH]))
                    searched.setdefault((s[EPOCH], file_of(s[ID])), s[ID])
        wanted = {d for d in searched.values() if d in where}
        for document in sorted(wanted)[:8]:
            got = [(step, epoch) for step, epoch in ledger(scene, directory, document) if step <= max(out.steps())]
            assert got == sorted(where[document]), (directory, document)  # steps that were planned ahead may follow
    assert {file for epoch, file in searched if epoch == 0} == set(FIRST)
    assert {file for epoch, file in searched if epoch == 2} == {1, 2, 3, 7, 9}


def without_list(scene: Scene, setting: Dict[str, Any]) -> Dict[str, Any]:
    """A mixture file whose index directory a resume finds empty, as on another machine."""
    return scene.begin({**setting, "index_dir": "index"})


def forget(scene: Scene) -> None:
    shutil.rmtree(scene.corpus / "index")


@pytest.mark.parametrize("setting", short_for(GLOBAL))
def test_an_index_directory_that_lacks_the_earlier_files(scene: Scene, setting: Dict[str, Any]) -> None:
    """Files behind all others are appended without the earlier list, in the middle of each pass. Other files are
    refused, and the cure in the error helps."""
    mixture = without_list(scene, setting)
    run = Career(scene, mixture)
    run.go(9)
    run.under_way(0)
    forget(scene)
    scene.add(9)
    run.go(12, 3, override(append=True))
    run.until(1)

    args = [] if mixture.get("shuffle") is None and scene.name(1).endswith(".jsonl") else ["--lengths"]
    cure = " ".join(["millrace index MIXTURE", *args])
    forget(scene)
    scene.add(2)
    for over in (override(append=True), override(append=True, mask=True)):
        with scene.up(mixture, 1) as refused:
            (end,) = refused.train(state=run.state, override=over).ends
        for words in ("web", "put these files alone in their place", f"run `{cure}`", "bring the new files back"):
            assert words in end[2], end
    status, against, stderr = compare(scene, mixture, run.state)
    assert status == 0 and "put these files alone in their place" in against["sources"][0]["unknown"], (against, stderr)
    scene.remove(2)
    scene.index(mixture, *args)
    scene.add(2)
    run.go(run.step + 2, 2, override(append=True))
    run.under_way(1)

    forget(scene)
    scene.remove(3)
    with scene.up(mixture, 1) as refused:
        (end,) = refused.train(state=run.state, override=override(mask=True)).ends
    assert "put these files alone in their place" in end[2] and f"run `{cure}`" in end[2], end
    scene.add(3)
    scene.index(mixture, *args)
    scene.remove(3)
    run.to_end(2, override(mask=True))
    first, rest = halves(run.count)
    first.check([(0, FIRST)])
    rest.check([(1, (1, 5, 7, 9)), (2, (1, 2, 5, 7, 9))], cut=(3,))
    assert {file_of(d) for d in rest.read(2)} == {1, 2, 5, 7, 9} and not any(file_of(d) == 2 for d in rest.read(1))


def exhausting(scene: Scene, how: str, passes: int, setting: Dict[str, Any]) -> Dict[str, Any]:
    """A mixture whose source `web` ends after a number of passes. The other source never ends, and ends no run."""
    mixture = scene.begin(setting)
    mixture["stop"] = {"steps": 80}
    mixture["sources"]["web"]["on_exhausted"] = how
    if how != "repeat":
        mixture["sources"]["web"]["max_epochs"] = passes
    return mixture


# test_growth_in_the_last_pass has the other ends in its short form.
@pytest.mark.parametrize("how", cases(["repeat", "renormalize", "stop", "error"], short=["repeat"]))
@pytest.mark.parametrize(
    "setting", [pytest.param({}, id="global"), pytest.param(PACKED, id="blocks", marks=pytest.mark.long)]
)
def test_ends_of_a_source_that_grew(scene: Scene, setting: Dict[str, Any], how: str) -> None:
    """A source grows in its first pass and shrinks in its second one, which is its last unless it repeats. It ends
    with the last document of the files that are left."""
    mixture = exhausting(scene, how, 2, setting)
    run = Career(scene, mixture)
    run.go(9)
    run.under_way(0)
    scene.add(2)
    scene.add(9)
    run.go(12, 3, override(append=True))
    said_so(run.said[-1])
    run.until(1)
    scene.index(mixture, "--lengths")
    scene.remove(9)
    last = run.to_end(1, override(mask=True), "exhausted" if how == "error" else "end")
    said_so(run.said[-1])
    first, rest = halves(run.count)
    first.check([(0, FIRST)])
    assert {file_of(d) for d in rest.read(1)} - {9} == {1, 2, 3, 5, 7}
    if how == "error":  # the steps that hold the end are never planned
        assert len([d for d in rest.read(1) if file_of(d) != 9]) > 3 * DOCUMENTS and "web" in last.reasons()[0]
        return
    second = Count()  # the end of the run cuts a document of the third one
    second.parts.update((at, parts) for at, parts in rest.parts.items() if at[0] == 1)
    second.check([(1, (1, 2, 3, 5, 7))], cut=(9,))
    assert (max(last.steps()) == 79) == (how != "stop")
    assert bool(rest.read(2)) == (how == "repeat")
    assert not any(file_of(d) == 9 for d in rest.read(2))


@pytest.mark.parametrize("how", ["renormalize", "stop", "error"])
def test_growth_in_the_last_pass(scene: Scene, how: str) -> None:
    """New files of a source in its last pass are never read, and the numbers say so. Nor are they after its end."""
    mixture = exhausting(scene, how, 1, {})
    run = Career(scene, mixture)
    run.go(9)
    first_state = json.dumps(run.state)
    scene.add(2)
    if how == "renormalize":
        run.go(60, 2, override(append=True))
    else:
        run.to_end(2, override(append=True), "exhausted" if how == "error" else "end")
    assert f"{DOCUMENTS} documents in new files: never read" in run.said[1], run.said[1]
    if how == "error":
        assert len(run.count.read(0)) > 3 * DOCUMENTS and not run.count.read(1)
        return
    run.count.check([(0, FIRST)])
    if how == "stop":
        return
    status, against, stderr = compare(scene, mixture, json.loads(first_state))
    assert status == 0, stderr
    grown = choices(against)["sources.web.files=append",]
    assert grown["numbers"]["no_pass"] and "never read" in grown["text"], grown
    scene.add(4)
    assert {s[SOURCE] for s in run.all[-1].steps()[60]} == {"code"}, "web has ended"
    run.to_end(1, override(append=True))
    assert {s[SOURCE] for s in run.all[-1].segments()} == {"code"}
