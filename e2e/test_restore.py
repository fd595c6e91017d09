"""A run continues from any of its states, in any directory, on any number of ranks, as if it had never stopped."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

import corpus
from conftest import variant
from test_cluster import status
from test_cluster import until as wait_until
from trainer import Orders

STEPS = 8
SHORT = variant({"stop": {"steps": STEPS}, "global_batch_size": 8, "micro_batch_size": 2, "sequence_length": 192})


@pytest.fixture(scope="module")
def whole(stage: Any) -> Dict[int, Any]:
    """Returns the uninterrupted run on some ranks (4, 2 or 1 microbatches a step), with the state after every batch."""
    return {ranks: stage.delivered(SHORT, ranks, states=True) for ranks in (1, 2, 4)}


def states(delivered: Any, step: int, microbatch: int) -> List[Dict[str, Any]]:
    return [
        json.loads(next(b.state for b in batches if (b.step, b.microbatch) == (step, microbatch)))
        for batches in delivered.ranks
    ]


def resume(stage: Any, state: Any, ranks: int, mixture: Any = SHORT, **orders: Any) -> Any:
    """Resumes from a state in a new run directory, to the end or to `leave_after`."""
    with stage.up(mixture, ranks) as run:
        delivered = run.train(state=state, **orders)
        if orders.get("leave_after") is None and all(end == "end" for end in delivered.ends):
            assert run.wait() == 0
    return delivered


def tail(of: Any, step: int, microbatch: int = 0) -> Dict[Tuple[int, int, int], str]:
    """The digests of an uninterrupted run from a position on."""
    return {slot: d for slot, d in of.bytes().items() if (slot[0], slot[2]) >= (step, microbatch)}


def test_content_is_equal(whole: Any) -> None:
    assert whole[1].content() == whole[2].content() == whole[4].content()
    assert list(whole[1].steps()) == list(range(STEPS))


# The long test_every_state_everywhere restores each state on every number of ranks.
@pytest.mark.parametrize("step, saved_by, ranks", [(0, 1, 1), (2, 4, 4), (3, 2, 4), (5, 4, 1), (STEPS - 1, 1, 2)])
def test_boundary(stage: Any, whole: Any, step: int, saved_by: int, ranks: int) -> None:
    """The state of each step's end is restored under the same or another topology, in a new run directory."""
    state = states(whole[saved_by], step, 8 // 2 // saved_by - 1)[-1]
    resumed = resume(stage, state, ranks)
    assert resumed.ends == ["end"] * ranks
    assert resumed.bytes() == tail(whole[ranks], step + 1)
    assert resumed.content() == {k: v for k, v in whole[1].content().items() if k > step}


@pytest.mark.parametrize("step, ranks, microbatch", [
    (0, 1, 0), (3, 1, 1), (3, 2, 0), (STEPS - 1, 1, 2), (STEPS - 1, 2, 0),
])  # fmt: skip
def test_inside_a_step(stage: Any, whole: Any, step: int, ranks: int, microbatch: int) -> None:
    """A state from the middle of a step works under the same topology."""
    resumed = resume(stage, states(whole[ranks], step, microbatch)[0], ranks)
    assert resumed.ends == ["end"] * ranks
    assert resumed.bytes() == tail(whole[ranks], step, microbatch + 1)


@pytest.mark.parametrize("ranks", [1, 4])
def test_inside_a_step_elsewhere(stage: Any, whole: Any, tmp_path: Path, ranks: int) -> None:
    """Under another topology, a state from the middle of a step continues at the step's beginning, on every rank. `up`
    and every trainer log that once."""
    state, notice = states(whole[2], 3, 0)[0], "the state was saved inside step 3, after 1 of its microbatches"
    logs = [tmp_path / f"{rank}.log" for rank in range(ranks)]
    with stage.up(SHORT, ranks) as run:
        resumed = run.train([Orders(state=state, log=str(log), states=True) for log in logs])
        assert run.wait() == 0
        lines = run.stderr().splitlines()
    assert resumed.ends == ["end"] * ranks
    assert resumed.bytes() == tail(whole[ranks], 3)
    assert states(resumed, 3, 0) == states(whole[ranks], 3, 0)
    assert [line.startswith(f"warning: {notice}") for line in lines if notice in line] == [True], lines
    assert [log.read_text().count(notice) for log in logs] == [1] * ranks


def test_inside_a_step_before_its_batch(stage: Any, whole: Any) -> None:
    """A trainer that is interrupted after the run began and before its first batch saves the place that it loaded."""
    import millrace

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    state = states(whole[1], 2, 1)[0]
    with stage.up(SHORT, 1) as run, millrace.connect(run.sockets()[0], tensors="numpy") as loader:
        loader.load_state_dict(state)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("millrace._stream.Stream._receive", interrupt)
            with pytest.raises(KeyboardInterrupt):
                next(loader)
        assert loader.coordinates, "the run has not begun"
        assert {**loader.state_dict(), "attempt": 1} == state


def test_states_are_equal_on_all_ranks(whole: Any) -> None:
    for ranks in (2, 4):
        last = 8 // 2 // ranks - 1
        for step in range(STEPS):
            of = states(whole[ranks], step, last)
            assert all(state == of[0] for state in of)
            assert of[0] == states(whole[1], step, 3)[0], "a state at a step's end depends on the topology"


def test_again_and_again(stage: Any, whole: Any) -> None:
    """Resumes after every second step on another number of ranks. Before the first batch, the state is the loaded
    one."""
    state: Any = None
    ranks, got = 2, {}
    for end in (1, 3, 5, STEPS - 1):
        leave = (end, 8 // 2 // ranks - 1)
        part = (
            resume(stage, state, ranks, states=True, leave_after=leave)
            if end < STEPS - 1
            else resume(stage, state, ranks, states=True)
        )
        for slot, digest in part.bytes().items():
            assert whole[ranks].bytes()[slot] == digest
        got.update(part.content())
        state = json.loads(part.ranks[-1][-1].state)
        ranks = {2: 4, 4: 1, 1: 2}[ranks]
    assert got == whole[1].content()


def test_resume_right_after_resume(stage: Any, whole: Any) -> None:
    """A loaded and unused state is returned unchanged."""
    import millrace

    state = states(whole[2], 2, 1)[0]
    with stage.up(SHORT, 1) as run:
        loader = millrace.connect(run.sockets()[0], tensors="numpy")
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        loader.close()
    with stage.up(SHORT, 1) as run:
        loader = millrace.connect(run.sockets()[0], tensors="numpy")
        loader.load_state_dict(state)
        first = next(loader)
        assert (first.step, first.microbatch) == (3, 0)
        again = json.loads(json.dumps(loader.state_dict()))
        del first
        loader.close()
    assert resume(stage, again, 1).bytes() == tail(whole[1], 3, 1)


def test_size_at_64_sources(stage: Any) -> None:
    """A state has at most 16 KiB of JSON, also with cut and carried documents."""
    names = [f"source-{i:02d}-with-a-name" for i in range(64)]
    for i, name in enumerate(names):
        corpus.write_jsonl(stage.corpus / "many" / f"{name}.jsonl", corpus.synthetic_texts(i + 1, 40, 120), odd=False)
    mixture = variant(
        {
            "sources": {name: {"path": f"many/{name}.jsonl"} for name in names},
            "mixture": {"weights": {name: i + 1 for i, name in enumerate(names)}},
            "stop": {"steps": 12},
            "sequence_length": 64,
            "loaders": 2,
        }
    )
    delivered = stage.delivered(mixture, 1, states=True)
    sizes = [len(b.state) for b in delivered.ranks[0]]
    assert max(sizes) <= 16 << 10, max(sizes)
    assert resume(stage, json.loads(delivered.ranks[0][40].state), 1, mixture).bytes() == {
        s: d
        for s, d in delivered.bytes().items()
        if s > (delivered.ranks[0][40].step, 0, delivered.ranks[0][40].microbatch)
    }


def test_other_identity(stage: Any, whole: Any) -> None:
    """Another identity is refused with the changed names. Overridden by these names, the run continues."""
    state = states(whole[1], 3, 3)[0]
    other = copy.deepcopy(SHORT)
    other["seed"] = 99
    other["mixture"]["weights"]["plain"] = 0.9
    refused = resume(stage, state, 2, other)
    for end in refused.ends:
        assert end[1] == "StartError" and "seed" in end[2] and "mixture.weights.plain" in end[2], end
        assert "sequence_length" not in end[2]
    half = resume(stage, state, 1, other, override=("seed",))
    assert half.ends[0][1] == "StartError" and "mixture.weights.plain" in half.ends[0][2]
    forced = resume(stage, state, 1, other, override=("seed", "mixture.weights.plain"))
    assert forced.ends == ["end"] and list(forced.steps()) == list(range(4, STEPS))


def test_changed_files(stage: Any, whole: Any) -> None:
    """A state is refused if its files have changed."""
    other = copy.deepcopy(SHORT)
    other["sources"]["plain"]["path"] = "plain/part-[01].jsonl"
    refused = resume(stage, states(whole[1], 3, 3)[0], 1, other)
    assert refused.ends[0][1] == "StartError" and "plain" in refused.ends[0][2], refused.ends


def test_what_may_differ(stage: Any, whole: Any) -> None:
    """Settings outside the identity may change at a resume, and the content stays."""
    other = copy.deepcopy(SHORT)
    other.update(
        micro_batch_size=4, layout="varlen", token_dtype="int32", balance="none", loaders=3, stop={"steps": STEPS + 2}
    )
    resumed = resume(stage, states(whole[2], 3, 1)[0], 1, other)
    content = resumed.content()
    assert list(content) == list(range(4, STEPS + 2))
    assert {k: v for k, v in content.items() if k < STEPS} == {k: v for k, v in whole[1].content().items() if k > 3}


# One run directory under several `up`s.


def test_history_wants_a_start(stage: Any, whole: Any) -> None:
    """A run directory with history has no default start; `latest`, `fresh` and a state each work."""
    at = stage.new_dir()
    with stage.up(SHORT, 2, at) as run:
        first = run.train(leave_after=(3, 1), states=True)
    state = json.loads(first.ranks[0][-1].state)
    with stage.up(SHORT, 2, at) as run:
        refused = run.train()
        for end in refused.ends:
            assert end[1] == "StartError" and "history" in end[2] and "latest" in end[2], (
                refused.ends,
                refused.bytes(),
            )
        # A step counts as consumed when the trainer asks for the batch after it.
        latest = run.train(start="latest", leave_after=(4, 1))
        assert latest.bytes() == {s: d for s, d in tail(whole[2], 3).items() if s[0] <= 4}
    with stage.up(SHORT, 2, at) as run:
        assert run.train(state=state, leave_after=(5, 0)).bytes() == {
            s: d for s, d in tail(whole[2], 4).items() if (s[0], s[2]) <= (5, 0)
        }
    with stage.up(SHORT, 2, at) as run:
        assert run.train(start="fresh").bytes() == whole[2].bytes()
        assert run.wait() == 0


def test_kill_of_everything(stage: Any, whole: Any) -> None:
    """Repeated kill -9 of `up`, children and trainers at once. `latest` is the first step that not all ranks
    consumed."""
    at, got, start = stage.new_dir(), {}, None
    for until in (2, 4, 6):
        run = stage.up(SHORT, 2, at)
        with run:
            trainers = run.start(
                start=start, pause=0.03, leave_after=(until + 1, 1), stay=True
            )  # slow enough to be killed before the end
            trainers.collect(until=until)
            if until == 6:  # a kill may lose what the orchestrator has not written yet
                wait_until("all ranks consumed step 3", lambda: status(stage, run)["step"] >= 4, run)
            run.kill()
            told = trainers.end()
            got.update(told.bytes())
        start = "latest"
        first = min(b.step for b in told.ranks[0])
        assert set(told.bytes().items()) <= set(whole[2].bytes().items())
        assert first <= until
    with stage.up(SHORT, 2, at) as run:
        rest = run.train(start="latest")
        assert rest.ends == ["end"] * 2 and run.wait() == 0
    assert rest.ranks[0][0].step >= 4, "a batch of a step below the watermark came again"
    assert {**got, **rest.bytes()} == whole[2].bytes()


def test_below_the_watermark(stage: Any, whole: Any) -> None:
    """A start below the watermark opens a new attempt with equal bytes."""
    at = stage.new_dir()
    with stage.up(SHORT, 2, at) as run:
        first = run.train(leave_after=(6, 1), states=True)
        early = json.loads(next(b.state for b in first.ranks[0] if (b.step, b.microbatch) == (1, 1)))
        again = run.train(state=early, states=True, leave_after=(4, 1))
        assert again.bytes() == {s: d for s, d in tail(whole[2], 2).items() if s[0] <= 4}
        attempts = [json.loads(part.ranks[0][-1].state)["attempt"] for part in (first, again)]
        assert attempts[1] == attempts[0] + 1
        rest = run.train(start="latest")
        assert rest.bytes() == tail(whole[2], 4)
        assert run.wait() == 0


def test_ranks_that_differ(stage: Any, whole: Any) -> None:
    """If ranks have different starts, each gets an error. Afterwards the run can be started."""
    one, other = states(whole[2], 2, 1)[0], states(whole[2], 3, 1)[0]
    with stage.up(SHORT, 2) as run:
        for orders in ([Orders(state=one), Orders(state=other)], [Orders(state=one), Orders(start="fresh")]):
            for end in run.train(orders).ends:
                assert end[1] == "StartError" and "rank" in end[2] and "step" in end[2], end
        assert run.train(state=one).bytes() == tail(whole[2], 3)


def test_other_ranks_on_the_same_directory(stage: Any, whole: Any) -> None:
    """`up` with another number of ranks continues at the watermark."""
    at = stage.new_dir()
    got: Dict[int, str] = {}
    for ranks, until in ((2, 2), (4, 4), (1, STEPS - 1)):
        with stage.up(SHORT, ranks, at) as run:
            leave = (until, 8 // 2 // ranks - 1)
            part = run.train(start="latest", leave_after=leave if until < STEPS - 1 else None)
            assert set(part.bytes().items()) <= set(whole[ranks].bytes().items())
            got.update(part.content())
    assert got == whole[1].content()


def test_ended_run(stage: Any, whole: Any) -> None:
    """A finished run that is started again delivers no batch and exits with 0."""
    at = stage.new_dir()
    for start in (None, "latest"):
        with stage.up(SHORT, 2, at) as run:
            delivered = run.train(start=start)
            assert delivered.ends == ["end"] * 2 and run.wait() == 0
    assert not any(delivered.ranks)


@pytest.mark.long
@pytest.mark.parametrize("saved_by", [1, 2, 4])
@pytest.mark.parametrize("step", range(STEPS))
def test_every_state_everywhere(stage: Any, whole: Any, saved_by: int, step: int) -> None:
    """Each state of each topology, at a step's end and inside it, restored with 1, 2 and 4 ranks."""
    last = 8 // 2 // saved_by - 1
    for microbatch in range(last + 1):
        state = states(whole[saved_by], step, microbatch)[-1]
        for ranks in (1, 2, 4):
            resumed = resume(stage, state, ranks)
            if microbatch == last:
                assert resumed.bytes() == tail(whole[ranks], step + 1)
            elif ranks == saved_by:
                assert resumed.bytes() == tail(whole[ranks], step, microbatch + 1)
            else:
                assert all(end[1] == "StartError" and "placement" in end[2] for end in resumed.ends)
