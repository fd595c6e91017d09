"""Runs on a real Ray of several nodes under kill -9. All batches are those of a run on one host without Ray."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

import pyarrow
import pyarrow.ipc
import pytest
import ray
import ray.train
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

import millrace
import millrace.ray
import ordeal
from conftest import NODES, RANKS, WORLD, Nodes, of_millrace

NONE = {"lost": 0, "duplicated": 0, "differing": 0}
WITHIN = 180.0  # seconds, for a slow and busy machine


def until(what: str, is_true: Callable[[], bool]) -> float:
    """Wait. Return the seconds."""
    began = time.monotonic()
    while not is_true():
        assert time.monotonic() - began < WITHIN, what
        time.sleep(0.05)
    return time.monotonic() - began


class Training:
    """A job of Ray Train in this thread, beside another thread that kills."""

    def __init__(self, run: millrace.ray.Run, directory: Path) -> None:
        self.records = directory / "records"
        self.records.mkdir()
        self.run, self.directory, self.pace = run, directory, ordeal.Pace(directory)
        self.failure: List[BaseException] = []

    def fit(self, faults: Callable[["Training"], Optional[int]], world: int = WORLD) -> Any:
        """Train, and call `faults` beside it. It returns the last step; None: that of the mixture."""

        def kill() -> None:
            try:
                last = faults(self)
            except BaseException as e:
                self.failure.append(e)
                last = self.end()
            self.pace.set(0, -1 if last is None else last)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            return DataParallelTrainer(
                ordeal.train,
                train_loop_config={"run": self.run.name, "records": str(self.records)},
                scaling_config=ScalingConfig(num_workers=world, placement_strategy="SPREAD"),
                run_config=RunConfig(
                    storage_path=str(self.directory / "storage"), failure_config=FailureConfig(max_failures=5)
                ),
            ).fit()
        finally:
            thread.join()
            if self.failure:
                raise self.failure[0]

    def pass_steps(self, count: int, since: float = 0.0) -> float:
        """Wait until every rank has trained so many steps more. Return the seconds."""
        goal = ordeal.step_of(self.records, since) + count
        return until(f"step {goal}", lambda: ordeal.step_of(self.records, since) >= goal)

    def end(self) -> int:
        """A step that no rank has begun: a checkpoint is a barrier."""
        return ordeal.step_of(self.records) + 3 * ordeal.EVERY

    def host(self, first: int) -> Any:
        """The actor of a host."""
        prefix = f"{self.run.name}/host-{first}/"
        name = next(n for n in millrace.ray.actors_of(self.run.name) if n.startswith(prefix))
        return ray.get_actor(name, namespace="millrace")

    def up(self, first: int) -> int:
        """The process id of a host's `millrace up`; 0: there is none."""
        return int(ray.get(self.host(first).pid.remote()))


def parent_of(pid: int) -> int:
    return int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])


