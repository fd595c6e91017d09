"""A run whose journals are all on nodes that serve no ranks any more goes on from its checkpoint."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, List

import ray

import millrace.ray
import ordeal
from conftest import NODES, RANKS, Nodes
from test_ray import NONE, WITHIN, Training


@ray.remote(num_cpus=1)
class Hog:
    """Takes a CPU."""


def test_no_node_of_before_serves(nodes: Nodes, mixture: Path, tmp_path: Path) -> None:
    """Ray Train puts all workers on a node that has no journal. The nodes of before live on, and are full."""
    there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy

    def hogs_on(node: str) -> List[Any]:
        return [Hog.options(scheduling_strategy=there(node, soft=False)).remote() for _ in range(2 * RANKS)]

    def faults(t: Training) -> None:
        t.pass_steps(25)
        # Those that find no room wait, and take the CPU of a worker before its successor can.
        hogs.extend(hog for node in nodes.nodes for hog in hogs_on(node.node_id))
        for hog in hogs_of_fresh:
            ray.kill(hog)
        time.sleep(5)
        began = time.time()
        os.kill(ordeal.lives(t.records)[0].pid, signal.SIGKILL)
        print(f"\nall ranks trained again after {t.pass_steps(1, since=began):.1f} s")
        assert {life.node for life in ordeal.lives(t.records) if life.began > began} == {fresh.node_id}
        assert ray.get(millrace.ray.keeper_of(t.run).spec.remote()).renewal == 1

    fresh = nodes.add()
    nodes.await_nodes(NODES + 1)
    hogs: List[Any] = []
    hogs_of_fresh = hogs_on(fresh.node_id)
    ray.get([hog.__ray_ready__.remote() for hog in hogs_of_fresh], timeout=WITHIN)
    with millrace.ray.launch(mixture, trainers=2, ranks_per_node=1, run_dir=tmp_path / "{node}") as run:
        training = Training(run, tmp_path)
        result = training.fit(faults, world=2)
    assert result.error is None and result.metrics["step"] == 399, result
    lives = ordeal.lives(training.records)
    assert fresh.node_id not in {life.node for life in lives if not life.resumed}
    assert ordeal.judge(training.records, ordeal.of_one_host(mixture, 2), 2) == NONE
    for hog in hogs:
        ray.kill(hog)
    nodes.cluster.remove_node(fresh)
    nodes.await_nodes(NODES)
