"""A run without faults, as a trainer sees it."""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import types
import warnings

import numpy as np
import pytest

import millrace

from conftest import AT_ONCE

STEPS, MICRO, ROWS, LENGTH = 5, 2, 2, 32
SHAPE = ("--steps", str(STEPS), "--microbatches", str(MICRO), "--rows", str(ROWS), "--length", str(LENGTH))


def token(source: int, ordinal: int, i: int) -> int:
    return (ordinal * 7919 + i + 31 * source) % 50_000


def test_every_batch(house):
    house.start(*SHAPE)
    with millrace.connect(house.path()) as loader:
        seen = []
        for batch in loader:
            seen.append((batch.step, batch.microbatch))
            assert batch.num_microbatches == MICRO and list(batch) == [
                "tokens",
                "labels",
                "position_ids",
                "segment_ids",
                "loss_mask",
            ]
            assert {k: (v.dtype.str, v.shape) for k, v in batch.items()} == {
                "tokens": ("<i8", (ROWS, LENGTH)),
                "labels": ("<i8", (ROWS, LENGTH)),
                "position_ids": ("<i8", (ROWS, LENGTH)),
                "segment_ids": ("<i4", (ROWS, LENGTH)),
                "loss_mask": ("<f4", (ROWS, LENGTH)),
            }
            assert all(v.flags.writeable and v.ctypes.data % 64 == 0 for v in batch.values())
            for s in batch.segments:
                source = ["books", "web"].index(s.source)
                want = [token(source, s.ordinal, s.offset + i) for i in range(s.length)]
                assert batch["tokens"][s.row, s.start : s.start + s.length].tolist() == want
                file = "corpus.bin" if s.source == "books" else f"part-{s.ordinal % 2}.jsonl.zst"
                assert s.id == f"{file}#{s.ordinal}" and s.epoch == s.ordinal % 2
        assert seen == [(s, m) for s in range(STEPS) for m in range(MICRO)]
        assert next(loader, None) is None
        assert loader.state_dict()["step"] == STEPS


@pytest.mark.parametrize("layout", ["packed", "varlen"])
def test_shapes_change(house, layout):
    """Each stage has its own shapes and number of microbatches. Kept tensors of the previous stage do not change."""
    longer = 2
    house.start(*SHAPE, "--longer", str(longer), "--layout", layout)
    with millrace.connect(house.path()) as loader:
        seen, kept = [], []
        for batch in loader:
            rows, length, of = (1, 2 * LENGTH, MICRO * ROWS) if batch.step >= longer else (ROWS, LENGTH, MICRO)
            assert (
                batch["tokens"].shape == ((rows, length) if layout == "packed" else (rows * length,))
                and batch.num_microbatches == of
            )
            seen.append((batch.step, batch.microbatch))
            if batch.microbatch == 0 and batch.step in (0, longer):
                kept.append((batch["tokens"], batch["tokens"].copy()))
            state = loader.state_dict()
            assert (state["step"], state.get("microbatch", 0)) == (
                (batch.step, batch.microbatch + 1) if batch.microbatch + 1 < of else (batch.step + 1, 0)
            )
        assert seen == [(s, m) for s in range(STEPS) for m in range(MICRO * ROWS if s >= longer else MICRO)]
        assert all((view == copy).all() for view, copy in kept)


def test_varlen(house):
    house.start(*SHAPE, "--layout", "varlen")
    batch = next(millrace.connect(house.path()))
    assert list(batch) == ["tokens", "labels", "position_ids", "loss_mask", "cu_seqlens", "max_seqlen"]
    assert batch["tokens"].shape == (ROWS * LENGTH,) and batch["max_seqlen"].shape == ()
    assert batch["cu_seqlens"].tolist() == [0, *np.cumsum([s.length for s in batch.segments]).tolist()]
    assert len(batch.digest) == 32


