"""Uses that would give wrong batches or block for ever are refused at once, and the message names the right way."""

from __future__ import annotations

import abc
import json
import os
import pickle
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

import millrace

from conftest import AT_ONCE

SRC = str(Path(__file__).resolve().parent.parent / "src")
SHAPE = ("--steps", "4", "--microbatches", "2", "--rows", "2", "--length", "32")

# Accelerate reads a dataset on rank 0 alone, or gives each rank every n-th batch.
ACCELERATE = """
class DataLoaderDispatcher:
    def __init__(self, dataset, ranks):
        self.dataset, self.state = dataset, State(ranks)
    def __iter__(self):
        yield from self._fetch(iter(self.dataset))
    def _fetch(self, batches):
        for batch in batches:
            yield batch

class IterableDatasetShard:
    def __init__(self, dataset, ranks):
        self.dataset, self.num_processes = dataset, ranks
    def __iter__(self):
        for batch in self.dataset:
            yield batch

class State:
    def __init__(self, ranks):
        self.num_processes = ranks
"""


class Wrapped:
    """An iterable dataset of a user, as in examples."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for batch in self.loader:
            yield batch


def accelerate():
    module = types.ModuleType("accelerate.data_loader")
    exec(ACCELERATE, module.__dict__)
    return module


@pytest.mark.parametrize("reader", ["DataLoaderDispatcher", "IterableDatasetShard"])
@pytest.mark.parametrize("wrap", [lambda loader: loader, Wrapped], ids=["itself", "wrapped"])
def test_accelerate_may_not_split_batches_again(house, reader, wrap):
    house.start(*SHAPE, "--ranks", "2")
    began = time.monotonic()
    with pytest.raises(millrace.MisuseError, match="iterate the loader itself on every rank.*millrace.hf.Trainer"):
        next(iter(getattr(accelerate(), reader)(wrap(millrace.connect(house.path())), 2)))
    assert time.monotonic() - began < AT_ONCE


def test_one_rank_shares_with_nobody(house):
    house.start(*SHAPE)
    for reader in ("DataLoaderDispatcher", "IterableDatasetShard"):
        loader = millrace.connect(house.path(), start="fresh")
        assert sum(1 for _ in getattr(accelerate(), reader)(Wrapped(loader), 1)) == 8
        loader.close()


def test_the_check_can_be_turned_off(house, monkeypatch):
    house.start(*SHAPE)
    monkeypatch.setenv("MILLRACE_CHECK", "0")
    loader = millrace.connect(house.path())
    assert sum(1 for _ in accelerate().IterableDatasetShard(loader, 2)) == 8


def dcp():
    """Stand in for the module of DCP that saves: it calls the methods of a Stateful."""
    module = types.ModuleType("torch.distributed.checkpoint.state_dict_saver")
    exec("def save(state):\n    return {key: one.state_dict() for key, one in state.items()}\n", module.__dict__)
    return module


def test_dcp_gets_a_state_with_one_key(house):
    """The keys of a Stateful are the same before and after the first batch. The loader itself is refused."""
    house.start(*SHAPE)
    loader = millrace.connect(house.path())
    assert set(dcp().save({"loader": loader.dcp_state()})["loader"]) == {"json"}
    batch = next(loader)
    saved = dcp().save({"loader": loader.dcp_state()})["loader"]
    assert set(saved) == {"json"} and json.loads(saved["json"]) == batch.state_dict() == loader.state_dict()
    with pytest.raises(millrace.MisuseError, match=r"Give it loader\.dcp_state\(\) in place of the loader"):
        dcp().save({"loader": loader})
    again = millrace.connect(house.path())
    again.dcp_state().load_state_dict(saved)
    assert again.state_dict() == batch.state_dict()


def test_a_state_has_one_type(house):
    """An object of a user around the loader gets what everyone gets, also if DCP calls it."""
    house.start(*SHAPE)
    loader = millrace.connect(house.path())
    next(loader)
    around = types.SimpleNamespace(state_dict=lambda: loader.state_dict())
    assert dcp().save({"loader": around}) == {"loader": loader.state_dict()}


def test_a_torch_worker(house, monkeypatch):
    house.start(*SHAPE)
    worker = types.SimpleNamespace(get_worker_info=lambda: types.SimpleNamespace(id=0))
    monkeypatch.setitem(sys.modules, "torch.utils.data._utils.worker", worker)
    with pytest.raises(millrace.MisuseError, match="num_workers=0"):
        next(millrace.connect(house.path()))


def test_a_forked_child(house):
    house.start(*SHAPE)
    loader = millrace.connect(house.path())
    read, write = os.pipe()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            next(iter(loader))
        except millrace.MisuseError as e:
            os.write(write, str(e).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert time.monotonic() - began < AT_ONCE
    assert b"call millrace.connect() in the process that trains" in os.read(read, 4096)
    assert next(loader).step == 0


def test_no_length_and_no_other_process(house):
    house.start(*SHAPE)
    loader = millrace.connect(house.path())
    with pytest.raises(TypeError, match=r"no length.*batch_size=None"):
        len(loader)
    with pytest.raises(TypeError, match="another process"):
        pickle.dumps(loader)


@pytest.mark.parametrize("kind", [type, abc.ABCMeta])
def test_a_loader_is_an_iterable_dataset(house, monkeypatch, kind):
    """torch's DataLoader asks no IterableDataset for a length. Its class is abstract in newer PyTorch alone."""
    iterable = kind("IterableDataset", (), {})
    data = types.SimpleNamespace(IterableDataset=iterable)
    monkeypatch.delitem(sys.modules, "torch.utils.data", raising=False)
    before = millrace.connect(house.path(), tensors="numpy")
    monkeypatch.setitem(sys.modules, "torch.utils.data", data)
    loader = millrace.connect(house.path(), tensors="numpy")
    assert isinstance(loader, iterable) and isinstance(loader, millrace.DataLoader)
    assert (type(loader).__module__, type(loader).__name__) == ("millrace", "DataLoader")
    with pytest.raises(TypeError, match="no length"):
        len(loader)
    # A loader keeps its class. torch's DataLoader asks it for its length, and the answer names the cure.
    with pytest.raises(TypeError, match="import torch before millrace.connect"):
        len(before)
    assert type(before) is millrace.DataLoader


