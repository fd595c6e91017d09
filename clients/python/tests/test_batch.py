"""The metadata of a batch survives, or reading it raises. It never has a made-up value."""

from __future__ import annotations

import copy
import importlib.util
import pickle

import pytest

import millrace

STEPS, MICRO = 4, 3
SHAPE = ("--steps", str(STEPS), "--microbatches", str(MICRO), "--rows", "2", "--length", "32")
NAMES = (
    "step", "microbatch", "num_microbatches", "loss_tokens", "step_loss_tokens", "shapes", "broadcast_source",
    "segments", "slices",
)  # fmt: skip


def known(batch):
    return {name: getattr(batch, name) for name in NAMES}, batch.state_dict()


def lost(batch):
    """Every access raises, and the message says what to do."""
    for name in NAMES:
        assert not hasattr(batch, name)
        with pytest.raises(AttributeError, match=rf"no {name}.*batch\.to\(device\).*with_tensors"):
            getattr(batch, name)
    with pytest.raises(AttributeError, match="no state_dict"):
        batch.state_dict()
    assert "without metadata" in repr(batch)
    return True


def test_count_that_only_other_hosts_know(house):
    """Some tokens of the step are on another host, some of them may not be trained on, and the plan, of an earlier
    release, does not count those. Without such tokens, the count follows from any plan."""
    elsewhere = (*SHAPE, "--ranks", "3", "--elsewhere", "2")
    house.start(*elsewhere, "--untrained")
    batch = next(millrace.connect(house.path()))
    assert batch.loss_tokens > 0
    for b in (batch, pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch)):
        assert getattr(b, "step_loss_tokens", None) is None
        with pytest.raises(AttributeError, match=r"of step 0 is unknown.*batch\.loss_tokens.*all_reduce"):
            b.step_loss_tokens
    house.stop()
    house.start(*elsewhere)
    batch = next(millrace.connect(house.path()))
    assert batch.step_loss_tokens > MICRO * batch.loss_tokens


def test_rebuilt_from_other_tensors(house):
    """Tensors that no loader gave belong to no batch, so reading metadata raises."""
    house.start(*SHAPE)
    first, second = (loader := millrace.connect(house.path())).__next__(), next(loader)
    assert lost(type(first)({name: array.copy() for name, array in first.items()}))
    assert lost(millrace.Batch({"tokens": first["tokens"], "labels": second["labels"]})), "of two batches"
    assert lost(millrace.Batch({"tokens": first["tokens"][:1]})), "a part of a batch"
    assert lost(millrace.Batch({})) and lost(millrace.Batch({"tokens": [1, 2]}))


def test_rebuilt_from_its_own_tensors(house):
    """A mapping that is rebuilt around the same memory is still the same batch."""
    house.start(*SHAPE)
    loader = millrace.connect(house.path())
    for batch in loader:
        want = known(batch)
        for again in (
            type(batch)({name: array for name, array in batch.items()}),
            type(batch)(dict(batch)),
            type(batch)((name, array) for name, array in batch.items()),
            type(batch)(batch),
            type(batch)({"input_ids": batch["tokens"][:], "labels": batch["labels"].view()}),
            type(batch)({name: array for name, array in reversed(list(batch.items()))}),
        ):
            assert known(again) == want
        del again


def test_copies_and_pickles(house):
    house.start(*SHAPE)
    loader = millrace.connect(house.path())
    kept = []
    for batch in loader:
        for again in (
            copy.copy(batch),
            copy.deepcopy(batch),
            pickle.loads(pickle.dumps(batch)),
            batch.with_tensors({"x": batch["tokens"] + 1}),
        ):
            assert known(again) == known(batch)
        assert again["x"][0, 3] == batch["tokens"][0, 3] + 1 and list(again) == ["x"]
        kept.append((pickle.loads(pickle.dumps(batch)), known(batch), batch.digest))
        assert kept[-1][0].digest == batch.digest
    del batch, again
    assert loader.stats()["copied_batches"] == 0, "a pickled batch holds no frame"
    assert all(known(b) == want and b.digest == digest for b, want, digest in kept)


def test_absent_tensors(house, at_once):
    """A rank without tensors has metadata only."""
    house.start(*SHAPE, "--ranks", "2", "--tp", "2", "--broadcast-tp")
    here, away = at_once(*(lambda r=r: next(millrace.connect(house.path(r))) for r in range(2)))
    assert len(away) == 0 and away.broadcast_source == 0 and away.shapes == here.shapes
    assert known(copy.copy(away)) == known(away) == known(pickle.loads(pickle.dumps(away)))
    assert away.state_dict() == here.state_dict()


def test_state_after_a_batch(house):
    """A trainer that fetches ahead saves the state of its last trained batch, and resumes with the batch after it."""
    house.start(*SHAPE, "--state-bytes", "20000", "--frames", "8")
    loader = millrace.connect(house.path())
    batches, states = [], []
    for batch in loader:
        batches.append(pickle.loads(pickle.dumps(batch)))
        states.append(loader.state_dict())
        assert batch.state_dict() == states[-1]
    assert [b.state_dict() for b in batches] == states, "whatever was fetched since"
    loader.close()
    for i, ahead in ((0, 1), (2, 1), (4, 3)):
        loader = millrace.connect(house.path())
        loader.load_state_dict(batches[i].state_dict())
        got = [next(loader) for _ in range(ahead)]
        assert [b.digest for b in got] == [b.digest for b in batches[i + 1 : i + 1 + ahead]]
        del got
        loader.close()


def test_the_state_is_shared(house):
    """The microbatches of a step share the text of its state, which is parsed on demand."""
    house.start(*SHAPE, "--state-bytes", "20000", "--frames", "8")
    loader = millrace.connect(house.path())
    first, second = next(loader), next(loader)
    assert first._metadata.state.text is second._metadata.state.text
    first.state_dict()["step"] = 99
    assert first.state_dict()["step"] == 0


if not importlib.util.find_spec("torch"):

    def test_moving_needs_torch(house):
        house.start(*SHAPE)
        batch = next(millrace.connect(house.path()))
        for move in (lambda: batch.to("cpu"), batch.pin_memory):
            with pytest.raises(ImportError):
                move()
