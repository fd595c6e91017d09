"""Waits of trainers on a Ray of several nodes while an actor of another node, or its raylet, is killed.
bench/cluster.sh runs it in namespaces of its own, in the environment of `make test-ray`.

    python bench/cluster/raystall.py --kills 5

Each node has a rank. Its trainer is an actor without barriers, with steps of 0.1 s, so that a wait is Millrace's. Waits
after a loss are beside those of as much time before it. A part of each is the time that the trainer's own thread waited
for a processor.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import sys
import tempfile
import time
from typing import Any, List, NamedTuple, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("MILLRACE_RAY_NODES", "3")
sys.path.insert(0, str(ROOT / "examples" / "ray"))

from conftest import Nodes, started  # noqa: E402  # it sets the environment of Ray

import ordeal  # noqa: E402
import ray  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On  # noqa: E402

import millrace.ray  # noqa: E402

PAUSE = 0.1  # seconds a step
WATCHED = 8.0  # seconds after a loss in which waits belong to it


def clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def queued() -> float:
    """The seconds for which this thread has waited for a processor."""
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1]) / 1e9


class Wait(NamedTuple):
    """A wait of a trainer for a batch, in milliseconds."""

    long: float = 0
    queued: float = 0  # of these, its thread waited for a processor

    def __str__(self) -> str:
        return f"{self.long:.0f} ms ({self.queued:.0f} for a processor)"


@ray.remote(num_cpus=1, max_restarts=0)
class Trainer:
    def train(self, run: millrace.ray.Run, rank: int, log: str) -> None:
        with millrace.ray.connect(run, rank=rank, tensors="numpy", start="fresh") as loader, open(log, "w", 1) as out:
            batches = iter(loader)
            while True:
                asked, before = clock(), queued()
                next(batches)["tokens"][:, 0].sum()
                out.write(f"{asked:.6f} {clock():.6f} {queued() - before:.6f}\n")
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

    def times(self, rank: int) -> List[Tuple[float, float, float]]:
        text = self.logs[rank].read_text() if self.logs[rank].exists() else ""
        lines = [line.split() for line in text.splitlines(True) if line.endswith("\n")]
        return [(float(asked), float(had), float(queued)) for asked, had, queued in lines]

    def go_on(self, rank: int, steps: int) -> float:
        """Waits for steps of a rank from now on, and returns the time of their end."""
        goal, until = len(self.times(rank)) + steps, time.monotonic() + 240
        while len(self.times(rank)) < goal:
            assert time.monotonic() < until, f"rank {rank} made no {steps} steps"
            time.sleep(0.05)
        return clock()

    def wait(self, ranks: List[int], begin: float, end: float) -> Wait:
        """The longest wait of ranks between two times. A wait that goes on counts."""
        out = Wait()
        for rank in ranks:
            times = self.times(rank)
            waits = [Wait(1e3 * (had - asked), 1e3 * queued)
                     for asked, had, queued in times if had >= begin and asked <= end]
            out = max(out, *waits, Wait(1e3 * (end - PAUSE - times[-1][1])))
        return out

    def actor(self, rank: int) -> Any:
        names = (n for n in millrace.ray.actors_of(self.run.name) if n.startswith(f"{self.run.name}/host-{rank}/"))
        return ray.get_actor(next(names), namespace="millrace")


def parent_of(pid: int) -> int:
    return int(pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])


class Losses:
    """The longest waits of others after each loss, and in as much time before it."""

    def __init__(self) -> None:
        self.after: List[Wait] = []
        self.before: List[Wait] = []

    def note(self, what: str, before: Wait, after: Wait, own: str) -> None:
        self.after.append(after)
        self.before.append(before)
        print(f"{what}: longest wait of the others {after}, before: {before}, {own}; load {os.getloadavg()[0]:.0f}",
              flush=True)

    def sum_up(self) -> None:
        for name, waits in (("after", self.after), ("before", self.before)):
            long = sorted(w.long for w in waits)
            print(f"{name} {len(long)} losses: p50 {long[len(long) // 2]:.0f} ms, worst {long[-1]:.0f} ms", flush=True)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kills", type=int, default=5, help="of actors")
    a = p.parse_args()
    cluster = started(Nodes)
    nodes = [n.node_id for n in cluster.nodes]
    with tempfile.TemporaryDirectory() as folder:
        training, seen = Training(nodes, pathlib.Path(folder)), Losses()
        ranks = list(range(len(nodes)))
        for kill in range(a.kills + 1):
            has_actor = kill < a.kills  # the last loss is that of a raylet
            struck = kill % len(nodes) if has_actor else ranks[-1]
            others = [r for r in ranks if r != struck]
            time.sleep(WATCHED)
            began = clock()
            before = training.wait(others, began - WATCHED, began)
            if has_actor:
                os.kill(parent_of(ray.get(training.actor(struck).pid.remote())), signal.SIGKILL)
            else:
                cluster.kill_raylet(nodes[-1])
            time.sleep(WATCHED)
            after = training.wait(others, began, began + WATCHED)
            if has_actor:
                training.go_on(struck, 10)
                own = f"of its own rank {training.wait([struck], began, clock()).long / 1e3:.1f} s"
                seen.note(f"actor of rank {struck} killed", before, after, own)
            else:
                seen.note("raylet killed", before, after, "its own rank is lost")
        seen.sum_up()
        training.run.shutdown()
    ray.shutdown()
    cluster.cluster.shutdown()


if __name__ == "__main__":
    main()
