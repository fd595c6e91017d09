"""Loaders that come and go. Each role has a command, a supervisor and a run directory of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest

from conftest import variant
from harness import DEADLINE, LOOK, Delivered, Run, Trainers
from kubelet import GRACE
from test_cluster import running, status
from test_hosts import free_port
from trainer import Orders

RANKS = 2
MIXTURE = variant({"global_batch_size": 8, "loaders": 4, "reliability": {"shadows": 0}})


class Roles:
    """The commands of a run, by the names of their processes."""

    def __init__(self, stage: Any, etcd: str, directory: Path, stack: contextlib.ExitStack) -> None:
        self._stage, self._stack = stage, stack
        self._cluster = directory / "cluster.yaml"
        self._cluster.write_text(f"name: run-1\netcd: ['{etcd}']\n")
        self.running: Dict[str, Run] = {}

    def start(self, role: str, name: str, *args: str, mixture: Optional[Dict[str, Any]] = None) -> Run:
        listen = f"127.0.0.1:{free_port() if role == 'orchestrator' else 0}"
        run = Run(
            self._stage.binary, self._stage.mixture(mixture or MIXTURE), self._stage.new_dir(), RANKS, role=role,
            args=["--world-size", str(RANKS), "--cluster", str(self._cluster), "--listen", listen, *args],
        )
        self.running[name] = self._stack.enter_context(run)
        return run

    def loader(self, number: int) -> Run:
        return self.start("loader", f"loader-{number}", "--name", f"loader-{number}")

    def readers(self) -> Dict[str, int]:
        """The stripes of each loader that reads, once every stripe has a reader."""
        out: Dict[str, int] = {}
        for stripe in status(self._stage, self.running["orchestrator"])["stripes"]:
            out[stripe["loader"]] = out.get(stripe["loader"], 0) + 1
        return out

    def until(self, what: str, wanted: Callable[[Dict[str, int]], bool]) -> None:
        over = time.monotonic() + DEADLINE
        while not wanted(self.readers()):
            told = {name: run.stderr() for name, run in self.running.items()}
            assert time.monotonic() < over, f"{what}: {self.readers()}\n{json.dumps(told, indent=1)}"
            time.sleep(LOOK)


@contextlib.contextmanager
def roles(stage: Any, tmp_path: Path) -> Iterator[Roles]:
    with running(stage, tmp_path) as member, contextlib.ExitStack() as stack:
        yield Roles(stage, f"http://{member.address}", tmp_path, stack)


def balanced(loaders: List[int]) -> Callable[[Dict[str, int]], bool]:
    """Whether exactly these loaders read, with equal shares."""
    names = {f"loader-{n}" for n in loaders}
    return lambda readers: set(readers) == names and max(readers.values()) - min(readers.values()) <= 1


@pytest.fixture(scope="module")
def golden(stage: Any) -> Delivered:
    return stage.delivered(MIXTURE, RANKS)


@pytest.mark.needs("etcd")
def test_loaders_come_and_go(stage: Any, tmp_path: Path, golden: Delivered) -> None:
    """1 loader, 4, one of them killed, and 1 again. The batches are those of one host."""
    hold = tmp_path / "hold"
    hold.touch()
    with roles(stage, tmp_path) as of:
        planner = of.start("orchestrator", "orchestrator")
        first = of.loader(0)
        sidecar = of.start("sidecar", "sidecar-0")
        trainers = Trainers(sidecar.sockets(), [Orders(pause=0.1, hold=str(hold), patience=DEADLINE)] * RANKS)
        of.until("one loader reads", balanced([0]))
        trainers.collect(until=3)
        for n in (1, 2, 3):
            of.loader(n)
        of.until("four loaders read", balanced([0, 1, 2, 3]))
        trainers.collect(until=8)
        killed = of.running["loader-2"]
        for pid in killed.children():
            os.kill(pid, signal.SIGKILL)
        trainers.collect(until=12)
        of.until("the killed loader reads again", balanced([0, 1, 2, 3]))
        gone = of.running["loader-1"]
        gone.kill()
        of.until("three loaders read", balanced([0, 2, 3]))
        trainers.collect(until=20)
        for n in (2, 3):
            assert of.running[f"loader-{n}"].stop() == 0, of.running[f"loader-{n}"].stderr()
        of.until("one loader reads again", balanced([0]))
        hold.unlink()
        delivered = trainers.collect()
        assert delivered.ends == ["end"] * RANKS, (delivered.ends, {n: r.stderr() for n, r in of.running.items()})
        for run in (planner, first, sidecar):
            assert run.wait(DEADLINE) == 0, run.stderr()
    assert delivered.bytes() == golden.bytes()


@pytest.mark.needs("etcd")
def test_asked_to_leave(stage: Any, tmp_path: Path, golden: Delivered) -> None:
    """SIGTERM, as a kubelet sends it, needs no preStop hook. A loader hands over first: a stripe always has a reader. A
    sidecar leaves when its trainers have left. Both end within the grace of their pods."""
    hold, events = tmp_path / "hold", tmp_path / "events"
    hold.touch()
    with roles(stage, tmp_path) as of:
        of.start("orchestrator", "orchestrator")
        of.loader(0)
        leaving = of.loader(1)
        sidecar = of.start("sidecar", "sidecar-0", "--events", str(events))
        orders = Orders(pause=0.1, hold=str(hold), leave_after=(20, 0), patience=DEADLINE)
        trainers = Trainers(sidecar.sockets(), [orders] * RANKS)
        of.until("two loaders read", balanced([0, 1]))
        trainers.collect(until=3)
        began = time.monotonic()
        assert leaving.stop() == 0, leaving.stderr()
        took = [time.monotonic() - began]
        of.until("one loader reads", balanced([0]))
        trainers.collect(until=8)
        hold.unlink()
        delivered = trainers.collect()
        assert delivered.ends == ["left"] * RANKS, delivered.ends
        began = time.monotonic()
        assert sidecar.stop() == 0, sidecar.stderr()
        took.append(time.monotonic() - began)
    assert max(took) < GRACE, took
    lines = [json.loads(line) for path in events.glob("sidecar-*.jsonl") for line in path.read_text().splitlines()]
    heard = next(k for k, line in enumerate(lines) if line["event"] == "heard")
    routes = [line["key"].split() for line in lines[heard:] if line["event"] == "directed"]
    assert routes and all(route[2] != "-" for route in routes), routes
    assert delivered.bytes().items() <= golden.bytes().items()
