"""A node of Ray that is cut off, and comes back: each node has a network namespace of its own on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import ray

import lean
import millrace.ray
import ordeal
from conftest import RANKS, STORE, of_millrace
from test_ray import NONE, Training, lives_on, parent_of, until

NODES = ("n1", "n2")
WORLD = RANKS * len(NODES)
HEAD = "10.201.9.1"  # of the bridge, with the driver, the head, and etcd; the nodes follow
PROGRAM = Path(sys.executable).parent / "ray"


def sh(script: str) -> None:
    done = subprocess.run(["sh", "-ec", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{script}: {done.stderr}"


class Machines:
    """A head in this namespace, and nodes in theirs. All share the file system and the process numbers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: List["subprocess.Popen[bytes]"] = []
        sh("mount -t tmpfs tmpfs /run && mkdir -p /run/netns && ip link add br0 type bridge && "
           f"ip addr add {HEAD}/24 dev br0 && ip link set br0 up")
        for name in NODES:
            sh(f"ip netns add {name} && ip link add {name} type veth peer name eth0 netns {name} && "
               f"ip link set {name} master br0 up && ip netns exec {name} sh -c 'ip link set lo up && "
               f"ip addr add {self.address(name)}/24 dev eth0 && ip link set eth0 up'")  # fmt: skip
        self.start("etcd", self.etcd())
        common = ["start", "--block", "--disable-usage-stats", "--object-store-memory", str(STORE)]
        self.start_ray("head", [str(PROGRAM), *common, "--head", "--node-ip-address", HEAD, "--port", "6379",
                                "--num-cpus", "0", "--include-dashboard", "false"])  # fmt: skip
        for name in NODES:
            self.start_ray(name, ["ip", "netns", "exec", name, str(PROGRAM), *common, "--address", f"{HEAD}:6379",
                                  "--node-ip-address", self.address(name), "--num-cpus", str(WORLD)])  # fmt: skip
        ray.init(address=f"{HEAD}:6379", _node_ip_address=HEAD, log_to_driver=True)
        until("all nodes", lambda: sum(n["Alive"] for n in ray.nodes()) == 1 + len(NODES))

    def address(self, name: str) -> str:
        return f"10.201.9.{2 + NODES.index(name)}"

    def start_ray(self, name: str, command: List[str]) -> None:
        """Start a node, and wait until it is there."""
        over = time.monotonic() + lean.START_WITHIN
        self.start(name, command)
        while "Ray runtime started" not in self.log_of(name):
            if self.started[-1].poll() is not None:
                self.start(name, command)
            assert time.monotonic() < over, f"Ray does not start: {self.log_of(name)}"
            time.sleep(0.5)

    def log_of(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def start(self, name: str, command: List[str]) -> None:
        with open(self.directory / f"{name}.log", "ab") as log:
            self.started.append(subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "PYTHONUNBUFFERED": "1"},
            ))  # fmt: skip

    def etcd(self) -> List[str]:
        """The command of a member with certificates. They are made here, for all hosts."""
        certs, url = self.directory / "certs", f"https://{HEAD}:2379"
        hosts = ",".join([HEAD, *(self.address(name) for name in NODES)])
        sh(f"{os.environ['MILLRACE']} certs init --dir {certs} --hosts {hosts}")
        return ["etcd", "--data-dir", str(self.directory / "etcd"), "--listen-client-urls", url,
                "--advertise-client-urls", url, "--cert-file", f"{certs}/{HEAD}.pem", "--key-file",
                f"{certs}/{HEAD}-key.pem", "--trusted-ca-file", f"{certs}/ca.pem", "--client-cert-auth",
                "--listen-peer-urls", "http://127.0.0.1:0", "--initial-advertise-peer-urls", "http://127.0.0.1:0",
                "--initial-cluster", "default=http://127.0.0.1:0", "--log-level", "error"]  # fmt: skip

    @property
    def cluster(self) -> Dict[str, Any]:
        certs = self.directory / "certs"
        return {
            "etcd": [f"https://{HEAD}:2379"],
            "tls": {"ca": certs / "ca.pem", "cert": f"{certs}/{{host}}.pem", "key": f"{certs}/{{host}}-key.pem"},
        }

    def close(self) -> None:
        ray.shutdown()
        for process in reversed(self.started):
            process.terminate()
        for process in reversed(self.started):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    out = Machines(tmp_path)
    yield out
    out.close()


def test_a_node_that_is_cut_off(machines: Machines, mixture: Path, tmp_path: Path) -> None:
    """Its actor, its `up` and its trainers live on beside their successors, and end when the node is back."""

    def faults(t: Training) -> None:
        t.pass_steps(25)
        first = next(life for life in ordeal.lives(t.records) if life.rank == 0)
        address = next(n["NodeManagerAddress"] for n in ray.nodes() if n["NodeID"] == first.node)
        name = next(n for n in NODES if machines.address(n) == address)
        up = t.up(first.rank)
        before, began = set(of_millrace()), time.time()
        sh(f"ip link set {name} down")
        print(f"\n{name} is cut off: all ranks trained again after {t.pass_steps(1, since=began):.1f} s")
        assert first.node not in {life.node for life in ordeal.lives(t.records) if life.began > began}
        t.pass_steps(20, since=began)
        assert lives_on(up) and lives_on(parent_of(up)) and lives_on(first.pid), "Ray has ended a node that is cut off"
        sh(f"ip link set {name} up")
        gone = until("the end of the earlier ones", lambda: not (lives_on(up) or lives_on(first.pid)))
        print(f"{name} is back: the earlier up and trainer ended after {gone:.1f} s")
        t.pass_steps(20, since=began)
        assert before & set(of_millrace()), "no process of the other node has lived on"

    golden = ordeal.of_one_host(mixture, WORLD)
    with millrace.ray.launch(
        mixture, trainers=WORLD, ranks_per_node=RANKS, run_dir=tmp_path / "{node}", cluster=machines.cluster
    ) as run:
        training = Training(run, tmp_path)
        result = training.fit(faults, world=WORLD)
    assert result.error is None and result.metrics["step"] == 399, result
    assert any(life.resumed for life in ordeal.lives(training.records))
    assert ordeal.judge(training.records, golden, WORLD) == NONE
