"""A run with further streams on several hosts. One host leads all streams; the next one leads all after it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest

from harness import DEADLINE, Run, command
from test_cluster import running, status, until
from test_hosts import on_loopback
from test_streams import EVAL, EVERY, Golden, Ranks, golden, pid_of, plans, same, training

assert golden  # a fixture

HOSTS = 2  # with one rank each
MIXTURE: Dict[str, Any] = training(loaders=1, streams={"eval": EVAL})


class Hosts:
    """The `up` of each host."""

    def __init__(self, stage: Any, files: List[Path], stack: contextlib.ExitStack) -> None:
        self._stage, self._files, self._stack = stage, files, stack
        self.runs = [self.up(host) for host in range(HOSTS)]

    def up(self, host: int, directory: Optional[Path] = None) -> Run:
        args = ["--world-size", str(HOSTS), "--first-rank", str(host), "--cluster", str(self._files[host])]
        return self._stack.enter_context(self._stage.up(MIXTURE, 1, directory, first=host, args=args))

    def sockets(self) -> List[str]:
        return [s for run in self.runs for s in run.sockets()]

    def leader(self) -> int:
        """The host that leads, when copies of both streams are in step on the other."""
        found: List[int] = []

        def leads() -> bool:
            for run in self.runs:
                seen = status(self._stage, run)
                if any("one copy alone" in a["text"] for a in seen["alerts"]) or seen.get("step") is None:
                    return False
                found[:] = [i for i, h in enumerate(seen["hosts"]) if h.get("leads")]
            return len(found) == 1

        until("a leader with a copy", leads, self.runs[0])
        return found[0]

    def finish(self, ranks: Ranks, golden: Golden) -> None:
        told = ranks.end()
        for run in self.runs:
            assert run.wait(DEADLINE) == 0, run.stderr()
            assert "panic:" not in run.stderr()
        same(told, golden)


@contextlib.contextmanager
def spread(stage: Any, directory: Path) -> Iterator[Hosts]:
    with running(stage, directory) as member, contextlib.ExitStack() as stack:
        yield Hosts(stage, on_loopback(f"http://{member.address}", directory), stack)


@pytest.mark.needs("etcd")
def test_streams_deliver_the_batches_of_one_host(stage: Any, golden: Golden, tmp_path: Path) -> None:
    """Training and evaluations, read by turns, have the bytes and the plans of one host. Commands with --stream work
    on both hosts, and an alert about the copies is over before the next."""
    with spread(stage, tmp_path) as hosts:
        leader = hosts.leader()
        ranks = Ranks(hosts, every=EVERY, pause=1)
        ranks.until_paused()
        for run in hosts.runs:
            until("the last batches are acknowledged", lambda: status(stage, run)["step"] >= 2 * EVERY - 1, run)
            seen = status(stage, run)
            assert seen["step"] == 2 * EVERY - 1 and seen["streams"]["eval"]["attempt"] == 2, seen
            shown = command(stage.binary, "mix", "show", str(run.directory), "--stream", "eval", "--json")
            assert set(json.loads(shown)["weights"]) == {"books", "plain"}
            step = command(stage.binary, "ledger", str(run.directory), "--step", "1", "--stream", "eval", "--json")
            assert json.loads(step.splitlines()[0])["step"] == 1
        ranks.proceed()
        hosts.finish(ranks, golden)
        assert plans(stage, hosts.runs[leader].directory) == golden.plans
        for run in hosts.runs:
            told = [line.split()[0] for line in run.stderr().splitlines() if ": journal: one copy alone" in line]
            assert told == (["warning:", "over:"] * len(told))[: len(told)], run.stderr()


@pytest.mark.needs("etcd")
@pytest.mark.parametrize("victim", ["orchestrator", "up"])
def test_the_leader_is_killed_in_an_evaluation(stage: Any, golden: Golden, tmp_path: Path, victim: str) -> None:
    """kill -9 of the leader, or of its host's `up` with all its processes, while both streams are read. The other host
    leads both streams then. An `up` that is started again serves the ranks of the lost one."""
    with spread(stage, tmp_path) as hosts:
        leader = hosts.leader()
        ranks = Ranks(hosts, every=EVERY, pause=1, patience=DEADLINE)
        ranks.until_paused()
        if victim == "up":
            lost = hosts.runs[leader]
            lost.kill_up()
            until("its roles end", lambda: not lost.children(), lost)
            until("the next leader", lambda: led_by(stage, hosts.runs[1 - leader], 1 - leader), hosts.runs[1 - leader])
            hosts.runs[leader] = hosts.up(leader, lost.directory)
        else:
            os.kill(pid_of(hosts.runs[leader], victim), signal.SIGKILL)
        ranks.proceed()
        hosts.finish(ranks, golden)


def led_by(stage: Any, run: Run, host: int) -> bool:
    seen = status(stage, run)
    return bool(seen["hosts"][host].get("leads")) and seen.get("step") is not None
