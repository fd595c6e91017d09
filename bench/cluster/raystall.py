"""Waits of trainers on a Ray of several nodes while an actor of another node, or its raylet, is killed.
bench/cluster.sh runs it in namespaces of its own, in the environment of `make test-ray`.

    python bench/cluster/raystall.py --kills 5

Each node has a rank. Its trainer is an actor without barriers, with steps of 0.1 s, so that a wait is Millrace's.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import sys
import tempfile
import time
from typing import Any, Dict, List, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("MILLRACE_RAY_NODES", "3")
sys.path.insert(0, str(ROOT / "examples" / "ray"))

from conftest import Nodes, started  # noqa: E402  # it sets the environment of Ray

import ordeal  # noqa: E402
import ray  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On  # noqa: E402

import millrace.ray  # noqa: E402

PAUSE = 0.1  # seconds a step
WATCHED = 10.0  # seconds after the loss of a node in which waits belong to it


def clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@ray.remote(num_cpus=1, max_restarts=0)
class Trainer:
    def train(self, run: millrace.ray.Run, rank: int, log: str) -> None:
        with millrace.ray.connect(run, rank=rank, tensors="numpy", start="fresh") as loader, open(log, "w", 1) as out:
            batches = iter(loader)
            while True:
                asked = clock()
                next(batches)["tokens"][:, 0].sum()
                out.write(f"{asked:.6f} {clock():.6f}\n")
                time.sleep(PAUSE)


class Training:
    """A run with a trainer on each node."""

    def __init__(self, nodes: List[str], folder: pathlib.Path) -> None:
        ordeal.write_data(folder)
        mixture = dict(ordeal.MIXTURE, global_batch_size=len(nodes), stop=None, sources={
            name: {"path": str(folder / f"{name}.jsonl")} for name in ("book", "notes")
        })
        del mixture["stop"]
        self.run = millrace.ray.launch(mixture, {node: 1 for node in nodes}, run_dir=folder / "{node}")
        self.logs = [folder / f"trainer-{rank}.log" for rank in range(len(nodes))]
        there = [Trainer.options(scheduling_strategy=On(node, soft=False)).remote() for node in nodes]
        self._calls = [t.train.remote(self.run, rank, str(self.logs[rank])) for rank, t in enumerate(there)]
        for rank in range(len(nodes)):
            self.go_on(rank, 30)

    def times(self, rank: int) -> List[Tuple[float, float]]:
        text = self.logs[rank].read_text() if self.logs[rank].exists() else ""
        lines = [line.split() for line in text.splitlines(True) if line.endswith("\n")]
        return [(float(asked), float(had)) for asked, had in lines]

    def go_on(self, rank: int, steps: int) -> float:
        """Waits for steps of a rank from now on, and returns the time of their end."""
        goal, until = len(self.times(rank)) + steps, time.monotonic() + 240
        while len(self.times(rank)) < goal:
            assert time.monotonic() < until, f"rank {rank} made no {steps} steps"
            time.sleep(0.05)
        return clock()

    def wait(self, ranks: List[int], begin: float, end: float) -> float:
        """The longest wait of ranks between two times, in milliseconds. A wait that goes on counts."""
        out = 0.0
        for rank in ranks:
            times = self.times(rank)
            waits = [had - asked for asked, had in times if had >= begin and asked <= end]
            out = max(out, *waits, end - PAUSE - times[-1][1])
        return 1e3 * out

    def actor(self, rank: int) -> Any:
        names = (n for n in millrace.ray.actors_of(self.run.name) if n.startswith(f"{self.run.name}/host-{rank}/"))
        return ray.get_actor(next(names), namespace="millrace")


def parent_of(pid: int) -> int:
    return int(pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])


def report(what: str, others: float, before: float, own: float = 0) -> None:
    print(f"{what}: longest wait of the others {others:.0f} ms (in the 10 s before: {before:.0f} ms)"
          + (f", of its own rank {own / 1e3:.1f} s" if own else "") + f"; load {os.getloadavg()[0]:.0f}", flush=True)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kills", type=int, default=5, help="of actors")
    a = p.parse_args()
    cluster = started(Nodes)
    nodes = [n.node_id for n in cluster.nodes]
    with tempfile.TemporaryDirectory() as folder:
        training = Training(nodes, pathlib.Path(folder))
        ranks = list(range(len(nodes)))
        for kill in range(a.kills):
            struck = kill % len(nodes)
            others = [r for r in ranks if r != struck]
            time.sleep(WATCHED)
            began = clock()
            before = training.wait(others, began - WATCHED, began)
            os.kill(parent_of(ray.get(training.actor(struck).pid.remote())), signal.SIGKILL)
            time.sleep(0.5)  # batches that the rank has already do not count
            end = training.go_on(struck, 10)
            report(f"actor of rank {struck} killed", training.wait(others, began, end), before,
                   training.wait([struck], began, end))
        time.sleep(WATCHED)
        began = clock()
        before = training.wait(ranks, began - WATCHED, began)
        cluster.kill_raylet(nodes[-1])
        time.sleep(WATCHED)
        report("raylet killed", training.wait(ranks[:-1], began, began + WATCHED), before)
        training.run.shutdown()
    ray.shutdown()
    cluster.cluster.shutdown()


if __name__ == "__main__":
    main()