def test_digests(house):
    house.start(*SHAPE)
    batch = next(millrace.connect(house.path()))
    h = hashlib.blake2b(digest_size=16)
    for name in sorted(batch):
        a = batch[name]
        h.update(
            name.encode()
            + b"\0"
            + a.dtype.str.encode()
            + b"\0"
            + ",".join(map(str, a.shape)).encode()
            + b"\0"
            + a.tobytes()
        )
    assert batch.digest == h.hexdigest()
    before = batch.digest
    batch["tokens"][0, 0] += 1
    assert batch.digest != before, "the digest must be of the tensors as they are"
    h = hashlib.blake2b(digest_size=16)
    for s in sorted(batch.segments, key=lambda s: (s.source, s.ordinal, s.offset)):
        h.update(s.source.encode() + b"\0" + b"".join(n.to_bytes(8, "little") for n in (s.ordinal, s.offset, s.length)))
    assert millrace.content_digest(reversed(batch.segments)) == h.hexdigest()
    halves = []
    for s in batch.segments:  # of a pair, the plan has one segment
        if s.offset == 0 and s.length > 1:
            halves += [s._replace(length=1), s._replace(offset=1, length=s.length - 1)]
            halves[-2].pair, halves[-1].pair = "chosen", "rejected"
        else:
            halves.append(s)
    assert len(halves) > len(batch.segments)
    assert millrace.content_digest(halves) == h.hexdigest()