def test_a_rank_that_the_run_does_not_serve(house, monkeypatch):
    house.start(*SHAPE)
    monkeypatch.setenv("MILLRACE_RUN_DIR", str(house.dir))
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.delenv("MILLRACE_SOCKET", raising=False)
    began = time.monotonic()
    with pytest.raises(millrace.StartError, match="rank 1: this run serves rank 0 alone"):
        next(millrace.connect())
    assert time.monotonic() - began < AT_ONCE


def test_a_rank_beyond_the_last(house):
    house.start(*SHAPE, "--ranks", "2")
    began = time.monotonic()
    with pytest.raises(millrace.StartError, match="rank 7: this run serves ranks 0 to 1"):
        next(millrace.connect(house.path(7)))
    assert time.monotonic() - began < AT_ONCE


def test_a_socket_that_is_late(house):
    """A rank that the run serves waits for its socket, although other sockets answer. The sidecar makes it again."""
    house.start(*SHAPE, "--ranks", "2")
    os.unlink(house.path(1))
    loaders = [millrace.connect(house.path(r)) for r in range(2)]
    import threading

    other = threading.Thread(target=lambda: next(loaders[0]))
    other.start()
    assert next(loaders[1]).step == 0
    other.join()


def test_a_second_start_says_what_to_do(house):
    """Running the example twice: the last line says what to do, and the traceback has the trainer's frames only."""
    house.start(*SHAPE, "--history")
    code = (
        f"import sys\nsys.path.insert(0, {SRC!r})\n"
        f"import millrace\nfor batch in millrace.connect({house.path()!r}, tensors='numpy'):\n    pass\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = told.stderr.strip().splitlines()
    assert (
        told.returncode == 1
        and lines[-1].startswith("millrace.StartError: this run has history")
        and 'start="latest"' in lines[-1]
    )
    assert sum(line.startswith("  File ") for line in lines) == 2, told.stderr


def test_a_finished_run(house, caplog):
    house.start(*SHAPE)
    assert sum(1 for _ in millrace.connect(house.path())) == 8
    again = millrace.connect(house.path(), start="latest")
    assert (
        list(again) == []
        and "the run is finished: its 4 steps have been taken" in caplog.text
        and 'start="fresh"' in caplog.text
    )


def test_a_stopped_run(house):
    """After Ctrl-C of `up`, outcome.json has the reason: a rank raises within about a second, not after its
    patience."""
    house.start(*SHAPE)
    loader = millrace.connect(house.path())
    next(loader)
    outcome = {"state": "stopped", "reason": "it was stopped by Ctrl-C or SIGTERM"}
    (house.dir / "outcome.json").write_text(json.dumps(outcome))
    house.kill()
    house.give_up()
    began = time.monotonic()
    with pytest.raises(millrace.RunError, match="stopped by Ctrl-C"):
        list(loader)
    assert time.monotonic() - began < AT_ONCE
