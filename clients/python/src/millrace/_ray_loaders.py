"""The loaders of a run that belong to no host: actors that Ray places by their needs, and its autoscaler counts."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import subprocess
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import ray

from ._child import Child, find_program
from ._errors import RunError
from ._ray_actors import LASTING, actors_of, end_actor
from ._ray_kept import Kept
from ._ray_spec import NAMESPACE, Spec, remove_dir

log = logging.getLogger("millrace")

LOOK_EVERY = 0.5  # seconds between two looks at the loaders
SILENT = 10.0  # seconds without an answer, after which a loader counts as one that Ray starts again
CLOSE_WITHIN = 3.0  # seconds for the mailbox to end
CPUS = 1.0  # of a loader, if the goal names no number


class Loader(Kept):
    """Keeps one `millrace loader` alive, on the node that Ray has chosen."""

    def __init__(self, spec: Spec, name: str) -> None:
        super().__init__(name)
        self._spec, self._name, self._state = spec, name, "pending"
        self._address, self._node = ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
        self._run_dir = os.path.join(spec.home(self._address, self._node), name)
        self._begin()

    def look(self) -> Tuple[str, str, int]:
        """Return the state for the orchestrator, the node, and the process id; 0: there is none now."""
        child = self._child
        if self._state == "ended" and child is not None and child.process.returncode:  # 0: the run is over
            self._wanted.set()
        return self._state if self._state == "running" else "pending", self._node, self.pid()

    def stop(self) -> None:
        """Ask the loader to leave, and wait until it has handed over."""
        self._end()
        if self._spec.is_temporary:
            remove_dir(self._run_dir)

    def _start(self) -> Child:
        spec, run_dir = self._spec, self._run_dir
        os.makedirs(run_dir, mode=0o700, exist_ok=True)
        spec.write_cluster(run_dir, self._address, self._node)
        arguments = ["loader", "-", "--name", self._name, "--world-size", str(spec.world), "--run-dir", run_dir,
                     "--cluster", os.path.join(run_dir, "cluster.yaml")]  # fmt: skip
        return Child(arguments, os.path.join(run_dir, "loader.log"), spec.mixture, spec.cwd(run_dir))

    def _see(self, state: str, reason: str = "") -> None:
        self._state = "running" if state == "ready" else state


class Mailbox:
    """The goals of the orchestrator, and its view of the processes: a child that talks to etcd."""

    def __init__(self, cluster: str) -> None:
        self.goals: "queue.Queue[List[Dict[str, Any]]]" = queue.Queue()
        self._process = subprocess.Popen(
            [find_program(), "mailbox", "--cluster", cluster], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def tell(self, instances: List[Dict[str, Any]]) -> None:
        """Record which processes exist. Raise RunError if the child has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(instances) + "\n")
            self._process.stdin.flush()
        except OSError as e:
            raise RunError(f"the mailbox of the run has ended: {e}") from None

    def close(self) -> None:
        """End the child, which exits at the end of its input. If etcd is away, it may not."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended
            self._process.stdin.close()
        try:
            self._process.wait(CLOSE_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reading.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.goals.put(json.loads(line)["roles"])


class Loaders:
    """Carries out the goals of the orchestrator, in a thread of the actor that keeps the run."""

    def __init__(self, spec: Spec, cluster: str) -> None:
        self._spec, self._cluster = spec, cluster
        self._wanted: Optional[Dict[str, Any]] = None  # None: nobody has asked for loaders yet
        self._stopping = threading.Event()
        self._there: Dict[str, _There] = {}
        self._told: Optional[List[Dict[str, Any]]] = None
        self._keeping = threading.Thread(target=self._keep, daemon=True)
        self._keeping.start()

    def stop(self) -> None:
        """Carry out no more goals. The loaders stay, if Ray has placed them."""
        self._stopping.set()
        self._keeping.join()
        for there in self._there.values():
            if not there.is_placed:
                end_actor(there.actor)

    def _keep(self) -> None:
        while not self._stopping.is_set():
            mailbox = Mailbox(self._cluster)
            try:
                while not self._stopping.wait(LOOK_EVERY):
                    while not mailbox.goals.empty():
                        self._wanted = next((w for w in mailbox.goals.get() if w["role"] == "loader"), self._wanted)
                    self._turn(mailbox.tell)
            except RunError as e:
                log.warning("%s", e)
                self._told = None
            finally:
                mailbox.close()

    def _turn(self, tell: Callable[[List[Dict[str, Any]]], None]) -> None:
        spec = self._spec
        living = actors_of(spec.name)
        self._there = {name: there for name, there in self._there.items() if there.actor in living}
        for actor in living:  # also those of an earlier life of this actor
            name = spec.loader_of(actor)
            if name and name not in self._there:
                self._there[name] = _There(ray.get_actor(actor, namespace=NAMESPACE), actor)
        wanted = self._names()
        for name in wanted:
            if name not in self._there:
                self._there[name] = self._place(name)
        for name, there in list(self._there.items()):
            if there.look(ends=name not in wanted):
                end_actor(there.actor)
                del self._there[name]
        now = [there.instance(name) for name, there in sorted(self._there.items())]
        if now != self._told:
            tell(now)
            self._told = now

    def _names(self) -> List[str]:
        """Return the names of the loaders that should exist."""
        if self._wanted is None:
            return list(self._there)
        first = self._wanted.get("first", 0)
        return [f"loader-{i}" for i in range(first, first + self._wanted["count"])]

    def _place(self, name: str) -> "_There":
        needs: Dict[str, Any] = {"num_cpus": self._wanted.get("cpu_millis", 0) / 1000 or CPUS} if self._wanted else {}
        if self._wanted and self._wanted.get("memory_bytes"):
            needs["memory"] = self._wanted["memory_bytes"]
        actor = self._spec.loader(name)
        options = dict(LASTING, name=actor, get_if_exists=True, scheduling_strategy="SPREAD", **needs)
        return _There(ray.remote(Loader).options(**options).remote(self._spec, name), actor)


class _There:
    """A loader that exists, as its answers show it."""

    def __init__(self, handle: Any, actor: str) -> None:
        self.actor = actor
        self._handle, self._state, self._node = handle, "pending", ""
        self._answer, self._asked = handle.look.remote(), time.monotonic()
        self._stopped: Any = None  # the answer to stop; None: it stays

    @property
    def is_placed(self) -> bool:
        """Whether it has run on a node. Else it waits for room."""
        return bool(self._node)

    def look(self, ends: bool) -> bool:
        """Ask without a wait. `ends`: ask it to leave. Return whether it has left."""
        if ends and self._stopped is None:
            self._stopped = self._handle.stop.remote()
        if self._stopped is not None:
            self._state = "ending"
            return not self.is_placed or bool(ray.wait([self._stopped], timeout=0)[0])
        if ray.wait([self._answer], timeout=0)[0]:
            try:
                self._state, self._node, _ = ray.get(self._answer)
            except ray.exceptions.RayError:
                self._state = "pending"
            self._answer, self._asked = self._handle.look.remote(), time.monotonic()
        elif time.monotonic() - self._asked > SILENT:
            self._state = "pending"
        return False

    def instance(self, name: str) -> Dict[str, Any]:
        return {"role": "loader", "name": name, "host": self._node, "state": self._state}
