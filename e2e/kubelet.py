"""A kubelet of the tests: runs the program for each pod that the scheduler has placed, and ends it with the pod.

It runs no containers. Each pod gets its own loopback address, and the paths of the containers become paths below one
directory."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Dict, List, Optional, Set

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # make test-k8s has a /run of its own
EVERY = 0.1  # seconds between two looks at the pods
GRACE = 60.0  # seconds from SIGTERM to SIGKILL, as in the manifests


class Server:
    """The API server, as a user sees it."""

    def __init__(self, url: str, authority: str, token: str) -> None:
        self.url, self._token, self.authority = url, token, authority
        self._context = ssl.create_default_context(cafile=authority)

    def ask(self, path: str, verb: str = "GET", body: Any = None, kind: str = "application/merge-patch+json") -> Any:
        request = urllib.request.Request(self.url + path, method=verb)
        request.add_header("Authorization", f"Bearer {self._token}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", kind)
        with urllib.request.urlopen(request, timeout=30, context=self._context) as answer:
            return json.load(answer)


class Pod:
    """The process of a pod."""

    def __init__(self, pod: Any, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name, self.role = pod["metadata"]["name"], pod["metadata"]["labels"]["app.kubernetes.io/component"]
        self.process, self.log = process, log
        self.asked: Optional[float] = None

    def end(self) -> None:
        """Ask the process to leave; kill it if it does not. Return at once."""
        if self.process.poll() is None and self.asked is None:
            self.asked = time.monotonic()
            self.process.send_signal(signal.SIGTERM)
        elif self.process.poll() is None and time.monotonic() - (self.asked or 0) > GRACE:
            os.killpg(self.process.pid, signal.SIGKILL)


class Kubelet:
    """Runs the pods of a namespace until the end of the `with` block."""

    def __init__(self, server: Server, namespace: str, program: Path, directory: Path, mixture: Path) -> None:
        self.server, self.pods_path = server, f"/api/v1/namespaces/{namespace}/pods"
        self._namespace, self._program, self._directory = namespace, str(program), directory
        self._files = {"/etc/millrace/mixture.yaml": str(mixture)}
        size = server.ask(f"/api/v1/namespaces/{namespace}/configmaps/millrace-size")["data"]
        cluster = server.ask(f"/api/v1/namespaces/{namespace}/configmaps/millrace")["data"]["cluster.yaml"]
        (directory / "cluster.yaml").write_text(cluster)
        self._files["/etc/millrace/cluster.yaml"] = str(directory / "cluster.yaml")
        self._size: Dict[str, str] = size
        self.pods: Dict[str, Pod] = {}  # by uid
        self._addresses: List[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failure: Optional[BaseException] = None

    def __enter__(self) -> "Kubelet":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()
        for pod in self.pods.values():
            pod.end()
        for pod in self.pods.values():
            try:
                pod.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                os.killpg(pod.process.pid, signal.SIGKILL)
                pod.process.wait()

    def _run(self) -> None:
        try:
            while not self._stop.wait(EVERY):
                self._look()
        except BaseException as e:
            self.failure = e

    def _look(self) -> None:
        there: Set[str] = set()
        for pod in self.server.ask(self.pods_path)["items"]:
            uid, about = pod["metadata"]["uid"], pod["status"]
            if "deletionTimestamp" in pod["metadata"] or about.get("phase") != "Running":
                continue
            there.add(uid)
            if uid not in self.pods and self._is_free(pod["metadata"]["name"]):
                self.pods[uid] = self._start(pod)
        for uid, running in self.pods.items():
            if uid not in there:
                running.end()

    def _is_free(self, name: str) -> bool:
        """A kubelet starts no pod while another one of its name ends."""
        return all(p.process.poll() is not None for p in self.pods.values() if p.name == name)

    def _start(self, pod: Any) -> Pod:
        (container,) = pod["spec"]["containers"]
        name = pod["metadata"]["name"]
        log = self._directory / f"{name}-{len(self.pods)}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [self._program, *self.arguments(container, name)], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True, env={**os.environ, **self._account(pod)},
            )
        return Pod(pod, process, log)

    def _account(self, pod: Any) -> Dict[str, str]:
        """The environment of a pod. A pod that may have a token of its service account finds it where pods do."""
        if not pod["spec"].get("automountServiceAccountToken"):
            return {}
        account = pod["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        token = self.server.ask(path, "POST", {"spec": {}}, "application/json")["status"]["token"]
        ACCOUNT.mkdir(parents=True, exist_ok=True)
        (ACCOUNT / "token").write_text(token)
        (ACCOUNT / "namespace").write_text(self._namespace)
        (ACCOUNT / "ca.crt").write_bytes(Path(self.server.authority).read_bytes())
        host, port = self.server.url[len("https://") :].split(":")
        return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    def arguments(self, container: Any, name: str, more: Optional[Dict[str, str]] = None) -> List[str]:
        """The arguments of a container, as processes of one machine need them."""
        values = {**self._size, "POD_NAME": name, "POD_NAMESPACE": self._namespace, **(more or {})}
        run_dir, address = self._directory / f"run-{name}", self._address(name)
        out = []
        for argument in container["args"]:
            text = re.sub(r"\$\((\w+)\)", lambda m: values[m.group(1)], argument)
            text = self._files.get(text, text)
            for inside, outside in self._files.items():
                text = text.replace(inside, outside)
            text = re.sub(r"(--listen=)[^:]+", rf"\g<1>{address}", text)
            out.append(text.replace("/run/millrace", str(run_dir)))
        return [a.replace("--metrics=:", f"--metrics={address}:") for a in out]

    def _address(self, name: str) -> str:
        if name not in self._addresses:
            self._addresses.append(name)
        return f"127.0.1.{self._addresses.index(name) + 1}"

    def running(self, role: str) -> List[str]:
        """The names of the pods of a role whose process lives and was not asked to leave."""
        pods = list(self.pods.values())
        return sorted(p.name for p in pods if p.role == role and p.process.poll() is None and p.asked is None)

    def statuses(self) -> Dict[str, List[Optional[int]]]:
        """The exit statuses of the processes that were asked to leave, by the name of the pod."""
        out: Dict[str, List[Optional[int]]] = {}
        for p in list(self.pods.values()):
            if p.asked is not None:
                out.setdefault(p.name, []).append(p.process.poll())
        return out

    def logs(self) -> str:
        return "\n".join(f"--- {p.log.name}\n{p.log.read_text(errors='replace')[-3000:]}" for p in self.pods.values())
