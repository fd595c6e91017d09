"""Ray's head dies and starts again. Its state is in Redis: without it, Ray starts from nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator, List

import pytest
import ray

import lean
import millrace.ray
import ordeal
from conftest import STORE
from test_ray import NONE, Training, until

HERE, GCS, REDIS = "127.0.0.1", 6379, 6390
PROGRAM = Path(sys.executable).parent / "ray"
WORLD = 2


def running(program: str) -> List[int]:
    """The processes of a program of Ray."""
    out = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{entry}/exe").endswith("/" + program):
                out.append(int(entry))
        except OSError:
            continue
    return out


def start(arguments: List[str], **environment: str) -> None:
    """Start the processes of a node."""
    over = time.monotonic() + lean.START_WITHIN
    while True:
        done = subprocess.run(
            [str(PROGRAM), "start", "--disable-usage-stats", "--object-store-memory", str(STORE), "--node-ip-address",
             HERE, *arguments], env={**os.environ, **environment}, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode == 0:
            return
        assert time.monotonic() < over, f"Ray does not start: {done.stdout}{done.stderr}"
        for pid in running("gcs_server") if "--head" in arguments else []:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[None]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server (on Debian: apt-get install redis-server)")
    server = subprocess.Popen(
        [program, "--port", str(REDIS), "--bind", HERE, "--dir", str(tmp_path), "--save", ""],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    yield
    server.kill()
    server.wait()


def test_the_head_starts_again(redis: None, mixture: Path, tmp_path: Path) -> None:
    """Trainers train on while gcs_server is away, and behind it."""

    def faults(t: Training) -> None:
        t.pass_steps(25)
        (pid,) = running("gcs_server")
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
        own = dict(e.split("=", 1) for e in Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0") if "=" in e)
        os.kill(pid, signal.SIGKILL)
        print(f"\ngcs_server is away: 40 steps in {t.pass_steps(40):.1f} s")
        t.restarted = subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        print(f"gcs_server is back: 40 steps in {t.pass_steps(40):.1f} s")
        until("an answer of Ray", lambda: any(n["Alive"] for n in ray.nodes()))
        print("Ray answers:", [(n["NodeManagerAddress"], n["Alive"]) for n in ray.nodes()])

    start(["--head", "--port", str(GCS), "--num-cpus", "0", "--include-dashboard", "false"],
          RAY_REDIS_ADDRESS=f"{HERE}:{REDIS}")  # fmt: skip
    start(["--address", f"{HERE}:{GCS}", "--num-cpus", "4"])
    ray.init(address=f"{HERE}:{GCS}", _node_ip_address=HERE, log_to_driver=True)
    try:
        with millrace.ray.launch(mixture, trainers=WORLD, ranks_per_node=1, run_dir=tmp_path / "{node}") as run:
            training: Any = Training(run, tmp_path)
            result = training.fit(faults, world=WORLD)
    finally:
        ray.shutdown()
    assert result.error is None and result.metrics["step"] == 399, result
    assert len(ordeal.lives(training.records)) == WORLD, "a worker was restarted"
    assert ordeal.judge(training.records, ordeal.of_one_host(mixture, WORLD), WORLD) == NONE
