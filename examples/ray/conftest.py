"""A Ray of several nodes on this machine. `make test-ray` runs these tests in namespaces of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT / "clients/python/src", Path(__file__).parent):
    sys.path.insert(0, str(folder))
os.environ["PYTHONPATH"] = os.pathsep.join(map(str, sys.path[:2]))  # of the workers
os.environ.update(
    RAY_raylet_liveness_self_check_interval_ms="300", RAY_health_check_initial_delay_ms="1000",
    RAY_health_check_period_ms="1000", RAY_health_check_timeout_ms="5000", RAY_health_check_failure_threshold="8",
    RAY_TRAIN_V2_ENABLED="1", RAY_DEDUP_LOGS="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    RAY_memory_monitor_refresh_ms="0", RAY_USAGE_STATS_ENABLED="0", RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S="180",
    RAY_worker_niceness="0",  # as other processes have: else a busy machine starves workers alone
    RAY_agent_register_timeout_ms="180000", RAY_worker_register_timeout_seconds="180",
    RAY_local_fs_capacity_threshold="1",  # Ray refuses objects on a disk that is 95 % full
    RAY_START_HOOK="lean.install", PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # of `ray start`
)  # fmt: skip

import pytest  # noqa: E402
import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

import lean  # noqa: E402
import ordeal  # noqa: E402

lean.install()

NODES = int(os.environ.get("MILLRACE_RAY_NODES", "2"))  # beside the head, which has no CPUs
RANKS = 2  # of each node
WORLD = NODES * RANKS
ATTEMPTS = 5  # to start a Ray, within lean.START_WITHIN in all
STORE = 80 << 20  # bytes of a node's object store; no batch goes through it


def started(start: Callable[[], Any]) -> Any:
    """Start a Ray, or end the tests. An attempt that failed leaves processes, and here are no others of Ray."""

    def late(*_: Any) -> None:
        raise TimeoutError("Ray does not answer")

    over, reasons = time.monotonic() + lean.START_WITHIN, []
    signal.signal(signal.SIGALRM, late)
    while len(reasons) < ATTEMPTS and (left := over - time.monotonic()) > 0:
        signal.setitimer(signal.ITIMER_REAL, left)
        try:
            return start()
        except Exception as e:
            reasons.append(f"{type(e).__name__}: {e}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        ray.shutdown()
        subprocess.run(["ray", "stop", "--force"], stdout=subprocess.DEVNULL, timeout=60)
    load = os.getloadavg()[0]
    pytest.exit(
        f"{len(reasons)} attempts to start Ray failed within {lean.START_WITHIN:.0f} s, at load average {load:.0f}: "
        f"{'; '.join(reasons)}. See /tmp/ray/session_latest/logs, and try again beside fewer processes", returncode=1,
    )  # fmt: skip


class Nodes:
    """A real Ray: a head with the driver, and nodes for trainers."""

    def __init__(self) -> None:
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE},
        )
        self.nodes = [self.add() for _ in range(NODES)]
        ray.init(address=self.cluster.address, log_to_driver=True)
        self.await_nodes(NODES)

    def add(self) -> Any:
        # Twice the ranks: the ranks of a lost node fit on another one.
        return self.cluster.add_node(wait=False, num_cpus=2 * RANKS, object_store_memory=STORE)

    def await_nodes(self, count: int) -> None:
        until = time.monotonic() + 120
        while sum(n["Alive"] for n in ray.nodes()) != count + 1:
            assert time.monotonic() < until, ray.nodes()
            time.sleep(0.2)

    def kill_raylet(self, node_id: str) -> None:
        """kill -9. The raylet's workers end when its zombie is gone."""
        node = next(n for n in self.nodes if n.node_id == node_id)
        process = node.all_processes[ray._private.ray_constants.PROCESS_TYPE_RAYLET][0].process
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.nodes.remove(node)


def of_millrace() -> Dict[int, List[str]]:
    """The living processes of the program, and their arguments."""
    out = {}
    for entry in os.listdir("/proc"):
        try:
            arguments = Path("/proc", entry, "cmdline").read_bytes().decode().split("\0") if entry.isdigit() else []
            program = os.path.basename(os.readlink(f"/proc/{entry}/exe")) if arguments else ""
        except OSError:
            continue
        if program.split(" ")[0] in ("millrace", "etcd"):
            out[int(entry)] = arguments
    return out


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    out = started(Nodes)
    yield out
    ray.shutdown()
    out.cluster.shutdown()


@pytest.fixture(scope="session")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ordeal.write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def golden(mixture: Path) -> "Dict[ordeal.Slot, str]":
    out = ordeal.of_one_host(mixture, WORLD)
    assert len(out) == 400 * 8 // 1, len(out)
    return out


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """A test leaves no process of the program, no actor of a run, and no temporary directory."""
    before = set(Path(tempfile.gettempdir()).glob("millrace-*-run-*"))
    yield
    if not ray.is_initialized():
        return
    from millrace._ray_actors import all_actors

    until = time.monotonic() + 20
    while (left := of_millrace()) or all_actors():
        assert time.monotonic() < until, (left, all_actors())
        time.sleep(0.1)
    assert set(Path(tempfile.gettempdir()).glob("millrace-*-run-*")) <= before