def test_states(house, at_once):
    """States are equal on all ranks, belong to the last returned batch, and restore at every batch."""
    house.start(*SHAPE, "--ranks", "2", "--state-bytes", "20000")

    def states(rank, state=None):
        def run():
            loader = millrace.connect(house.path(rank))
            if state is not None:
                loader.load_state_dict(state)
            out = [loader.state_dict()]
            digests = []
            for batch in loader:
                digests.append(batch.digest)
                out.append(loader.state_dict())
            loader.close()
            return out, digests

        return run

    (a, digests), (b, _) = at_once(states(0), states(1))
    assert a == b and a[0] == {"start": "fresh"}
    assert [s["step"] for s in a[1:]] == [(i + 1) // MICRO for i in range(STEPS * MICRO)]
    assert all(("microbatch" in s) == bool(i % MICRO) for i, s in enumerate(a))
    assert a[1]["big"] == 1 << 63, "integers must survive"
    for i in (0, 1, 2, 3, STEPS * MICRO):
        saved = json.loads(json.dumps(a[i]))
        (c, again), _ = at_once(states(0, saved), states(1, saved))
        assert again == digests[i:], f"from the state after batch {i}"
        assert c[0] == saved and c[1:] == a[i + 1 :]


def test_commits(house):
    """A step is committed when the trainer asks for the batch after the step's last one, and not before."""
    house.start(*SHAPE)
    loader = millrace.connect(house.path())
    for _ in range(MICRO):
        next(loader)
    house.until("pushed", 2 * MICRO)
    assert not [e for e in house.events if e["Kind"] == "committed"]
    next(loader)
    assert house.until("committed")["Slot"]["Step"] == 0
    loader.checkpoint_saved(0)
    assert house.until("saved")["Slot"]["Step"] == 0
    loader.close()
    house.until("gone")
    again = millrace.connect(house.path(), start="latest")
    assert next(again).step == 1
    list(again)
    house.until("ended")
    assert [e["Slot"]["Step"] for e in house.events if e["Kind"] == "committed"][-1] == STEPS - 1
    again.checkpoint_saved(STEPS - 1)
    assert house.until("saved", 2)["Slot"]["Step"] == STEPS - 1


@pytest.mark.parametrize("keep", ["batches", "tensors", "views"])
def test_keeping_everything(house, keep):
    """A trainer that keeps every batch gets copies and one warning, and no kept batch changes."""
    house.start("--steps", "40", "--microbatches", "1", "--rows", "1", "--length", "32", "--frames", "3")
    loader = millrace.connect(house.path())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if keep == "batches":
            kept = list(loader)
        elif keep == "tensors":
            kept = [batch["tokens"] for batch in loader]
        else:
            kept = [batch["tokens"][0, 3:9] for batch in loader]
    assert [w.filename for w in caught if w.category is RuntimeWarning] == [__file__]
    assert loader.stats()["copied_batches"] == 38 and loader.stats()["held_frames"] == 2
    firsts = [(k["tokens"][0, 3] if keep == "batches" else k.reshape(-1)[0 if keep == "views" else 3]) for k in kept]
    assert firsts == [token(0, i, 3) for i in range(40)]
    del kept
    assert loader.stats()["held_frames"] == 0


def test_no_copies_in_an_ordinary_loop(house):
    house.start("--steps", "40", "--frames", "3")
    loader = millrace.connect(house.path())
    for batch in loader:
        labels = batch["labels"][:, 1:]  # the trainer holds two batches while it asks for the next
    assert labels.size and loader.stats()["copied_batches"] == 0


def test_cycles_are_collected(house):
    """Batches in reference cycles cause no copies: the loader collects garbage before it copies."""
    house.start("--steps", "30", "--frames", "3")
    loader = millrace.connect(house.path())
    gc.disable()
    try:
        for batch in loader:
            knot = {"batch": batch}
            knot["self"] = knot
    finally:
        gc.enable()
    assert loader.stats()["copied_batches"] == 0


def test_release_from_another_thread(house):
    house.start("--steps", "30", "--microbatches", "1", "--frames", "3")
    loader = millrace.connect(house.path())
    for batch in loader:
        box = [batch]
        del batch
        t = threading.Thread(target=box.clear)
        t.start()
        t.join()
    house.until("released", 30)
    assert loader.stats()["copied_batches"] == 0


def test_larger_batches(house):
    house.start("--steps", "6", "--microbatches", "1", "--rows", "8", "--length", "512", "--crumbs", "2")
    kept = list(millrace.connect(house.path()))
    assert [len(b.segments) for b in kept] == [16, 16] + [8 * 512] * 4
    assert all(b["tokens"][0, 5] == token(0, b.segments[0].ordinal, 5) for b in kept)


def test_auto_uses_torch_if_it_is_imported(house, monkeypatch):
    """auto gives torch tensors over the same memory if torch is imported at connect(); a stand-in records the call. A
    later import changes nothing."""
    house.start(*SHAPE)
    before = millrace.connect(house.path())
    wrapped = []
    monkeypatch.setitem(
        sys.modules, "torch", types.SimpleNamespace(from_numpy=lambda a: wrapped.append(a) or memoryview(a))
    )
    assert isinstance(next(before)["tokens"], np.ndarray)
    before.close()
    auto = millrace.connect(house.path(), tensors="auto", start="latest")
    batch = next(auto)
    assert isinstance(batch["tokens"], memoryview) and len(wrapped) == 1
    assert all(isinstance(tensor, memoryview) for tensor in batch.values()) and len(wrapped) == 5
    auto.close()
    plain = millrace.connect(house.path(), tensors="numpy", start="latest")
    assert isinstance(next(plain)["tokens"], np.ndarray)


def test_tensors_should_be_named_if_torch_waits(house, monkeypatch):
    """If torch is installed and not imported, an import elsewhere would decide the kind of tensors."""
    house.start(*SHAPE)
    monkeypatch.setattr("millrace._loader.is_installed", lambda module: module == "torch")
    with pytest.warns(UserWarning, match='torch is installed but not imported: batches are NumPy arrays'):
        loader = millrace.connect(house.path(), start="fresh")
    assert isinstance(next(loader)["tokens"], np.ndarray)
    loader.close()
    for named in ("numpy", "auto"):
        loader = millrace.connect(house.path(), tensors=named, start="fresh")
        assert isinstance(next(loader)["tokens"], np.ndarray)
        loader.close()


def test_tensors_are_made_once_in_order(house):
    """A batch makes a tensor when it is asked for, and returns the same one from then on."""
    house.start(*SHAPE)
    first, second = itertools.islice(millrace.connect(house.path(), tensors="numpy"), 2)
    mask = first["loss_mask"]
    assert list(first) == list(second) == list(dict(second)) and len(first) == 5
    assert first["loss_mask"] is mask and dict(first)["loss_mask"] is mask
    with pytest.raises(KeyError, match="images"):
        first["images"]
    assert first.get("images") is None and "images" not in first


def test_a_batch_costs_few_calls(house):
    """The trainer's CPU time for a batch that is ready follows the number of calls, which load does not change."""
    house.start("--microbatches", "16", "--rows", "2", "--length", "64")
    loader = millrace.connect(house.path(), tensors="numpy")
    batch = next(loader)
    calls, all_made = [], []

    def count(frame, event, of):
        calls.append(getattr(of, "__name__", frame.f_code.co_name) if event in ("call", "c_call") else None)

    for _ in range(9):
        sys.setprofile(count)
        fresh = next(loader)
        array = fresh["tokens"]
        batch = fresh  # releases the batch before
        sys.setprofile(None)
        made = [name for name in calls if name is not None]
        assert array.size == 128 and batch.microbatch > 0
        assert made.count("recvmsg_into") == 1, repr(made)
        if sys.version_info >= (3, 11):  # older profilers do not see the calls of a weak reference's callback
            assert made.count("send") == 1, repr(made)
        all_made.append(made)
        calls.clear()
    fewest = min(all_made, key=len)  # a batch that was not ready takes more: its wait is noted
    assert len(fewest) <= 40, repr(fewest)


def test_errors_of_the_start(house, at_once):
    house.start(*SHAPE, "--ranks", "2", "--history")
    loaders = [millrace.connect(house.path(r)) for r in range(2)]
    for e in at_once(*(lambda l=l: next(l) for l in loaders)):
        assert isinstance(e, millrace.StartError) and "has history" in str(e)
    loaders[0].load_state_dict({"seed": 1234, "step": 2})
    for e in at_once(*(lambda l=l: next(l) for l in loaders)):
        assert isinstance(e, millrace.RunError) and "differ" in e.reason
    for l in loaders:
        l.load_state_dict({"seed": 99, "step": 2})
    for e in at_once(*(lambda l=l: next(l) for l in loaders)):
        assert isinstance(e, millrace.RunError) and "seed changed" in e.reason
    for l in loaders:
        l.load_state_dict({"seed": 99, "step": 2}, override=["seed"])
    assert [b.step for b in at_once(*(lambda l=l: next(l) for l in loaders))] == [2, 2]


def test_a_second_loader_is_refused(house):
    house.start(*SHAPE)
    first, second = millrace.connect(house.path()), millrace.connect(house.path())
    next(first)
    began = time.monotonic()
    with pytest.raises(millrace.RunError, match=f"served to process {os.getpid()}"):
        next(second)
    assert time.monotonic() - began < AT_ONCE
    first.close()
    second = millrace.connect(house.path(), start="latest")
    assert next(second).step == 0


def test_a_failed_run(house, at_once):
    house.start(*SHAPE, "--ranks", "2", "--fail-at", "2")
    loaders = [millrace.connect(house.path(r)) for r in range(2)]
    for e in at_once(*(lambda l=l: list(l) for l in loaders)):
        assert isinstance(e, millrace.RunError) and e.reason == "source web: part-0.jsonl.zst is truncated"
    with pytest.raises(millrace.RunError):
        next(loaders[0])


def test_where(house, monkeypatch):
    house.start(*SHAPE, "--ranks", "2", "--steps", "1")
    monkeypatch.delenv("MILLRACE_SOCKET", raising=False)
    monkeypatch.delenv("MILLRACE_RUN_DIR", raising=False)
    with pytest.raises(ValueError, match="MILLRACE_RUN_DIR"):
        millrace.connect()
    monkeypatch.setenv("MILLRACE_RUN_DIR", str(house.dir))
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert millrace.connect()._stream.path == house.path(1)
    monkeypatch.setenv("MILLRACE_SOCKET", house.path(0))
    assert millrace.connect()._stream.path == house.path(0)
    assert millrace.connect(str(house.dir))._stream.path == house.path(1)


def test_where_on_one_of_several_hosts(house, monkeypatch):
    """Sockets have the rank's number in the whole run, also before `up` has made them."""
    from millrace._where import find_socket

    for name in ("MILLRACE_SOCKET", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    directory = str(house.dir)
    for variables, rank in (
        ({"LOCAL_RANK": "1"}, 1),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, 1),
        ({"RANK": "17", "WORLD_SIZE": "32", "LOCAL_WORLD_SIZE": "16"}, 17),
    ):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert find_socket(directory) == os.path.join(directory, f"rank-{rank}.sock")
    house.start(*SHAPE, "--ranks", "2", "--steps", "1")
    assert find_socket(directory) == house.path(1), "the run on this host alone serves LOCAL_RANK"


def test_long_paths(binary, tmp_path):
    from conftest import House

    deep = tmp_path.joinpath(*["a-long-name-of-a-directory"] * 5)
    deep.mkdir(parents=True)
    h = House(binary, deep).start(*SHAPE)
    try:
        assert len(h.path()) > 107 and sum(1 for _ in millrace.connect(h.path())) == STEPS * MICRO
    finally:
        assert h.stop() == 0
        h.give_up()
    assert not list(deep.iterdir())


def test_misuse(house):
    house.start(*SHAPE)
    loader = millrace.connect(house.path())
    with pytest.raises(TypeError, match="no length"):
        len(loader)
    with pytest.raises(TypeError):
        loader.load_state_dict("state")
    with pytest.raises(TypeError, match="another process"):
        import pickle

        pickle.dumps(loader)
    with pytest.raises(ValueError):
        millrace.connect(house.path(), tensors="tensorflow")
    with pytest.raises(ValueError):
        millrace.connect(house.path(), start="yesterday")
    next(loader)
    loader.close()
    loader.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(loader)


def test_installs_without_a_network(tmp_path):
    """pip installs this folder alone, with and without build isolation, and downloads nothing."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for extra in ([], ["--no-build-isolation"]):
        target = tmp_path / f"site{len(extra)}"
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check"]
            + [*extra, "--target", str(target), folder],
            check=True,
        )
        names = sorted(os.listdir(target / "millrace"))
        assert "py.typed" in names and "_loader.py" in names
        code = "import millrace, sys; print(millrace.__file__)"
        env = dict(os.environ, PYTHONPATH=str(target))
        out = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stdout
        assert str(target) in out


def test_axes(house):
    """Each rank knows its coordinates, its broadcast source and the loss tokens. Slices make up the whole
    microbatch."""
    # Rank = tp + 2 * (cp + 2 * (dp + 1 * pp)).
    house.start(*SHAPE, "--ranks", "8", "--tp", "2", "--cp", "2", "--pp", "2", "--pad", "4", "--broadcast-tp")
    loaders = [millrace.connect(house.path(rank), tensors="numpy") for rank in range(8)]
    for axes in ("topology", "coordinates"):
        with pytest.raises(RuntimeError, match=f"loader.{axes} is not known yet.*after the first batch"):
            getattr(loaders[0], axes)
    assert loaders[0].stats()["connections"] == 0, "the question has declared a start"
    got = [None] * 8
    threads = [threading.Thread(target=lambda r=r: got.__setitem__(r, next(loaders[r]))) for r in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for rank, (loader, batch) in enumerate(zip(loaders, got)):
        assert loader.topology == {"tp": 2, "cp": 2, "dp": 1, "pp": 2}
        assert loader.coordinates == {"tp": rank % 2, "cp": rank // 2 % 2, "dp": 0, "pp": rank // 4}
        assert batch.segments == got[0].segments and [s.holder for s in batch.slices] == [None] * len(batch.segments)
        assert batch.shapes == got[0].shapes and batch.shapes["tokens"] == ((ROWS, LENGTH // 2), np.dtype("<i8"))
        if rank % 2:
            assert len(batch) == 0 and batch.broadcast_source == rank - 1 and f"on rank {rank - 1}" in repr(batch)
        else:
            assert batch.broadcast_source is None and batch["labels"].shape == (ROWS, LENGTH // 2)
    for first in (0, 4):
        labels = [got[rank]["labels"] for rank in (first, first + 2)]
        assert sum(int((x != -100).sum()) for x in labels) == got[0].loss_tokens == got[1].loss_tokens
    assert got[0].step_loss_tokens == got[0].loss_tokens + next(loaders[0]).loss_tokens
    tokens = np.sort(np.concatenate([got[r]["tokens"] for r in (0, 2)], axis=1), axis=1)
    whole = [[], []]
    for s in got[0].segments:
        whole[s.row] += [token(["books", "web"].index(s.source), s.ordinal, s.offset + i) for i in range(s.length)]
    assert tokens.tolist() == [sorted(row) for row in whole]
