"""A run whose processes follow the pods of a real Kubernetes. `make test-k8s` starts it, with kubelet.py as kubelet."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from conftest import variant
from harness import DEADLINE, Trainers
from kubelet import Kubelet, Server
from test_cluster import running
from trainer import Orders

pytestmark = pytest.mark.skipif("MILLRACE_KUBECONFIG" not in os.environ, reason="MILLRACE_KUBECONFIG names no cluster")

WORLD, RANKS = 2, 1
NAMESPACE = "live"
MIXTURE = variant({"global_batch_size": 8, "stop": {"steps": 400}, "loaders": 4})
OVERLAY = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: live
resources: [base]
configMapGenerator:
  - {name: millrace, behavior: replace, files: [mixture.yaml, cluster.yaml]}
  - {name: millrace-size, behavior: replace, literals: [WORLD_SIZE=2, RANKS=1]}
patches:  # the test is the trainer, and needs no certificates on loopback
  - {target: {kind: Job}, patch: "{$patch: delete, apiVersion: batch/v1, kind: Job, metadata: {name: trainer}}"}
"""


class Cluster:
    """The cluster of `make test-k8s`."""

    def __init__(self) -> None:
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
        self.server.ask(f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/loader/scale", "PATCH",
                        {"spec": {"replicas": loaders}})


def install(cluster: Cluster, directory: Path, mixture: Path, etcd: str) -> Any:
    """Applies the shipped manifests. Returns the sidecar's container of the Job."""
    base = Path(__file__).resolve().parent.parent / "deploy" / "kubernetes"
    subprocess.run(["cp", "-r", str(base), str(directory / "base")], check=True)
    (directory / "kustomization.yaml").write_text(OVERLAY)
    (directory / "mixture.yaml").write_text(mixture.read_text())
    (directory / "cluster.yaml").write_text(f"name: live\netcd: ['{etcd}']\n")
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("apply", "-f", "-", stdin="""
{apiVersion: v1, kind: PersistentVolume, metadata: {name: data-live}, spec: {capacity: {storage: 1Gi},
 accessModes: [ReadOnlyMany], storageClassName: "", nfs: {server: 10.0.0.1, path: /}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: live}, spec: {storageClassName: "",
 accessModes: [ReadOnlyMany], volumeName: data-live, resources: {requests: {storage: 1Gi}}}}
""")
    cluster.kubectl("apply", "-k", str(directory))
    job = cluster.kubectl("create", "--dry-run=client", "-o", "json", "-f", str(base / "trainer.yaml"))
    return json.loads(job)["spec"]["template"]["spec"]["initContainers"][0]


def until(what: str, is_true: Callable[[], bool], kubelet: Kubelet) -> None:
    over = time.monotonic() + DEADLINE
    while not is_true():
        assert kubelet.failure is None, kubelet.failure
        assert time.monotonic() < over, f"{what}: not within {DEADLINE:.0f} s\n{kubelet.logs()}"
        time.sleep(0.1)


def test_loaders_come_and_go_with_their_pods(stage: Any, tmp_path: Path) -> None:
    """1 → 4 → 1 loaders. The processes are those of the shipped manifests. No byte changes, and each loader that is
    asked to leave ends with 0."""
    golden = stage.delivered(MIXTURE, WORLD)
    cluster = Cluster()
    with running(stage, tmp_path) as member:
        mixture = stage.mixture(MIXTURE)
        container = install(cluster, tmp_path, mixture, f"http://{member.address}")
        with Kubelet(cluster.server, NAMESPACE, stage.binary, tmp_path, mixture) as kubelet:
            sidecars = [
                subprocess.Popen(
                    [str(stage.binary), *kubelet.arguments(container, f"trainer-{i}",
                                                           {"RANKS": "1", "JOB_COMPLETION_INDEX": str(i)})],
                    stdin=subprocess.DEVNULL, stdout=open(tmp_path / f"trainer-{i}.log", "w"), stderr=subprocess.STDOUT,
                )
                for i in range(WORLD)
            ]
            try:
                trainers = Trainers(
                    [str(tmp_path / f"run-trainer-{i}" / f"rank-{i}.sock") for i in range(WORLD)],
                    [Orders(pause=0.05, patience=DEADLINE)] * WORLD,
                )
                trainers.collect(until=5)
                seen: Dict[int, int] = {}
                for count in (4, 1):
                    cluster.scale(count)
                    until(f"{count} loaders", lambda: len(kubelet.running("loader")) == count, kubelet)
                    seen[count] = max(b.step for b in trainers.delivered.ranks[0])
                    trainers.collect(until=seen[count] + 40)
                delivered = trainers.collect()
                assert delivered.ends == ["end"] * WORLD, (delivered.ends, kubelet.logs())
                assert [s.wait(DEADLINE) for s in sidecars] == [0] * WORLD
            finally:
                for s in sidecars:
                    s.kill()
                    s.wait()
            left = kubelet.statuses()
            assert {n for n in left if n.startswith("loader-")} >= {"loader-1", "loader-2", "loader-3"}, left
            assert all(s == 0 for name in ("loader-1", "loader-2", "loader-3") for s in left[name]), (
                left, kubelet.logs())
        assert delivered.bytes() == golden.bytes()
