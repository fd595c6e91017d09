"""The number of loaders follows the work: a slow source gets loaders, and gives them back when ranks need less."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from conftest import variant
from harness import DEADLINE, LOOK, Delivered, Run, Trainers
from test_cluster import running, status
from test_failover import Watch
from test_hosts import HOSTS, finished, on_loopback, spread
from trainer import Orders

RANKS = 2
BATCHES = {"global_batch_size": 8, "stop": {"steps": 400}, "reliability": {"shadows": 0}}


def slow(directory: Path) -> Tuple[Path, str]:
    """A file, and the failpoint that makes every loader slow for each record while the file exists. A test removes it
    once the number of loaders has been seen, because the rest of the run then takes no time."""
    file = directory / "slow"
    file.touch()
    return file, f"loader/tokenise/before=slow:60ms:{file}"


@pytest.fixture(scope="module")
def golden(stage: Any) -> Delivered:
    return stage.delivered(variant({**BATCHES, "loaders": 2}), RANKS)


def loaders(trainers: Trainers, least: int, most: int) -> Callable[[Dict[str, Any]], bool]:
    """Whether so many loaders are there, all of them read, and the run wishes no others."""

    def found(status: Dict[str, Any]) -> bool:
        trainers.drain()
        there = {role["name"] for role in status["roles"] if role["role"] == "loader"}
        readers = {stripe["loader"] for stripe in status["stripes"]}
        return least <= len(there) <= most and readers == there and status["scaling"]["wished"] == len(there)

    return found


def test_loaders_follow_the_work(stage: Any, tmp_path: Path, golden: Delivered) -> None:
    hold, (source, points) = tmp_path / "hold", slow(tmp_path)
    with stage.up(variant({**BATCHES, "loaders": "1-4"}), RANKS, env={"MILLRACE_FAILPOINTS": points}) as run:
        watch = Watch(stage, run)
        trainers = watch.start(pause=0.5, hold=str(hold), patience=DEADLINE)
        watch.until(loaders(trainers, 2, 4), within=DEADLINE)  # the ranks wait for the slow source
        hold.touch()
        watch.until(loaders(trainers, 1, 1), within=3 * DEADLINE)  # a step takes a second: one loader is enough
        source.unlink()
        hold.unlink()
        delivered = trainers.collect()
        assert delivered.ends == ["end"] * RANKS, run.stderr()
        assert run.wait(DEADLINE) == 0, run.stderr()
        assert "scale: 1 loaders instead of" in run.stderr(), run.stderr()
    assert delivered.bytes() == golden.bytes()


class Engine:
    """The side of Ray in the mailbox of a run: the goals that it was told."""

    def __init__(self, binary: Path, cluster: Path) -> None:
        self.goals: List[Dict[str, Any]] = []
        self.mailbox = subprocess.Popen(
            [str(binary), "mailbox", "--cluster", str(cluster)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.mailbox.stdout is not None
        for line in self.mailbox.stdout:
            self.goals += [role for role in json.loads(line)["roles"] if role["role"] == "loader"]

    def tell(self, loaders: List[str]) -> None:
        assert self.mailbox.stdin is not None
        there = [{"role": "loader", "name": name, "host": "another", "state": "running"} for name in loaders]
        self.mailbox.stdin.write(json.dumps(there) + "\n")
        self.mailbox.stdin.flush()

    def close(self) -> None:
        assert self.mailbox.stdin is not None
        self.mailbox.stdin.close()
        self._reading.join(DEADLINE)
        assert self.mailbox.wait(DEADLINE) == 0


@contextlib.contextmanager
def engine(*args: Any) -> Iterator[Engine]:
    out = Engine(*args)
    try:
        yield out
    finally:
        out.mailbox.kill()
        out.mailbox.wait()


@pytest.mark.needs("etcd")
def test_ray_adds_loaders_to_several_hosts(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range counts the loaders of all hosts. That of rank 0 runs the first one, and an engine is asked for others."""
    about = variant({"global_batch_size": 8, "stop": {"steps": 90}, "loaders": "1-3", "reliability": {"shadows": 0}})
    golden = stage.delivered(about, 2)
    source, points = slow(tmp_path)
    monkeypatch.setenv("MILLRACE_FAILPOINTS", points)
    with running(stage, tmp_path) as member, contextlib.ExitStack() as stack:
        files = on_loopback(f"http://{member.address}", tmp_path)
        ray = stack.enter_context(engine(stage.binary, files[0]))
        hosts = stack.enter_context(spread(stage, about, files, ranks=1, more=["--placer", "ray"]))
        trainers = hosts.start(Orders(pause=0.02, patience=DEADLINE))  # faster than one slow loader
        over = time.monotonic() + DEADLINE
        while not any(goal["count"] for goal in ray.goals):  # the ranks wait for the slow source
            trainers.drain()
            assert time.monotonic() < over, (ray.goals, [run.stderr() for run in hosts.runs])
            time.sleep(0.1)
        goal = ray.goals[-1]
        assert goal["first"] == 1 and goal["count"] <= 2 and goal["memory_bytes"] > 0, goal
        names = [f"loader-{goal['first'] + i}" for i in range(goal["count"])]
        shared = ["--world-size", str(HOSTS), "--cluster", str(files[0]), "--listen", "127.0.0.1:0"]
        added = [
            stack.enter_context(Run(
                stage.binary, stage.mixture(about), stage.new_dir(), 1, role="loader",
                args=[*shared, "--name", name],
            ))
            for name in names
        ]  # fmt: skip
        ray.tell(names)
        want = {"loader-0-0", *names}
        while {s["loader"] for s in status(stage, hosts.runs[0])["stripes"]} != want:
            trainers.drain()
            assert time.monotonic() < over, [run.stderr() for run in [*hosts.runs, *added]]
            time.sleep(LOOK)
        source.unlink()
        delivered = trainers.collect()
        finished(hosts, delivered)
        assert [run.wait(DEADLINE) for run in added] == [0] * len(added), [run.stderr() for run in added]
        ray.close()
    assert delivered.bytes() == golden.bytes()
