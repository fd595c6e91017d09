"""Batches on devices: copies that run ahead of the trainer change no byte, no commit and no state.

The CPU as a device takes the same way as a CUDA device. Where PyTorch sees a CUDA device, the tests run on it, too.
`make test-adapters` runs this file."""

from __future__ import annotations

import threading
import time

import pytest
import torch

import millrace


DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
SHAPE = ("--steps", "6", "--microbatches", "2", "--rows", "2", "--length", "32")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def digests(house, **settings):
    with millrace.connect(house.path(), tensors="torch", start="fresh", **settings) as loader:
        return [(b.step, b.microbatch, b.digest, b.state_dict()) for b in loader]


def restart(house, *args):
    house.stop()
    house.start(*args)


def committed(house):
    return max((e["Slot"]["Step"] for e in house.events if e["Kind"] == "committed"), default=-1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", ["packed", "varlen"])
def test_copies_are_the_batches(house, device, layout):
    shape = (*SHAPE, "--layout", layout)
    house.start(*shape)
    want = digests(house)
    for prefetch in (0, 1, 3):
        restart(house, *shape)
        assert digests(house, device=device, prefetch=prefetch) == want


@pytest.mark.parametrize("device", DEVICES)
def test_a_copy_is_the_trainers_own(house, device):
    """A trainer may keep and change every copy: no frame is held, and none is copied on the host."""
    house.start("--steps", "40", "--microbatches", "1", "--rows", "1", "--length", "32", "--frames", "3")
    want = digests(house)
    restart(house, "--steps", "40", "--microbatches", "1", "--rows", "1", "--length", "32", "--frames", "3")
    loader = millrace.connect(house.path(), device=device, prefetch=2)
    kept = list(loader)
    assert all(t.device.type == device for batch in kept for t in batch.values())
    assert [(b.step, b.microbatch, b.digest, b.state_dict()) for b in kept] == want
    assert loader.stats()["copied_batches"] == 0
    kept[0]["tokens"].zero_()
    assert kept[1].digest == want[1][2] and kept[0].segments[0].length > 0
    loader.close()


@pytest.mark.parametrize("device", DEVICES)
def test_commits_and_state_follow_the_returned_batch(house, device):
    house.start("--steps", "20", "--microbatches", "1", "--rows", "1", "--length", "32", "--frames", "8")
    loader = millrace.connect(house.path(), device=device, prefetch=4)
    for step in range(6):
        batch = next(loader)
        deadline = time.monotonic() + 10
        while committed(house) < step - 1 and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(0.02)
        assert batch.step == step and committed(house) == step - 1
        assert loader.state_dict() == batch.state_dict() and loader.state_dict()["step"] == step + 1
    assert loader.stats()["batches"] == 10  # four are on the device already
    state = loader.state_dict()
    loader.close()
    again = millrace.connect(house.path(), device=device, prefetch=4)
    again.load_state_dict(state)
    assert next(again).step == 6


@pytest.mark.parametrize("device", DEVICES)
def test_no_batch_is_lost_or_repeated_when_the_sidecar_dies(house, device):
    house.start(*SHAPE)
    want = digests(house)
    restart(house, *SHAPE)
    loader = millrace.connect(house.path(), start="fresh", device=device, prefetch=3)
    got = []
    for batch in loader:
        got.append((batch.step, batch.microbatch, batch.digest, batch.state_dict()))
        if len(got) in (1, 4, 5, 8):
            house.kill()
            house.start()
    assert got == want and loader.stats()["connections"] >= 4


@pytest.mark.parametrize("device", DEVICES)
def test_views_apply_to_the_copy(house, device):
    house.start(*SHAPE)
    plain = next(millrace.connect(house.path(), tensors="torch", keys="hf"))
    labels, digest = plain["labels"].clone(), plain.digest
    restart(house, *SHAPE)
    batch = next(millrace.connect(house.path(), device=device, prefetch=1, keys="hf"))
    assert list(batch) == ["input_ids", "position_ids", "labels", "shift_labels"] and batch.digest == digest
    assert batch["labels"].device.type == device and torch.equal(batch["labels"].cpu(), labels)


def test_a_frame_is_released_after_its_copy(house):
    """Frames of copies that have not ended stay held; hanging up waits for the copies."""
    house.start("--steps", "40", "--microbatches", "1", "--rows", "1", "--length", "32", "--frames", "8")
    loader = millrace.connect(house.path(), device="cpu", prefetch=2)
    while next(loader).step < 20 and len(loader._stream._ahead) < 2:
        time.sleep(0.02)
    gate = threading.Event()
    loader._stream.frames.copies._device._copier.submit(gate.wait, 10)
    next(loader), next(loader)  # copied before the gate
    loader._stream.frames.copies.release()
    assert loader.stats()["held_frames"] == len(loader._stream._ahead)
    threading.Timer(0.3, gate.set).start()
    began = time.monotonic()
    next(loader)
    assert time.monotonic() - began > 0.2
    while loader.stats()["held_frames"] and time.monotonic() - began < 10:
        loader._stream.frames.copies.release()
    assert loader.stats()["held_frames"] == 0
    gate.clear()
    loader._stream.frames.copies._device._copier.submit(gate.wait, 10)
    next(loader)
    threading.Timer(0.3, gate.set).start()
    began = time.monotonic()
    loader.close()
    assert time.monotonic() - began > 0.2


@pytest.mark.parametrize("settings, message", [
    ({"device": "nonsense"}, "want 'cpu', 'cuda' or 'cuda:<n>'"),
    ({"device": "meta"}, "want 'cpu', 'cuda' or 'cuda:<n>'"),
    ({"device": "cuda:99"}, "CUDA device"),
    ({"device": "cpu", "tensors": "numpy"}, "gives torch tensors"),
    ({"prefetch": 2}, "device="),
    ({"device": "cpu", "prefetch": -1}, "from 0 on"),
])  # fmt: skip
def test_wrong_settings(house, settings, message):
    with pytest.raises(ValueError, match=message):
        millrace.connect(house.path(), **settings)
