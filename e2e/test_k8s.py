"""A run whose processes follow the pods of a real Kubernetes. `make test-k8s` starts it, with kubelet.py as kubelet."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

import pytest

from conftest import variant
from harness import DEADLINE, Delivered, Trainers, command
from kubelet import Kubelet, Server
from test_cluster import running
from trainer import Orders

pytestmark = pytest.mark.needs("MILLRACE_KUBECONFIG", "etcd")

WORLD, RANKS = 2, 1
MIXTURE = variant({"global_batch_size": 8, "stop": {"steps": 400}, "loaders": 4})
OVERLAY = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: {namespace}
resources: [base]
configMapGenerator:
  - {name: millrace, behavior: replace, files: [mixture.yaml, cluster.yaml]}
  - {name: millrace-size, behavior: replace, literals: [WORLD_SIZE=2, RANKS=1]}
patches:  # the test is the trainer, and needs no certificates on loopback
  - {target: {kind: Job}, patch: "{$patch: delete, apiVersion: batch/v1, kind: Job, metadata: {name: trainer}}"}
"""


class Cluster:
    """The cluster of `make test-k8s`."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.config = os.environ["MILLRACE_KUBECONFIG"]
        about = json.loads(Path(self.config).read_text())
        server = about["clusters"][0]["cluster"]
        self.server = Server(server["server"], server["certificate-authority"], about["users"][0]["user"]["token"])

    def kubectl(self, *args: str, stdin: str = "") -> str:
        program = Path(os.environ["MILLRACE_K8S"]) / "kubectl"
        done = subprocess.run([str(program), "--kubeconfig", self.config, *args], input=stdin, text=True,
                              capture_output=True, timeout=DEADLINE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def scale(self, loaders: int) -> None:
        self.server.ask(f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets/loader/scale", "PATCH",
                        {"spec": {"replicas": loaders}})


def install(cluster: Cluster, directory: Path, mixture: Path, etcd: str) -> Any:
    """Applies the shipped manifests. Returns the sidecar's container of the Job."""
    base = Path(__file__).resolve().parent.parent / "deploy" / "kubernetes"
    subprocess.run(["cp", "-r", str(base), str(directory / "base")], check=True)
    (directory / "kustomization.yaml").write_text(OVERLAY.replace("{namespace}", cluster.namespace))
    (directory / "mixture.yaml").write_text(mixture.read_text())
    (directory / "cluster.yaml").write_text(f"name: {cluster.namespace}\netcd: ['{etcd}']\n")
    cluster.kubectl("create", "namespace", cluster.namespace)
    volume = """
{apiVersion: v1, kind: PersistentVolume, metadata: {name: data-NAME}, spec: {capacity: {storage: 1Gi},
 accessModes: [ReadOnlyMany], storageClassName: "", nfs: {server: 10.0.0.1, path: /}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: NAME}, spec: {storageClassName: "",
 accessModes: [ReadOnlyMany], volumeName: data-NAME, resources: {requests: {storage: 1Gi}}}}
"""
    cluster.kubectl("apply", "-f", "-", stdin=volume.replace("NAME", cluster.namespace))
    cluster.kubectl("apply", "-k", str(directory))
    job = cluster.kubectl("create", "--dry-run=client", "-o", "json", "-f", str(base / "trainer.yaml"))
    return json.loads(job)["spec"]["template"]["spec"]["initContainers"][0]


