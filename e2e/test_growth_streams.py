"""Files come and go between two resumes of a run with several streams."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from test_eras import FIRST, override
from test_growth import NONE, Count, Scene, choices, compare, file_of, last_state, leave, said_so, scene, short_for

assert scene  # a fixture

SECOND = {
    "mixture": {"weights": {"web": 1}},
    "sequence_length": 64,
    "global_batch_size": 6,
    "micro_batch_size": 1,
    "stop": {"epochs": 3},
}


def two_streams(scene: Scene, setting: Dict[str, Any]) -> Dict[str, Any]:
    """A mixture file whose streams read the same files."""
    mixture = scene.begin(setting)
    mixture["streams"] = {"second": {**SECOND, "sources": {"web": mixture["sources"]["web"]}}}
    return mixture


STREAMS = ("train", "second")


class Streams:
    """The states of both streams, and what each delivered."""

    def __init__(self) -> None:
        self.states: Dict[str, Any] = dict.fromkeys(STREAMS)
        self.counts = {stream: Count() for stream in STREAMS}

    def go(self, run: Any, stream: str, ranks: int, last: int, over: Any = ()) -> None:
        out = run.train(stream=stream, state=self.states[stream], override=over, **leave(ranks, last))
        assert out.ends == ["left"] * ranks, (stream, out.ends, run.stderr())
        self.counts[stream].add(out, last)
        self.states[stream] = last_state(out)

    def to_end(self, run: Any, stream: str, over: Any = ()) -> None:
        out = run.train(stream=stream, state=self.states[stream], override=over, states=True)
        assert set(out.ends) == {"end"}, (stream, out.ends, run.stderr())
        self.counts[stream].add(out, max(out.steps()))


@pytest.mark.parametrize("setting", short_for(NONE))
def test_streams_grow_and_shrink(scene: Scene, setting: Dict[str, Any]) -> None:
    """Two streams read the same files and stop at different places. Each goes on with its own state and its own
    override, and each of its passes reads each document once. `check --against --stream` says so before."""
    mixture = two_streams(scene, setting)
    streams = Streams()
    with scene.up(mixture, 2) as run:
        streams.go(run, "second", 2, 14)
        streams.go(run, "train", 2, 7)
    scene.add(2)
    scene.add(9)
    for stream in STREAMS:
        status, against, stderr = compare(scene, mixture, streams.states[stream], "--stream", stream)
        assert status == 0 and scene.name(2) in against["refused"], (stream, against, stderr)
        grown = choices(against)["sources.web.files=append",]
        assert grown["numbers"].get("twice") == 0 and grown["numbers"].get("never") == 0, (stream, grown)
    with scene.up(mixture, 3) as run:
        refused = run.train(stream="second", state=streams.states["second"]).ends[0]
        assert scene.name(2) in refused[2] and '"sources.web.files=append"' in refused[2], refused
        for stream, last in (("train", 10), ("second", 20)):
            streams.go(run, stream, 3, last, override(append=True))
        said_so(run.stderr())
    scene.index(mixture, "--lengths")
    scene.index(mixture, "--lengths", "--stream", "second")
    scene.remove(3)
    with scene.up(mixture, 1) as run:
        for stream in STREAMS:
            streams.to_end(run, stream, override(mask=True))
    for stream, count in streams.counts.items():
        assert {file_of(d) for d in count.read(0)} <= set(FIRST), stream
        count.check([(0, (1, 5, 7)), (1, (1, 2, 5, 7, 9)), (2, (1, 2, 5, 7, 9))], cut=(3,))
        assert {file_of(d) for d in count.read(2)} == {1, 2, 5, 7, 9}, stream


def test_an_evaluation_reads_the_files_that_are_there(scene: Scene) -> None:
    """An evaluation that begins anew reads all files, and needs no override. Training beside it keeps its pass."""
    mixture = two_streams(scene, {})
    mixture["streams"]["second"]["stop"] = {"epochs": 1}
    streams = Streams()
    with scene.up(mixture, 2) as run:
        streams.go(run, "train", 2, 5)
        streams.to_end(run, "second")
        streams.go(run, "train", 2, 7)
    streams.counts["second"].check([(0, FIRST)])
    scene.add(2)
    streams.counts["second"] = Count()
    with scene.up(mixture, 2) as run:
        streams.go(run, "train", 2, 9, override(append=True))
        streams.to_end(run, "second")
        streams.to_end(run, "train")
    streams.counts["second"].check([(0, (1, 2, 3, 5, 7))])
    streams.counts["train"].check([(0, FIRST), (1, (1, 2, 3, 5, 7)), (2, (1, 2, 3, 5, 7))])
    assert not any(file_of(d) == 2 for d in streams.counts["train"].read(0))


def own_files(scene: Scene) -> Dict[str, Any]:
    """A mixture file whose stream `second` has files of its own."""
    mixture = two_streams(scene, {})
    mixture["streams"]["second"].update({"stop": {"epochs": 1}, "sources": {"web": {"path": "second/*.jsonl"}}})
    (scene.corpus / "second").mkdir()
    for number in (11, 13):
        add_to_second(scene, number)
    return mixture


def add_to_second(scene: Scene, number: int) -> None:
    scene.add(number)
    (scene.corpus / "web" / scene.name(number)).rename(scene.corpus / "second" / scene.name(number))


def test_a_stream_that_grew_in_the_same_run_directory(scene: Scene) -> None:
    """Files that are new to an evaluation set end its evaluations in this run directory, by name and with a cure.
    Training goes on."""
    mixture, where, streams = own_files(scene), scene.new_dir(), Streams()
    with scene.up(mixture, 2, where) as run:
        streams.go(run, "train", 2, 5)
        streams.to_end(run, "second")
        streams.go(run, "train", 2, 7)
    add_to_second(scene, 12)
    with scene.up(mixture, 2, where) as run:
        streams.go(run, "train", 2, 9)
        for end in run.train(stream="second", start="fresh").ends:
            assert scene.name(12) in end[2] and "new run directory" in end[2] and "files=append" in end[2], end
        streams.to_end(run, "train")
    streams.counts["second"].check([(0, (11, 13))])
    streams.counts["train"].check([(epoch, FIRST) for epoch in range(3)])


def test_a_stream_is_compared_by_its_name(scene: Scene) -> None:
    """`check --stream` compares the stream alone: files of another one do not matter. Its name has to exist."""
    mixture, streams = own_files(scene), Streams()
    with scene.up(mixture, 1) as run:
        for stream in STREAMS:
            streams.go(run, stream, 1, 5)
    add_to_second(scene, 12)
    status, against, _ = compare(scene, mixture, streams.states["train"])
    assert status == 0 and "refused" not in against and "sources" not in against, against
    status, against, _ = compare(scene, mixture, streams.states["second"], "--stream", "second")
    assert status == 0 and scene.name(12) in against["refused"] and against["step"] == 6, against
    over = ("--stream", "second", "--override", "sources.web.files=append")
    status, against, _ = compare(scene, mixture, streams.states["second"], *over)
    assert status == 0 and "0 twice" in against["said"][0], against
    for args, word in (
        (("--stream", "third"), "train, second"),
        (("--stream", "second", "--against", ""), "--against"),
    ):
        status, _, stderr = compare(scene, mixture, streams.states["second"], *args)
        assert status == 2 and word in stderr, (status, stderr)
