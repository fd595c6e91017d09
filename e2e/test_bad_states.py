"""A damaged or forged state, rubbish on a socket and a second client are refused at once, and the run goes on."""

from __future__ import annotations

import copy
import json
import socket
import threading
import time
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import millrace
from conftest import variant
from harness import SOON

STEPS = 10
SHORT = variant({"stop": {"steps": STEPS}, "global_batch_size": 8, "micro_batch_size": 2, "sequence_length": 192})


def changed(state: Dict[str, Any], **keys: Any) -> Dict[str, Any]:
    return {**copy.deepcopy(state), **keys}


def flipped(text: str, at: int) -> str:
    """The text with one bit of one character flipped: it stays a letter or a digit if one flip does that."""
    others = [c for c in (chr(ord(text[at]) ^ 1 << bit) for bit in range(6)) if c.isalnum()]
    return text[:at] + (others or ["A"])[0] + text[at + 1 :]


def damaged(good: Dict[str, Any], inside: Dict[str, Any]) -> Iterator[Tuple[Dict[str, Any], str]]:
    """Damaged and forged states, and the reason that a trainer gets. `inside` was saved in the middle of a step."""
    for key in ("millrace", "step", "planner", "sources", "identity"):
        yield {k: v for k, v in good.items() if k != key}, "read state"
    yield {}, "it is no state of a run"
    yield {"epoch": 3, "global_step": 1200}, "it is no state of a run"
    yield changed(good, millrace=99), "its format is version 99"
    for wrong, words in (
        ("3", "a string, not a whole number"), (-1, "the number -1, not a whole"), (1.5, "the number 1.5, not"),
        (10**30, "the number 10+, not"), ([3], "an array, not a whole number"), (True, "a bool, not a whole number"),
    ):  # fmt: skip
        yield changed(good, step=wrong), f'its key "step" holds {words}'
        yield changed(good, attempt=wrong), 'its key "attempt" holds'
    yield changed(good, planner=7), 'its key "planner" holds a number, not a string'
    yield changed(good, live=[1]), 'its key "live" holds an array, not an object'
    for step in (0, good["step"] + 1, 2**63, 2**64 - 1):
        yield changed(good, step=step), "but its planner stands at"
    planner, sources = good["planner"], good["sources"]
    for cut in (0, 1, len(planner) // 2, len(planner) - 1):
        yield changed(good, planner=planner[:cut]), "planner state"
    for at in range(0, len(planner), 7):
        yield changed(good, planner=flipped(planner, at)), "its sum does not match|no planner state"
    yield changed(good, planner=planner * 50), "its sum does not match|no planner state"
    yield changed(good, sources=sources[: len(sources) // 2]), "its sources are not readable|names . sources|identity"
    for at in range(1, 6):
        yield changed(good, sources=flipped(sources, at)), "not readable|another identity"
    for wrong in (None, [], "x", 7, {}, {"fingerprint": 5}, {"fingerprint": "ab"}):
        yield changed(good, identity=wrong), "read identity"
    other = changed(good["identity"], fingerprint=flipped(good["identity"]["fingerprint"], 3))
    yield changed(good, identity=other), "another identity.*override="
    for wrong in (10**9, -1, 2**32, "1", 0.5):
        yield changed(inside, microbatch=wrong), 'after 1000000000 of its microbatches|its key "microbatch" holds'
    for wrong in ("", "zz", inside["placement"][:-1]):
        yield changed(inside, placement=wrong), "is no digest"
    yield changed(inside, placement=5), 'its key "placement" holds a number'


def refused(path: str, state: Dict[str, Any], reason: str) -> None:
    began = time.monotonic()
    with millrace.connect(path, tensors="numpy") as loader:
        loader.load_state_dict(state)
        with pytest.raises(millrace.RunError, match=reason):
            next(loader)
    assert time.monotonic() - began < SOON


def state_of(delivered: Any, step: int, microbatch: int, rank: int = 0) -> Dict[str, Any]:
    state: Dict[str, Any] = json.loads(
        next(b.state for b in delivered.ranks[rank] if (b.step, b.microbatch) == (step, microbatch))
    )
    return state


def test_damaged_states(stage: Any) -> None:
    """Each is refused with its reason, and a good state then starts the run."""
    whole = stage.delivered(SHORT, 1, states=True)
    good, inside = state_of(whole, 3, 3), state_of(whole, 4, 0)
    with stage.up(SHORT, 1) as run:
        count = 0
        for state, reason in damaged(good, inside):
            refused(run.sockets()[0], state, reason)
            count += 1
        assert count > 60
        delivered = run.train(state=good)
        assert run.wait() == 0
    assert delivered.bytes() == {slot: d for slot, d in whole.bytes().items() if slot[0] >= 4}


def test_a_state_of_another_mixture(stage: Any) -> None:
    """The error names each part that differs, with both values."""
    whole = stage.delivered(SHORT, 1, states=True)
    state = state_of(whole, 3, 3)
    with stage.up({**SHORT, "seed": 12, "sequence_length": 256}, 1) as run:
        refused(run.sockets()[0], state, r"another identity: .*seed: 11 -> 12; sequence_length: 192 -> 256;.*override=")
        with millrace.connect(run.sockets()[0], tensors="numpy", start="fresh") as loader:
            assert next(loader).step == 0


def test_nobody_else_is_harmed(stage: Any) -> None:
    """A rank that returns with a damaged state, a second client, and rubbish on the socket stop nobody."""
    whole = stage.delivered(SHORT, 2, states=True)
    got: Dict[Tuple[int, int, int], str] = {}

    def take(rank: int, loader: Any, upto: int) -> None:
        for batch in loader:
            got[batch.step, rank, batch.microbatch] = batch.digest
            if (batch.step, batch.microbatch + 1) == (upto, batch.num_microbatches):
                break

    def train(loaders: List[Any], upto: int) -> None:
        threads = [threading.Thread(target=take, args=(r, l, upto)) for r, l in enumerate(loaders)]
        [t.start() for t in threads]
        for t in threads:
            t.join(60)
            assert not t.is_alive()

    with stage.up(SHORT, 2) as run:
        loaders = [millrace.connect(path, tensors="numpy") for path in run.sockets()]
        train(loaders, 2)
        for path in run.sockets():
            with pytest.raises(millrace.RunError, match="served to process"):
                next(millrace.connect(path, tensors="numpy", start="latest"))
            for rubbish in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\xff" * 70_000):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                    client.connect(path)
                    client.send(rubbish)
        loaders[0].close()
        good = state_of(whole, 2, 1)
        for state, reason in list(damaged(good, state_of(whole, 3, 0)))[::5]:
            refused(run.sockets()[0], state, reason)
        loaders[0] = millrace.connect(run.sockets()[0], tensors="numpy")
        loaders[0].load_state_dict(good)
        train(loaders, STEPS - 1)
        for loader in loaders:
            assert list(loader) == []
        assert run.wait() == 0
    assert got == whole.bytes()
