"""Ray's autoscaler follows the loaders that a run asks for: it starts nodes for them, and ends the idle ones."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Callable, Iterator, List, Set, Tuple

import pytest
import ray

import millrace.ray
import ordeal
from conftest import STORE, started
from provider import Autoscaled
from test_ray import NONE, Training

MOST = 8  # loaders; the host of rank 0 has one of them, without Ray
ROOM = 4  # loaders of a node that the autoscaler starts
ADDED = 2  # such nodes for the other seven
WORLD = 2
IDLE = 20.0  # seconds after which the autoscaler ends a node
WITHIN = 1800.0  # seconds, for a slow and busy machine: seven moves, each as long as Ray needs for a node, and more
SLOW = "loader/tokenise/before=sleep:40ms@0"  # for each record: a loader makes some 20,000 tokens a second
FAST, LAZY = 0.1, 6.0  # seconds of a step of 32,768 tokens: too fast for seven loaders, and slow enough for one
SOURCES = 2 * MOST  # equal ones: with each doubling, a loader has half of them


@pytest.fixture
def autoscaled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Ray whose head has room for the trainers alone."""
    monkeypatch.setenv("MILLRACE_FAILPOINTS", SLOW)
    needs = {"CPU": ROOM, "memory": 4 << 30, "object_store_memory": STORE}
    types = {"loaders": {"resources": needs, "node_config": {}, "min_workers": 0, "max_workers": 4}}

    def start() -> Autoscaled:
        out = Autoscaled({"CPU": WORLD, "object_store_memory": STORE}, types, idle_timeout_minutes=IDLE / 60)
        out.start()
        ray.init(address="auto", log_to_driver=True)
        return out

    cluster = started(start)
    yield
    ray.shutdown()
    cluster.shutdown()
    assert not of_ray(), "a node of the autoscaler outlives its head"


def of_ray() -> List[str]:
    """The living raylets."""
    listed = subprocess.run(["ps", "-eo", "stat=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "/raylet/raylet " in line and not line.startswith("Z")]


class Sight:
    """The loaders that a run has asked of Ray, those that run and read, and their nodes."""

    def __init__(self, run: millrace.ray.Run, run_dir: Path) -> None:
        self.run, self.run_dir = run, run_dir

    def asked(self) -> List[str]:
        return [name for name in millrace.ray.actors_of(self.run.name) if "/loader/" in name]

    def places(self) -> Set[Tuple[str, str]]:
        """The loaders that run as actors, each with its node."""
        out = set()
        for name in self.asked():
            try:
                look = ray.get_actor(name, namespace="millrace").look.remote()
                state, node, _ = ray.get(look, timeout=1)
            except (ValueError, ray.exceptions.RayError):  # it ends, or waits for a node
                continue
            if state == "running":
                out.add((name.split("/")[-2], node))
        return out

    def readers(self) -> Set[str]:
        """The loaders that read a part of a source."""
        (host,) = self.run_dir.glob("*/host-0")
        told = subprocess.run(
            [os.environ["MILLRACE"], "status", str(host), "--json"], capture_output=True, text=True, timeout=60
        )
        return {stripe["loader"] for stripe in json.loads(told.stdout)["stripes"]} if told.returncode == 0 else set()

    def added(self) -> List[str]:
        """The living nodes beside the head."""
        return [n["NodeID"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU") == ROOM]


def write_mixture(directory: Path) -> Path:
    """All records are as long."""
    names = [f"source-{i}" for i in range(SOURCES)]
    for name in names:
        lines = [json.dumps({"text": f"line {i} of {name}. " * 50}) for i in range(1500)]
        (directory / f"{name}.jsonl").write_text("\n".join(lines))
    path = directory / "mixture.yaml"
    path.write_text(json.dumps(dict(
        ordeal.MIXTURE, stop={"steps": 50000}, sequence_length=4096, loaders=f"1-{MOST}", reliability={"shadows": 0},
        mixture={"weights": {name: 1 for name in names}},
        sources={name: {"path": f"{name}.jsonl"} for name in names},
    )))  # fmt: skip
    return path


def test_nodes_follow_the_loaders(autoscaled: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 → 8 → 1 loaders, and 0 → 2 → 0 nodes for them, beside a job of Ray Train."""

    def faults(t: Training) -> int:
        see, began = Sight(t.run, tmp_path), time.monotonic()
        seen = (-1, -1, -1)

        def until(what: str, is_true: Callable[[Set[Tuple[str, str]]], bool]) -> None:
            nonlocal seen
            begun = time.monotonic()
            while True:
                places = see.places()
                now = (len(see.asked()), len(places), len(see.added()))
                if now != seen:
                    step, load = ordeal.step_of(t.records), os.getloadavg()[0]
                    print(f"{time.monotonic() - began:6.1f} s: {now[0]} loaders asked of Ray, {now[1]} run, "
                          f"{now[2]} nodes; step {step}, load {load:.0f}", flush=True)
                    seen = now
                if is_true(places):
                    break
                assert time.monotonic() - begun < WITHIN, what
                time.sleep(0.2)
            print(f"{what} after {time.monotonic() - begun:.0f} s", flush=True)

        t.pass_steps(2)
        until("eight loaders", lambda places: len(places) == MOST - 1)
        assert {node for _, node in see.places()} == set(see.added()), see.places()
        assert len(see.added()) == ADDED, see.added()
        names = {name for name, _ in see.places()}
        until("every loader reads", lambda _: see.readers() == names | {"loader-0-0"})
        t.pass_steps(20)
        t.pace.set(LAZY)
        until("one loader", lambda _: not see.asked())
        until("no node for loaders", lambda _: not see.added())
        assert see.readers() == {"loader-0-0"}, see.readers()
        return t.end()

    path = write_mixture(tmp_path)
    with millrace.ray.launch(path, trainers=WORLD, ranks_per_node=1, run_dir=tmp_path / "{node}") as run:
        training = Training(run, tmp_path)
        training.pace.set(FAST)
        result = training.fit(faults, world=WORLD)
    assert result.error is None, result
    assert len(ordeal.lives(training.records)) == WORLD, "a worker was restarted"
    monkeypatch.delenv("MILLRACE_FAILPOINTS")
    _, last = training.pace.get()
    path.write_text(json.dumps(dict(json.loads(path.read_text()), loaders=2, stop={"steps": last + 1})))
    golden = ordeal.of_one_host(path, WORLD)
    assert len(golden) == 8 * (last + 1), len(golden)
    assert ordeal.judge(training.records, golden, WORLD) == NONE
    print(f"the {len(golden)} batches of {last + 1} steps are those of one host")
