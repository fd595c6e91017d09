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


def test_stages_on_two_hosts_are_fetched_once(stage: Any, tmp_path: Path) -> None:
    """Each pipeline stage is on a host of its own. Loaders send each token once, and the hosts hand it on."""
    stages = mixture(parallelism={"tp": 1, "cp": 1, "pp": HOSTS})
    golden = stage.delivered(stages, WORLD)
    with running(stage, tmp_path) as member:
        with spread(stage, stages, on_loopback(f"http://{member.address}", tmp_path)) as both:
            trainers = both.start(Orders(pause=0.05))
            trainers.collect(until=20)
            until("figures of both sidecars", lambda: len(supplied(stage, both)) == HOSTS, both.runs[0])

            def are_equal() -> bool:  # figures of two processes are of two moments
                return all(
                    loaded > 0 and 0.7 < fed / loaded < 1.5 and sent > 0  # each has its own data-parallel rank
                    for loaded, fed, sent in supplied(stage, both)
                )

            until("as many tokens from a peer as from loaders", are_equal, both.runs[0])
            delivered = trainers.collect()
            finished(both, delivered)
    assert delivered.bytes() == golden.bytes()


@pytest.mark.parametrize("option", [{}, {"middle_stages": "positions"}, {"broadcast": ["pp"]}], ids=lambda o: str([*o]))
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
            seen = supplied(stage, hosts)
            first, middle, last = (loaded + fed for loaded, fed, _ in seen)  # on a busy host, peers may ask loaders
            assert (middle == 0) == bool(option) and first > 0 and last > 0.7 * first, seen
            assert option or middle > 0.7 * first, seen
            delivered = trainers.collect()
            finished(hosts, delivered)
    assert delivered.bytes() == golden.bytes()


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
