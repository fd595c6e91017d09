"""The ranks of a data-parallel group on several hosts: one host fetches their tokens from the loaders for all."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from conftest import variant
from test_cluster import running, status, until
from test_hosts import HOSTS, RANKS, WORLD, Spread, finished, on_loopback, spread
from trainer import Orders


def mixture(**change: Any) -> Dict[str, Any]:
    return variant({"global_batch_size": 8, "stop": {"steps": 40}, **change})


def supplied(stage: Any, both: Spread) -> List[Tuple[int, int, int]]:
    """Of each sidecar, the bytes of tokens: from loaders, from other hosts' sidecars, and to them."""
    out = []
    for role in status(stage, both.runs[0])["delivery"]["roles"]:
        if "supply" in role:
            s = role["supply"]
            out.append(tuple(s.get(k, 0) for k in ("from_loaders", "from_constructors", "to_peers")))
    return out


@pytest.mark.needs("etcd")
def test_stages_on_two_hosts_are_fetched_once(stage: Any, tmp_path: Path) -> None:
    """Each pipeline stage is on a host of its own. The hosts hand tokens of the loaders on to each other."""
    stages = mixture(parallelism={"tp": 1, "cp": 1, "pp": HOSTS})
    golden = stage.delivered(stages, WORLD)
    with running(stage, tmp_path) as member:
        with spread(stage, stages, on_loopback(f"http://{member.address}", tmp_path)) as both:
            trainers = both.start(Orders(pause=0.05))
            trainers.collect(until=20)
            until("figures of both sidecars", lambda: len(supplied(stage, both)) == HOSTS, both.runs[0])

            # Each host asks the loaders for one data-parallel rank. How much it gets from its peer depends on the load:
            # on a busy host, peers ask the loaders, too. The tests of the tier have the exact amounts.
            def hands_on() -> bool:
                return all(min(amounts) > 0 for amounts in supplied(stage, both))

            until("both hosts hand tokens on", hands_on, both.runs[0])
            delivered = trainers.collect()
            finished(both, delivered)
    assert delivered.bytes() == golden.bytes()


@pytest.mark.needs("etcd")
@pytest.mark.parametrize("option", [
    pytest.param({}, id="neither", marks=pytest.mark.long),
    pytest.param({"middle_stages": "positions"}, id="middle_stages"),
    pytest.param({"broadcast": ["pp"]}, id="broadcast"),
])  # fmt: skip
def test_a_middle_stage_fetches_what_it_needs(stage: Any, tmp_path: Path, option: Dict[str, Any]) -> None:
    """Three stages on three hosts. With `middle_stages: positions` or `broadcast: [pp]`, the host of the middle one
    fetches no token, from nobody. Without them, all fetch the same."""
    stages = mixture(parallelism={"tp": 1, "cp": 1, "pp": 3}, stop={"steps": 30}, **option)
    golden = stage.delivered(stages, 3)
    with running(stage, tmp_path) as member:
        with spread(stage, stages, on_loopback(f"http://{member.address}", tmp_path, hosts=3), ranks=1) as hosts:
            trainers = hosts.start(Orders(pause=0.05))
            trainers.collect(until=15)
            until("figures of all sidecars", lambda: len(supplied(stage, hosts)) == 3, hosts.runs[0])

            def amounts() -> List[int]:
                return [loaded + fed for loaded, fed, _ in supplied(stage, hosts)]  # busy peers may ask the loaders

            def is_even() -> bool:  # figures of three processes are of three moments
                first, middle, last = amounts()
                return first > 0 and last > 0.7 * first and (bool(option) or middle > 0.7 * first)

            until("as many tokens on each host that needs them", is_even, hosts.runs[0])
            assert (amounts()[1] == 0) == bool(option), supplied(stage, hosts)
            delivered = trainers.collect()
            finished(hosts, delivered)
    assert delivered.bytes() == golden.bytes()


@pytest.mark.needs("etcd")
def test_the_constructor_is_killed_and_stopped(stage: Any, tmp_path: Path) -> None:
    """Each host has both stages' tokens from the other for one rank. Its process is killed, later stopped for a while.
    The batches are those of one host."""
    stages = mixture(parallelism={"tp": 1, "cp": 1, "pp": HOSTS})
    golden = stage.delivered(stages, WORLD)
    with running(stage, tmp_path) as member:
        with spread(stage, stages, on_loopback(f"http://{member.address}", tmp_path)) as both:
            trainers = both.start(Orders(pause=0.05, patience=60))
            trainers.collect(until=5)
            os.kill(sidecar(stage, both, 0), signal.SIGKILL)
            trainers.collect(until=12)
            stopped = sidecar(stage, both, RANKS)
            os.kill(stopped, signal.SIGSTOP)
            trainers.collect(until=14)
            os.kill(stopped, signal.SIGCONT)
            delivered = trainers.collect()
            finished(both, delivered)
    assert delivered.bytes() == golden.bytes()


def sidecar(stage: Any, both: Spread, first: int) -> int:
    roles = status(stage, both.runs[first // RANKS])["roles"]
    return int(next(r["pid"] for r in roles if r["name"] == f"sidecar-{first}" and r.get("pid")))
