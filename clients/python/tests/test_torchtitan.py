"""torchtitan's loader contract. It runs where torchtitan is installed: `make test-adapters` installs it."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("torchtitan.components.dataloader", exc_type=ImportError)

import torch  # noqa: E402
from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402

import millrace  # noqa: E402
import millrace.torchtitan  # noqa: E402

STEPS, MICRO, ROWS, LENGTH = 4, 2, 2, 32
SHAPE = ("--steps", str(STEPS), "--microbatches", str(MICRO), "--rows", str(ROWS), "--length", str(LENGTH))


def build(house, **changes):
    """Builds the loader as torchtitan's Trainer does."""
    arguments = {
        "dp_world_size": 1,
        "dp_rank": 0,
        "tokenizer": None,
        "seq_len": LENGTH,
        "local_batch_size": ROWS,
        "snapshot_every_n_steps": 2 * MICRO,
    }
    return millrace.torchtitan.DataLoader.Config(path=house.path()).build(**{**arguments, **changes})


def test_contract(house):
    house.start(*SHAPE)
    data = build(house)
    assert isinstance(data, BaseDataLoader)
    taken = 0
    for inputs, labels in data:
        assert type(inputs) is dict and sorted(inputs) == ["input", "positions"]
        for key, value in inputs.items():
            inputs[key] = value.to("cpu")  # as its train_step does
        assert inputs["input"].shape == inputs["positions"].shape == labels.shape == (ROWS, LENGTH)
        assert torch.equal(inputs["input"][0, 1:9], labels[0, :8]), "labels are not shifted"
        taken += 1
    assert taken == STEPS * MICRO
    data.close()


def test_a_state_continues(house):
    house.start(*SHAPE)
    data = build(house)
    assert set(data.state_dict()) == {"json"}, "DCP reads the keys of a new loader"
    batches = iter(data)
    for _ in range(MICRO):
        next(batches)
    state = data.state_dict()
    expected = next(batches)[1].clone()
    data.close()
    again = build(house)
    again.load_state_dict({})
    again.load_state_dict(state)
    assert torch.equal(next(iter(again))[1], expected)
    again.close()


@pytest.mark.parametrize(
    "changes, cure",
    [
        ({"dp_rank": 1, "dp_world_size": 2}, "rank 1 of 2 reads rank 0 of 1: give `parallelism:`"),
        ({"seq_len": 64}, "set micro_batch_size: 2 and sequence_length: 64"),
        ({"local_batch_size": 4}, "set micro_batch_size: 4 and sequence_length: 32"),
    ],
)
def test_what_torchtitan_expects(house, changes, cure):
    house.start(*SHAPE)
    with pytest.raises(millrace.MisuseError) as refused:
        next(iter(build(house, **changes)))
    assert cure in str(refused.value)


def test_another_accumulation_is_said(house, caplog):
    """torchtitan that takes one microbatch a step saves inside a step of the run."""
    house.start(*SHAPE)
    data = build(house)
    next(iter(data))
    with caplog.at_level(logging.WARNING, "millrace"):
        data.state_dict()
        data.state_dict()
    assert [r.message.startswith("the checkpoint is inside step 0 of the run, after 1") for r in caplog.records] == [
        True
    ]
    data.close()


def test_the_last_step_counts_when_it_closes(house):
    """torchtitan counts steps itself and asks for no batch after the last one."""
    house.start(*SHAPE)
    data = build(house)
    batches = iter(data)
    for _ in range(STEPS * MICRO):
        next(batches)
    data.close()
    assert house.until("ended")["Slot"]["Step"] == STEPS
