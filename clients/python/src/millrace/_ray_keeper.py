"""The actor that keeps the facts of a run, and places its hosts."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from typing import Any, List, Optional

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

from ._child import Child
from ._errors import RunError
from ._ray_actors import LASTING, actors_of, end_actor
from ._ray_host import Host, Seen
from ._ray_loaders import Loaders
from ._ray_spec import LOOPBACK, NAMESPACE, Spec, fill, remove_dir

log = logging.getLogger("millrace")

ATTEMPTS = 10  # to start the etcd member, a second apart
LOST = 15.0  # seconds for which every host lacks a journal that counts, until the journals are given up
LOOK_EVERY = 1.0  # seconds between two looks at the hosts
LOOK_WITHIN = 5.0  # seconds for the hosts to answer


class Keeper:
    """Places the hosts of a run, one call after the other. If the run has its own etcd member, the member is a child of
    this actor."""

    def __init__(self, spec: Spec) -> None:
        # An earlier life of this actor may have renewed the run.
        renewals = [int(name.rpartition("/")[2]) for name in actors_of(spec.name) if name != spec.keeper]
        self._spec = dataclasses.replace(spec, renewal=max([spec.renewal, *renewals]))
        self._looked, self._is_orphaned = 0.0, False
        self._member: Optional[Child] = None
        self._stopping = threading.Event()
        self._closed = False
        self._keeping: Optional[threading.Thread] = None
        if spec.etcd_port:
            self._member = self._first_member()
            self._keeping = threading.Thread(target=self._keep_member, daemon=True)
            self._keeping.start()
        self._loaders = self._place_loaders()

    def spec(self) -> Spec:
        """Return the facts of the run."""
        return self._spec

    def place(self, first: int, node: str) -> Any:
        """Return the actor of the host with the rank `first`, on a node. If it is on another node, it ends there."""
        spec = self._spec
        if self._closed:
            raise RunError(f"the run {spec.name} is shut down")
        refuse_far_nodes(spec)
        name = spec.host(first, node)
        for other in actors_of(spec.name):
            if spec.is_host(first, other) and other != name:
                # On a lost node it lives on until the node notices. Until then, etcd keeps the next one out.
                end_actor(other)
        options = dict(LASTING, name=name, get_if_exists=True, scheduling_strategy=On(node, soft=False))
        return ray.remote(Host).options(**options).remote(spec, first)

    def is_orphaned(self) -> bool:
        """Return whether all hosts are ready, and none of them has a journal that counts. Then the run cannot go on."""
        now = time.monotonic()
        if now - self._looked > LOOK_EVERY:
            self._looked, self._is_orphaned = now, self._spec.is_spread and self._have_all_lost()
        return self._is_orphaned

    def renew(self, renewal: int) -> None:
        """Begin the run under a new name on the same nodes, if it is orphaned. Its trainers load a saved state.

        `renewal`: that of which the caller knows. Several trainers renew the run once."""
        if renewal != self._spec.renewal or not self.is_orphaned():
            return
        if self._loaders is not None:
            self._loaders.stop()
        before, self._is_orphaned = self._spec, False
        self._spec = dataclasses.replace(before, renewal=renewal + 1)
        log.warning("every journal that counts of the run %s is lost: it begins anew as %s, from the saved state",
                    before.name_in_etcd, self._spec.name_in_etcd)  # fmt: skip
        for name in actors_of(before.name):
            if before.loader_of(name):
                end_actor(name)
            for first in before.firsts:
                if before.is_host(first, name):
                    self.place(first, name.split("/")[-2])
        self._loaders = self._place_loaders()

    def close(self) -> None:
        """Place no more hosts and loaders."""
        self._closed = True
        if self._loaders is not None:
            self._loaders.stop()

    def stop(self) -> None:
        """Stop the etcd member, if the run has its own."""
        self._stopping.set()
        if self._spec.is_temporary:
            remove_dir(self._own_dir("keeper"))
        if self._keeping is None:
            return
        self._keeping.join()
        if self._spec.is_temporary:
            remove_dir(self._own_dir("etcd"))

    def _have_all_lost(self) -> bool:
        names = actors_of(self._spec.name)
        hosts = [next((n for n in names if self._spec.is_host(first, n)), "") for first in self._spec.firsts]
        try:
            looks = [ray.get_actor(name, namespace=NAMESPACE).look.remote() for name in hosts]
            seen: List[Seen] = ray.get(looks, timeout=LOOK_WITHIN)
        except (ValueError, ray.exceptions.RayError):  # a host is missing, or does not answer
            return False
        return all(host.lacks_for >= LOST for host in seen)

    def _first_member(self) -> Child:
        """Start the member until it is ready. The one of an earlier life of this actor may need a moment to end."""
        for left in range(ATTEMPTS - 1, -1, -1):
            member = self._start_member()
            try:
                while not member.is_ready():
                    pass
                return member
            except RunError:
                if left == 0:
                    raise
            time.sleep(1)
        raise AssertionError("unreachable")

    def _keep_member(self) -> None:
        assert self._member is not None
        while not self._stopping.is_set():
            if self._member.has_ended():
                self._member = self._start_member()
        self._member.stop()

    def _start_member(self) -> Child:
        directory = self._own_dir("etcd")
        os.makedirs(directory, exist_ok=True)
        listen = f"{LOOPBACK}:{self._spec.etcd_port}"
        arguments = ["etcd", "--dir", os.path.join(directory, "data"), "--listen", listen]
        return Child(arguments, os.path.join(directory, "etcd.log"))

    def _place_loaders(self) -> Optional[Loaders]:
        """Begin to carry out goals for loaders. A run on one host has none."""
        if not self._spec.is_spread:
            return None
        directory, address = self._own_dir("keeper"), ray.util.get_node_ip_address()
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._spec.write_cluster(directory, address, ray.get_runtime_context().get_node_id())
        return Loaders(self._spec, os.path.join(directory, "cluster.yaml"))

    def _own_dir(self, name: str) -> str:
        node = ray.get_runtime_context().get_node_id()
        return os.path.join(fill(self._spec.run_dir, LOOPBACK, node), name)


def refuse_far_nodes(spec: Spec) -> None:
    """Raise ValueError if the run's hosts talk on loopback, and the nodes of Ray are several machines."""
    machines = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    if spec.is_on_one_machine and len(machines) > 1:
        raise ValueError(
            f"the nodes of this Ray are {len(machines)} machines ({', '.join(sorted(machines))}), and the run "
            f"{spec.name} serves one: give launch() a cluster= with the endpoints of your etcd, and with tls "
            "(millrace certs init). A development member of etcd, and hosts without certificates, stay on loopback"
        )
