"""Deaths of processes, as a trainer sees them."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import millrace

SRC = str(Path(__file__).resolve().parent.parent / "src")
SHAPE = ("--steps", "6", "--microbatches", "3", "--rows", "2", "--length", "32")


def digests(house, **kw):
    with millrace.connect(house.path(), **kw) as loader:
        return [b.digest for b in loader]


def test_sidecar_killed_at_every_batch(house):
    """kill -9 of the sidecar while the trainer holds tensors: they do not change, and the rank continues at its
    position."""
    house.start(*SHAPE, "--frames", "3")
    want = digests(house)
    loader = millrace.connect(house.path(), start="fresh")
    got, held = [], []
    for batch in loader:
        got.append(batch.digest)
        held = [batch["tokens"], batch["tokens"].copy()]
        house.kill()
        batch["labels"][0, 0] = 7  # the tensors are still writable
        house.start()
        if len(got) % 2:
            del batch  # a release on a connection that is gone must not raise
        assert np.array_equal(*held)
    assert got == want
    # Batches that were pushed before the death are complete and are used: three at most.
    assert loader.stats()["connections"] >= 6
    house.until("ended", 2)
    commits = [e["Slot"]["Step"] for e in house.events if e["Kind"] == "committed"]
    assert commits[-1] == 5 and set(commits) == set(range(6))


def test_the_wait_is_named(house, caplog, monkeypatch):
    monkeypatch.setattr("millrace._patience.SAY_FIRST", 0.05)
    house.start(*SHAPE)
    loader = millrace.connect(house.path())
    next(loader)
    house.kill()
    back = threading.Timer(0.5, house.start)
    with caplog.at_level(logging.WARNING, "millrace"):
        back.start()
        for _ in range(12):
            next(loader)
    back.join()
    assert "waiting for step " in caplog.text and "the sidecar at" in caplog.text


def test_the_sidecar_says_what_it_waits_for(house, caplog, monkeypatch):
    monkeypatch.setattr("millrace._patience.SAY_FIRST", 0.5)
    house.start(*SHAPE, "--ranks", "2")
    loader = millrace.connect(house.path(0))
    other = threading.Timer(2.5, lambda: next(millrace.connect(house.path(1))))
    other.start()
    with caplog.at_level(logging.WARNING, "millrace"):
        next(loader)
    other.join()
    assert "waiting for the run to begin" in caplog.text and "1 of 2 ranks are here" in caplog.text


def test_up_is_dead(house):
    """While `up` lives, a rank waits for the sidecar. Without `up` it raises, and the message says so."""
    house.start(*SHAPE)
    loader = millrace.connect(house.path(), patience=0.5)
    next(loader)
    house.kill()
    gone = threading.Timer(2.0, house.give_up)
    gone.start()
    began = time.monotonic()
    for _ in range(30):
        try:
            next(loader)
        except millrace.RunError as e:
            assert "no `millrace up`" in e.reason
            break
    else:
        pytest.fail("no error")
    assert time.monotonic() - began > 1.9, "it gave up while `up` was alive"
    gone.join()


def test_up_is_started_again(house, monkeypatch, caplog):
    """`up` is killed with all its children and started again: the rank continues by itself with the same batches."""
    monkeypatch.setenv("MILLRACE_PATIENCE", "20")
    monkeypatch.setattr("millrace._patience.SAY_FIRST", 0.2)
    house.start(*SHAPE)
    want = digests(house)
    loader = millrace.connect(house.path(), start="fresh")
    got = [next(loader).digest, next(loader).digest]
    house.give_up()
    house.kill()
    again = threading.Timer(2.0, lambda: (house.take_over(), house.start()))
    again.start()
    with caplog.at_level(logging.WARNING, "millrace"):
        got += [b.digest for b in loader]
    again.join()
    assert got == want and loader.stats()["connections"] == 2
    assert "is away" in caplog.text and "waiting is over after" in caplog.text


def test_patience_is_a_number(house, monkeypatch):
    monkeypatch.setenv("MILLRACE_PATIENCE", "long")
    with pytest.raises(ValueError, match="MILLRACE_PATIENCE='long'"):
        millrace.connect(house.path())


def test_rolling_restart(house):
    """Each sidecar gets SIGTERM and is replaced: the trainer uses the batches of the old one, and no batch is lost or
    repeated."""
    house.start(*SHAPE, "--frames", "3")
    want = digests(house)
    loader = millrace.connect(house.path(), start="fresh")
    got = []
    for batch in loader:
        got.append(batch.digest)
        del batch
        if len(got) % 4 == 0:
            assert house.stop() == 0
            house.start()
    assert got == want and loader.stats()["connections"] > 2
    house.until("leaving")


def test_alerts_are_logged_once(house, caplog):
    house.start(*SHAPE, "--alert", "source web has no standby")
    loader = millrace.connect(house.path())
    with caplog.at_level(logging.WARNING, "millrace"):
        assert sum(1 for _ in loader) == 18
        assert caplog.text.count("alert (unprotected): source web has no standby") == 1
        loader._stream.tell_alerts([])
        assert caplog.text.count("alert is over (unprotected)") == 1


def test_the_outcome_is_told(house):
    house.start(*SHAPE)
    loader = millrace.connect(house.path())
    next(loader)
    (house.dir / "outcome.json").write_text('{"state": "failed", "reason": "source web ran dry"}')
    house.give_up()
    house.kill()
    with pytest.raises(millrace.RunError, match="source web ran dry"):
        list(loader)


def test_the_end_is_the_end(house):
    """`up` of a finished run may be gone before END arrives: a rank with the last batch has everything."""
    house.start("--steps", "1", "--microbatches", "2")
    loader = millrace.connect(house.path())
    next(loader), next(loader)
    house.give_up()
    house.kill()
    assert list(loader) == []


def test_nobody_there(tmp_path):
    with pytest.raises(millrace.RunError, match="no `millrace up` serves"):
        next(millrace.connect(str(tmp_path / "rank-0.sock"), wait=0.1))


def test_up_comes_later(house):
    late = threading.Timer(0.5, lambda: house.start(*SHAPE))
    late.start()
    assert next(millrace.connect(house.path())).step == 0
    late.join()


def test_trainer_killed(house, tmp_path):
    """kill -9 of a trainer that holds batches, while a forked child keeps its socket open: all frames come back."""
    house.start(*SHAPE, "--frames", "3")
    code = f"""
