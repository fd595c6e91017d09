"""The number of loaders follows the work: Ray places those that the run asks for, and no batch changes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

import millrace.ray
import ordeal
from conftest import Nodes

HOSTS, MOST = 2, 2
WITHIN = 600.0  # seconds, for a slow and busy machine
SLOW = "loader/tokenise/before=sleep:60ms@0"  # for each record, in every loader
FAST, LAZY = 0.05, 2.0  # seconds of a step: one loader is too few for the first, and enough for the other


@ray.remote(num_cpus=0)
class Rank:
    """Trains at the pace of a file, which has the seconds of a step. It stops at the end of the file."""

    def __init__(self, run: millrace.ray.Run, rank: int, pace: Path) -> None:
        self.run, self.rank, self.pace = run, rank, pace

    def train(self) -> Dict[Any, str]:
        batches: Dict[Any, str] = {}
        with millrace.ray.connect(self.run, rank=self.rank, tensors="numpy", start="fresh") as loader:
            for b in loader:
                slot = (b.step, self.rank, b.microbatch)
                assert slot not in batches, slot
                batches[slot] = b.digest
                if b.microbatch == b.num_microbatches - 1:
                    if not self.pace.exists():
                        break
                    time.sleep(float(self.pace.read_text()))
        return batches


def loaders_of(run: millrace.ray.Run) -> List[str]:
    """The states of the loaders that are actors. The host of rank 0 has another loader."""
    out = []
    for name in millrace.ray.actors_of(run.name):
        if "/loader/" not in name:
            continue
        try:
            out.append(ray.get(ray.get_actor(name, namespace="millrace").look.remote())[0])
        except (ValueError, ray.exceptions.RayError):
            out.append("ending")  # the keeper has just ended it
    return out


def test_loaders_follow_the_work(
    tmp_path: Path, mixture: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """1 → 2 → 1 loaders, as the run asks for them."""
    path = mixture.parent / "scaling.yaml"
    about = dict(ordeal.MIXTURE, stop={"steps": 2000}, loaders=f"1-{MOST}", reliability={"shadows": 0})
    path.write_text(json.dumps(about))
    golden = ordeal.of_one_host(path, HOSTS)
    monkeypatch.setenv("MILLRACE_FAILPOINTS", SLOW)
    nodes: Nodes = request.getfixturevalue("nodes")
    pace = tmp_path / "pace"
    pace.write_text(str(FAST))
    training: List[Any] = []

    def until(what: str, is_true: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not is_true():
            assert time.monotonic() - began < WITHIN, what
            ready, _ = ray.wait(training, timeout=0.5)
            ray.get(ready)  # a rank that failed says why
            assert not ready, what
        print(f"\n{what} after {time.monotonic() - began:.0f} s")

    with millrace.ray.launch(path, HOSTS, ranks_per_node=1, run_dir=tmp_path / "{node}") as run:
        ranks = [
            Rank.options(scheduling_strategy=On(node.node_id, soft=False)).remote(run, i, pace)
            for i, node in enumerate(nodes.nodes[:HOSTS])
        ]
        training.extend(rank.train.remote() for rank in ranks)
        assert not loaders_of(run)
        until("another loader", lambda: loaders_of(run) == ["running"] * (MOST - 1))
        time.sleep(10)  # it reads a part
        pace.write_text(str(LAZY))
        until("one loader", lambda: not loaders_of(run))
        pace.unlink()
        read: Dict[Any, str] = {}
        for batches in ray.get(training, timeout=WITHIN):
            read.update(batches)
        for rank in ranks:
            ray.kill(rank)
    for i in range(HOSTS):  # the ranks stop at different steps
        mine = {slot: digest for slot, digest in read.items() if slot[1] == i}
        last = max(step for step, _, _ in mine)
        assert mine == {slot: digest for slot, digest in golden.items() if slot[1] == i and slot[0] <= last}
        print(f"rank {i}: the {len(mine)} batches of {last + 1} steps are those of one host")