class Training:
    """A run whose processes follow the pods of a namespace, and its trainers."""

    def __init__(
        self, binary: Path, directory: Path, cluster: Cluster, kubelet: Kubelet, trainers: Trainers
    ) -> None:
        self.binary, self.directory = binary, directory
        self.cluster, self.kubelet, self.trainers = cluster, kubelet, trainers

    def until(self, what: str, wanted: Callable[[int], bool], within: float = DEADLINE) -> None:
        """Waits for a number of loaders."""
        over = time.monotonic() + within
        while not wanted(len(self.kubelet.running("loader"))):
            self.trainers.drain()
            assert self.kubelet.failure is None, self.kubelet.failure
            assert time.monotonic() < over, (
                f"{what}: not within {within:.0f} s\n{self.kubelet.logs()}\n{json.dumps(self.status(), indent=1)}"
            )
            time.sleep(0.1)

    def status(self) -> Any:
        return json.loads(command(self.binary, "status", str(self.directory / "run-orchestrator-0"), "--json"))


@contextlib.contextmanager
def training(
    stage: Any, directory: Path, namespace: str, about: Dict[str, Any], orders: Orders, golden: Delivered
) -> Iterator[Training]:
    """Installs a run. At the end, its batches are those of a run on one host, and every process has ended with 0."""
    cluster = Cluster(namespace)
    with running(stage, directory) as member:
        mixture = stage.mixture(about)
        container = install(cluster, directory, mixture, f"http://{member.address}")
        with Kubelet(cluster.server, namespace, stage.binary, directory, mixture) as kubelet:
            sidecars = [
                subprocess.Popen(
                    [str(stage.binary), *kubelet.arguments(container, f"trainer-{i}",
                                                           {"RANKS": "1", "JOB_COMPLETION_INDEX": str(i)})],
                    stdin=subprocess.DEVNULL, stdout=open(directory / f"trainer-{i}.log", "w"),
                    stderr=subprocess.STDOUT,
                )
                for i in range(WORLD)
            ]
            try:
                sockets = [str(directory / f"run-trainer-{i}" / f"rank-{i}.sock") for i in range(WORLD)]
                trainers = Trainers(sockets, [orders] * WORLD)
                yield Training(stage.binary, directory, cluster, kubelet, trainers)
                delivered = trainers.collect()
                assert delivered.ends == ["end"] * WORLD, (delivered.ends, kubelet.logs())
                assert [s.wait(DEADLINE) for s in sidecars] == [0] * WORLD
            finally:
                for s in sidecars:
                    s.kill()
                    s.wait()
            left = {name: exits for name, exits in kubelet.statuses().items() if name.startswith("loader-")}
            assert "loader-1" in left and all(s == 0 for exits in left.values() for s in exits), (left, kubelet.logs())
        assert delivered.bytes() == golden.bytes()


@pytest.fixture(scope="module")
def golden(stage: Any) -> Delivered:
    return stage.delivered(MIXTURE, WORLD)


def test_loaders_come_and_go_with_their_pods(stage: Any, tmp_path: Path, golden: Delivered) -> None:
    """1 → 4 → 1 loaders. The processes are those of the shipped manifests. No byte changes, and each loader that is
    asked to leave ends with 0."""
    with training(stage, tmp_path, "live", MIXTURE, Orders(pause=0.05, patience=DEADLINE), golden) as run:
        run.trainers.collect(until=5)
        for count in (4, 1):
            run.cluster.scale(count)
            run.until(f"{count} loaders", lambda there: there == count)
            run.trainers.collect(until=max(b.step for b in run.trainers.delivered.ranks[0]) + 40)


def test_the_run_scales_its_loaders(
    stage: Any, tmp_path: Path, golden: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The orchestrator asks Kubernetes for loaders while ranks wait for a slow source, and gives them back."""
    monkeypatch.setenv("MILLRACE_FAILPOINTS", "loader/tokenise/before=sleep:60ms@0")
    hold = tmp_path / "hold"
    with training(stage, tmp_path, "elastic", {**MIXTURE, "loaders": "1-3"},
                  Orders(pause=0.5, hold=str(hold), patience=DEADLINE), golden) as run:
        run.until("more loaders", lambda there: there > 1)
        hold.touch()  # a step takes a second: one loader is enough
        run.until("one loader", lambda there: there == 1, within=3 * DEADLINE)
        hold.unlink()
