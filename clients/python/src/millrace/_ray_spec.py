"""The facts of a run on Ray that all its actors share."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import socket
from typing import Any, Dict, List, Mapping, Optional, Union

NAMESPACE = "millrace"  # of the names of actors
KEYS = ("name", "etcd", "listen", "tls", "user", "password_file")  # of a cluster file
LOOPBACK = "127.0.0.1"
PORTS = 16  # consecutive ports for the streams of a host


@dataclasses.dataclass(frozen=True)
class Spec:
    """A run. `cluster` is the content of the cluster file without `listen`, with absolute paths; None: the run has one
    host. A *host* is one `millrace up`: it serves `ranks` consecutive ranks, which are on one node."""

    name: str
    mixture: bytes  # the text of the mixture file
    directory: str  # relative paths of the mixture begin there
    ranks: int  # of each host
    world: int  # of the run
    run_dir: str  # on each node; {host} and {node} stand for the node's address and id
    is_temporary: bool  # whether `shutdown` removes run_dir
    cluster: Optional[Dict[str, Any]]
    etcd_port: int = 0  # of the run's own etcd member, which serves one machine; 0: etcd is the user's
    renewal: int = 0  # how often the run has begun under a new name, because every journal that counts was lost

    @property
    def is_spread(self) -> bool:
        """Whether the run has several hosts."""
        return self.world > self.ranks

    @property
    def firsts(self) -> "range":
        """The first ranks of all hosts."""
        return range(0, self.world, self.ranks)

    @property
    def name_in_etcd(self) -> str:
        """The name of the run in etcd now. A journal belongs to one name."""
        return f"{self.name}.renewed-{self.renewal}" if self.renewal else self.name

    @property
    def is_on_one_machine(self) -> bool:
        """Whether hosts talk on loopback: without certificates, they use no other network."""
        return self.cluster is not None and "tls" not in self.cluster

    @property
    def keeper(self) -> str:
        """The name of the actor that keeps the run."""
        return f"{self.name}/keeper"

    def host(self, first: int, node: str) -> str:
        """The name of the actor of a host. It has the node: after the loss of a node, the actor there may live on."""
        return f"{self.name}/host-{first}/{node}/{self.renewal}"

    def is_host(self, first: int, actor: str) -> bool:
        """Whether an actor is one of a host, on any node and of any renewal."""
        return actor.startswith(f"{self.name}/host-{first}/")

    def loader(self, name: str) -> str:
        """The name of the actor of a loader that belongs to no host."""
        return f"{self.name}/loader/{name}/{self.renewal}"

    def loader_of(self, actor: str) -> str:
        """The loader that an actor owns; "": it owns none of this renewal."""
        parts = actor[len(self.name) + 1 :].split("/")
        return parts[1] if parts[0] == "loader" and parts[-1] == str(self.renewal) else ""

    def cwd(self, run_dir: str) -> str:
        """The working directory of a process: relative paths of the mixture begin there."""
        return self.directory if os.path.isdir(self.directory) else run_dir

    def first_of(self, rank: int) -> int:
        """The first rank of the host that serves a rank."""
        return rank - rank % self.ranks

    def home(self, address: str, node: str) -> str:
        """The directory of the run on a node."""
        return fill(self.run_dir, address, node)

    def arguments(self, first: int, run_dir: str) -> List[str]:
        """The arguments of the host's `millrace`. Its mixture file is standard input."""
        out = ["up", "-", "--ranks", str(self.ranks), "--run-dir", run_dir]
        if self.cluster is not None:
            out += ["--world-size", str(self.world), "--first-rank", str(first)]
            out += ["--cluster", os.path.join(run_dir, "cluster.yaml")]
        if self.is_spread:
            out += ["--placer", "ray"]  # see _ray_loaders
        return out

    def write_cluster(self, run_dir: str, address: str, node: str) -> None:
        """Write the cluster file of a host, with ports that are free now."""
        if self.cluster is None:
            return
        name = LOOPBACK if self.is_on_one_machine else address
        listen = f"[{name}]:%d" % free_ports() if ":" in name else f"{name}:{free_ports()}"
        content = dict(self.cluster, name=self.name_in_etcd, listen=listen)
        if "tls" in content:
            content["tls"] = {key: fill(path, address, node) for key, path in content["tls"].items()}
        with open(os.path.join(run_dir, "cluster.yaml"), "w", encoding="utf-8") as file:
            json.dump(content, file)  # JSON is YAML


def fill(text: str, address: str, node: str) -> str:
    """Return a path of a node."""
    return text.replace("{host}", address).replace("{node}", node)


def remove_dir(directory: str) -> None:
    """Remove a directory of a temporary run, and the run's own directory when nothing is left in it."""
    shutil.rmtree(directory, ignore_errors=True)
    with contextlib.suppress(OSError):  # others are in it
        os.rmdir(os.path.dirname(directory))


def read_mixture(mixture: "Union[str, os.PathLike[str], Mapping[str, Any]]") -> "tuple[bytes, str]":
    """Return the text of a mixture, and the directory at which its relative paths begin."""
    if isinstance(mixture, Mapping):
        return json.dumps(mixture, indent=1, default=os.fspath).encode(), os.getcwd()
    path = os.path.abspath(os.fspath(mixture))
    with open(path, "rb") as file:
        return file.read(), os.path.dirname(path)


def read_cluster(cluster: "Union[str, os.PathLike[str], Mapping[str, Any]]") -> Dict[str, Any]:
    """Return the content of a cluster file, with absolute paths and without `listen`. Raise ValueError if it is wrong.

    `millrace up` reads the values again, on each host."""
    directory = os.getcwd()
    content: Any = cluster
    if not isinstance(cluster, Mapping):
        import yaml  # Ray needs it, too

        path = os.path.abspath(os.fspath(cluster))
        directory = os.path.dirname(path)
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file)
    if not isinstance(content, Mapping) or not set(content) <= set(KEYS) or "etcd" not in content:
        raise ValueError(f"launch: cluster: want the keys of a cluster file, {', '.join(KEYS)}, and at least etcd")
    out = {key: value for key, value in content.items() if key != "listen" and value is not None}
    if "tls" in out:
        out["tls"] = {key: os.path.join(directory, os.fspath(path)) for key, path in out["tls"].items()}
    if "password_file" in out:
        out["password_file"] = os.path.join(directory, os.fspath(out["password_file"]))
    return out


def free_ports(count: int = PORTS) -> int:
    """Return the first of consecutive ports that are free on loopback now. The kernel chooses it."""
    while True:
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            first = int(probe.getsockname()[1])
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("", port))
            return first
        except (OSError, OverflowError):
            continue