import os, sys, time
sys.path.insert(0, {SRC!r})
import millrace
loader = millrace.connect({house.path()!r}, tensors="numpy")
held = [next(loader), next(loader), next(loader), next(loader)]
if os.fork() == 0:
    del held
    time.sleep(600)
print("holding", flush=True)
time.sleep(600)
"""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout.readline() == "holding\n"
        process.kill()
        assert house.until("gone")["Pid"] == process.pid
        batch = next(millrace.connect(house.path(), start="latest"))
        assert (batch.step, batch.microbatch) == (1, 0)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_forked_child(house):
    """A forked child neither reads nor releases frames of its parent. The error asks it to connect by itself."""
    house.start(*SHAPE, "--frames", "3")
    loader = millrace.connect(house.path())
    batch = next(loader)
    before = batch.digest
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            next(loader)
        except RuntimeError as e:
            code = 0 if "belongs to process" in str(e) else 2
        del batch
        loader.__del__()
        os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert sum(1 for _ in loader) == 17 and batch.digest == before


def test_interrupt(house):
    """Ctrl-C during a wait raises at once. Afterwards no batch is lost or repeated."""
    house.start(*SHAPE)
    want = digests(house)
    house.stop()
    house.start(*SHAPE, "--plan-delay", "100ms")  # Even a slow machine waits for most batches.

    def handler(number, frame):
        # The place at which next() waits. Elsewhere in next() an exception may strike between returning a batch and
        # noting it, because Python cannot do both in one instruction.
        while frame is not None and loader._stream.place is not None:
            if frame.f_code.co_filename.endswith("_connection.py") and frame.f_code.co_name == "receive":
                raise KeyboardInterrupt
            frame = frame.f_back
        signal.setitimer(signal.ITIMER_REAL, 0.003)  # On a busy machine next() may not wait yet.

    old = signal.signal(signal.SIGALRM, handler)
    try:
        loader = millrace.connect(house.path(), start="fresh")
        got, interrupts = [], 0
        while len(got) < len(want):
            # The moment differs from batch to batch: at once, during the connect, during the wait.
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + 0.007 * (interrupts % 20))
            try:
                batch = next(loader)
            except KeyboardInterrupt:
                interrupts += 1
                continue
            got.append(batch.digest)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # The handler would set the timer again.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert interrupts > 3 and got == want and list(loader) == []


def test_close_while_waiting(house):
    house.start(*SHAPE, "--ranks", "2")
    loader = millrace.connect(house.path())
    closer = threading.Timer(0.3, loader.close)
    closer.start()
    with pytest.raises(RuntimeError, match="closed"):
        next(loader)
    closer.join()
    house.until("gone")


def test_a_lost_release_is_sent_later(house, monkeypatch):
    """Releases that the socket does not take are sent with the next call."""
    from millrace._connection import Connection

    house.start("--steps", "20", "--frames", "3", "--microbatches", "1")
    original, failures = Connection.release, []

    def stubborn(self, use):
        if len(failures) < 3:
            failures.append(use)
            raise BlockingIOError
        original(self, use)

    monkeypatch.setattr(Connection, "release", stubborn)
    assert sum(1 for _ in millrace.connect(house.path())) == 20
    assert len(failures) == 3


def test_a_lost_connection_leaves_no_descriptor(house):
    """The ring of a dead sidecar goes with its last view, without the garbage collector."""
    house.start("--steps", "20")
    loader = millrace.connect(house.path())
    held = next(loader)
    before = len(os.listdir("/proc/self/fd"))
    gc.disable()
    try:
        for _ in range(4):
            house.kill()
            house.start("--steps", "20")
            held = next(loader)
        assert held.step == 2 and len(os.listdir("/proc/self/fd")) <= before
    finally:
        gc.enable()
    loader.close()