def lives_on(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_batches_are_those_of_one_host(nodes: Nodes, mixture: Path, golden: Any, tmp_path: Path) -> None:
    """The trainers outlive kill -9 of `millrace up`, of its actor, of the keeper, and of the etcd member. After kill -9
    of a raylet, its ranks go to other nodes, and train on behind the newest checkpoint."""

    def faults(t: Training) -> None:
        t.pass_steps(20)
        up = t.up(0)
        os.kill(up, signal.SIGKILL)
        print(f"\nup killed: another one after {until('another up', lambda: t.up(0) not in (0, up)):.1f} s")
        print(f"trained on after {t.pass_steps(40):.1f} s")
        up = t.up(RANKS)
        actor = parent_of(up)
        os.kill(actor, signal.SIGKILL)
        print(f"actor killed: its up ended after {until('the end', lambda: not lives_on(up)):.1f} s")
        print(f"trained on after {t.pass_steps(40):.1f} s")
        member = next(pid for pid, arguments in of_millrace().items() if "etcd" in arguments[1:2])
        os.kill(parent_of(member), signal.SIGKILL)
        until("the end of the member", lambda: not lives_on(member))
        print(f"keeper with its etcd killed: trained on after {t.pass_steps(40):.1f} s")
        lives = ordeal.lives(t.records)
        assert len(lives) == WORLD, "a worker was restarted"
        assert len({life.node for life in lives}) == NODES
        lose_a_node(t)

    def lose_a_node(t: Training) -> None:
        lost = next(life for life in ordeal.lives(t.records) if life.rank == 0)
        up, began = t.up(0), time.time()
        nodes.kill_raylet(lost.node)
        print(f"raylet killed: up of its node ended after {until('the end', lambda: not lives_on(up)):.1f} s")
        print(f"all ranks trained again after {t.pass_steps(1, since=began):.1f} s more")
        assert lost.node not in {life.node for life in ordeal.lives(t.records) if life.began > began}
        t.pass_steps(10, since=began)

    with millrace.ray.launch(mixture, trainers=WORLD, ranks_per_node=RANKS, run_dir=tmp_path / "{node}") as run:
        training = Training(run, tmp_path)
        result = training.fit(faults)
    assert result.error is None and result.metrics["step"] == 399, result
    assert any(life.resumed for life in ordeal.lives(training.records))
    assert ordeal.judge(training.records, golden, WORLD) == NONE
    nodes.nodes.append(nodes.add())
    nodes.await_nodes(NODES)


@ray.remote(num_cpus=0)
class Worker:
    """A rank that is no worker of Ray Train."""

    def read(self, run: millrace.ray.Run, rank: int, state: Any = None, steps: float = math.inf) -> Any:
        """Return the batches of so many steps from a state on, and the state after them."""
        batches = {}
        with millrace.ray.connect(run, rank=rank, tensors="numpy", start="fresh") as loader:
            if state is not None:
                loader.load_state_dict(state)
            for b in loader:
                batches[b.step, rank, b.microbatch] = (b.digest, [s.id for s in b.segments])
                if b.step == steps - 1 and b.microbatch == b.num_microbatches - 1:
                    break
            return batches, loader.state_dict()


def workers_on(nodes: Sequence[str]) -> List[Any]:
    """A worker on each of the nodes."""
    there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    return [Worker.options(scheduling_strategy=there(node, soft=False)).remote() for node in nodes]


def test_ranks_change_their_nodes(nodes: Nodes, mixture: Path, golden: Any, tmp_path: Path) -> None:
    """All ranks go to other nodes that served other ranks before. The journals stay with the nodes."""
    places = [node.node_id for node in nodes.nodes for _ in range(RANKS)]
    with millrace.ray.launch(mixture, WORLD, ranks_per_node=RANKS, run_dir=tmp_path / "{node}") as run:
        read: Dict[Any, Any] = {}
        state = None
        for steps, there in ((100, places), (400, places[RANKS:] + places[:RANKS])):
            workers = workers_on(there)
            calls = [w.read.remote(run, rank, state, steps) for rank, w in enumerate(workers)]
            for batches, state in ray.get(calls, timeout=WITHIN):
                read.update(batches)
            for w in workers:
                ray.kill(w)
        assert ray.get(millrace.ray.keeper_of(run).spec.remote()).renewal == 0
    assert {slot: digest for slot, (digest, _) in read.items()} == golden


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_dataset_of_ray_on_one_node(nodes: Nodes, tmp_path: Path, form: str) -> None:
    """A ray.data.Dataset becomes a source by files of Parquet or Arrow. A run on one node has no etcd."""
    dataset = ray.data.from_items([{"text": f"row {i} " * (1 + i % 9)} for i in range(300)], override_num_blocks=3)
    rows = tmp_path / "rows"
    if form == "parquet":
        dataset.write_parquet(str(rows))
    else:
        rows.mkdir()
        for k, table in enumerate(dataset.iter_batches(batch_format="pyarrow", batch_size=None)):
            with pyarrow.ipc.new_file(rows / f"{k:05}.arrow", table.schema) as file:
                file.write_table(table)
    mixture = dict(
        ordeal.MIXTURE, stop={"epochs": 1}, mixture={"weights": {"rows": 1}},
        sources={"rows": {"path": str(rows / f"*.{form}")}},
    )  # fmt: skip
    node = nodes.nodes[0].node_id
    with millrace.ray.launch(mixture, {node: 2}) as run:
        assert not [a for a in of_millrace().values() if "etcd" in a]
        workers = workers_on([node, node])
        read = ray.get([w.read.remote(run, rank) for rank, w in enumerate(workers)])
        for w in workers:
            ray.kill(w)
    segments = [i for batches, _ in read for _, ids in batches.values() for i in ids]
    assert len(set(segments)) == 300


def test_the_example(nodes: Nodes, mixture: Path, tmp_path: Path) -> None:
    small = mixture.parent / "small.yaml"
    small.write_text(json.dumps(dict(ordeal.MIXTURE, stop={"steps": 20})))
    script = Path(__file__).parent / "train.py"
    done = subprocess.run(
        [sys.executable, str(script), str(small), "--workers", "2", "--storage", str(tmp_path)],
        env={**os.environ, "RAY_ADDRESS": nodes.cluster.address}, capture_output=True, text=True, timeout=WITHIN,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'step': 19" in done.stdout.splitlines()[-1], done.stdout


def test_wrong_arguments(nodes: Nodes, tmp_path: Path, mixture: Path) -> None:
    node = nodes.nodes[0].node_id
    with pytest.raises(ValueError, match="same number of ranks"):
        millrace.ray.launch(mixture, 3, ranks_per_node=2)
    with pytest.raises(ValueError, match="0 living nodes"):
        millrace.ray.launch(mixture, {"none": 2})
    with pytest.raises(ValueError, match="has 0 runs"):
        millrace.ray.connect(rank=0)
    with pytest.raises(ValueError, match="keys of a cluster file"):
        millrace.ray.launch(mixture, 2, cluster={"name": "a", "members": 3})
    with pytest.raises(ValueError, match="sequence_length"):
        millrace.ray.launch(dict(ordeal.MIXTURE, sequence_length=-1), {node: 2})
    with millrace.ray.launch(mixture, 2, name="a"):
        with pytest.raises(ValueError, match="the run a exists"):
            millrace.ray.launch(mixture, 2, name="a")
        with pytest.raises(ValueError, match="the ranks 0 to 1"):
            millrace.ray.connect("a", rank=2)
