"""Runs on Ray: `launch` starts a run, and each worker of Ray Train takes the batches of its rank with `connect`.

    def train(config):
        loader = millrace.ray.connect()
        millrace.ray.restore(loader, ray.train.get_checkpoint())
        for batch in loader:
            ...
            with tempfile.TemporaryDirectory() as d:
                millrace.ray.save(loader, d)
                ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(d))

    with millrace.ray.launch("mixture.yaml", trainers=16, ranks_per_node=8, cluster="cluster.yaml"):
        TorchTrainer(train, scaling_config=ScalingConfig(num_workers=16, use_gpu=True)).fit()

The workers of a node share one `millrace up`, which an actor on that node owns. Every node needs this package with the
program `millrace`, and sees the data at the paths of the mixture file.
"""

from __future__ import annotations

import dataclasses
import getpass
import logging
import os
import tempfile
import time
import uuid
from types import TracebackType
from typing import Any, Mapping, Optional, Tuple, Type, Union

import ray
import ray.train
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

from ._checkpoint import read_state_of, write_state
from ._errors import RunError
from ._loader import DataLoader
from ._loader import connect as connect_to
from ._ray_actors import LASTING, actors_of, all_actors, end_actor
from ._ray_keeper import Keeper, refuse_far_nodes
from ._ray_spec import LOOPBACK, NAMESPACE, Spec, free_ports, read_cluster, read_mixture

__all__ = ["Run", "connect", "launch", "restore", "save", "shutdown"]

log = logging.getLogger("millrace")

WAIT = 120.0  # seconds for a host to become ready: Ray may need half a minute for an actor
PATIENCE = 120.0  # seconds for Ray to start a killed actor again
POLL = 0.2  # seconds between two looks at a host that starts
STOP_WITHIN = 60.0  # seconds for a host to stop

PathLike = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that `launch` started, as a context manager: the run is shut down at the end of the block. It may be sent
    to other processes of the same Ray."""

    name: str

    def shutdown(self) -> None:
        """Stop the run. See `shutdown`."""
        shutdown(self)

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.shutdown()


def launch(
    mixture: Union[PathLike, Mapping[str, Any]],
    trainers: Union[int, Mapping[str, int]],
    *,
    ranks_per_node: Optional[int] = None,
    cluster: Union[PathLike, Mapping[str, Any], None] = None,
    name: Optional[str] = None,
    run_dir: Optional[PathLike] = None,
) -> Run:
    """Start a run in this Ray, and return it. It lives until `shutdown`, also after this driver.

    `mixture`: the path of a mixture file, or its content as a dict. Its text goes to all nodes. Its relative paths
        begin at the file's directory, or at the working directory.
    `trainers`: the number of ranks. The first `connect` on a node starts the `millrace up` of its ranks there. Or
        {node: ranks}, by the node's id or address: `launch` then starts them, and returns when they are ready.
    `ranks_per_node`: the number of ranks on each node; None: one node has all.
    `cluster`: the path of a cluster file, or its content: etcd, tls, user, password_file. `listen` is not needed. In
        the paths of tls, {host} stands for the node's address. None: a run on one node has no etcd. A run on several
        nodes gets an etcd member for development, in an actor on this node: it serves the nodes of one machine.
    `name`: of the run; None: the name in `cluster`, else a random one.
    `run_dir`: a directory on each node for sockets and journals; {host} and {node} stand for the node's address and
        id. None: a temporary one, which `shutdown` removes.

    Raises ValueError if an argument is wrong, or if the run exists. Raises RunError if a host does not start."""
    if not ray.is_initialized():
        ray.init()
    counts = [trainers] if isinstance(trainers, int) else list(trainers.values())
    ranks = ranks_per_node if isinstance(trainers, int) and ranks_per_node else counts[0] if counts else 0
    world = sum(counts)
    if ranks < 1 or world % ranks or not isinstance(trainers, int) and set(counts) != {ranks}:
        raise ValueError(
            f"launch: trainers={trainers!r}, ranks_per_node={ranks_per_node!r}: every node has the same number of "
            "ranks, from 1 on, and their sum is the number of trainers"
        )
    content = None if cluster is None else read_cluster(cluster)
    name = name or (content or {}).get("name") or f"run-{uuid.uuid4().hex[:8]}"
    port = 0
    if content is None and world > ranks:
        port = free_ports(1)
        content = {"etcd": [f"http://{LOOPBACK}:{port}"]}
        log.warning("launch: the run %s has one etcd member for development, on this node: without it, the run waits. "
                    "It serves the nodes of this machine alone: see cluster=", name)  # fmt: skip
    text, directory = read_mixture(mixture)
    home = run_dir or os.path.join(tempfile.gettempdir(), f"millrace-{getpass.getuser()}-{name}")
    spec = Spec(
        name=name, mixture=text, directory=directory, ranks=ranks, world=world, run_dir=os.path.abspath(home),
        is_temporary=run_dir is None, cluster=content and {**content, "name": name}, etcd_port=port,
    )  # fmt: skip
    refuse_far_nodes(spec)
    if actors_of(name):
        raise ValueError(f"launch: the run {name} exists in this Ray: shut it down, or give this one another name=")
    here = On(ray.get_runtime_context().get_node_id(), soft=not port)
    keeper = ray.remote(Keeper).options(**dict(LASTING, name=spec.keeper, scheduling_strategy=here)).remote(spec)
    try:
        ray.get(keeper.spec.remote())
        if not isinstance(trainers, int):
            for i, node in enumerate(trainers):
                ray.get(keeper.place.remote(i * ranks, node_of(node)))
            for i, node in enumerate(trainers):
                await_host(keeper, i * ranks, node_of(node), WAIT)
    except BaseException:
        shutdown(name)
        raise
    return Run(name)


def connect(
    run: Union[Run, str, None] = None,
    *,
    rank: Optional[int] = None,
    wait: float = WAIT,
    patience: Optional[float] = None,
    **options: Any,
) -> DataLoader:
    """Return the loader of a worker's rank. If the `millrace up` of its ranks is not on this node yet, it comes here.

    `run`: the run or its name; None: the only run of this Ray.
    `rank`: the rank; None: the world rank of this worker of Ray Train.
    `wait`: seconds to wait until the host is ready and the run is planned, also if a start fails and is tried again.
    `patience`: as in `millrace.connect`; None: MILLRACE_PATIENCE, or 120.
    `options`: those of `millrace.connect`.

    If every node with a journal that counts is lost, the run begins anew under another name. A worker of Ray Train then
    starts from its checkpoint, also without `restore`.

    Raises ValueError if the mixture is wrong, or if the ranks of this node are not those of a host. Raises RunError
    if the host is not ready in time, or if the journals are lost and this is no worker of Ray Train."""
    keeper = keeper_of(run)
    spec: Spec = ray.get(keeper.spec.remote())
    is_trained = rank is None and options.get("start") != "latest"
    if rank is None:
        rank = rank_in_train(spec)
    if not 0 <= rank < spec.world:
        raise ValueError(f"connect: rank {rank}: the run {spec.name} has the ranks 0 to {spec.world - 1}")
    node = ray.get_runtime_context().get_node_id()
    directory, renewal = await_host(keeper, spec.first_of(rank), node, wait, may_renew=is_trained)
    if patience is None and "MILLRACE_PATIENCE" not in os.environ:
        patience = PATIENCE
    loader = connect_to(os.path.join(directory, f"rank-{rank}.sock"), patience=patience, **options)
    if renewal and is_trained:  # a run under a new name has no history that asks for a start
        restore(loader, ray.train.get_checkpoint())
    return loader


def save(loader: Any, directory: PathLike) -> None:
    """Write the state of a loader or of a batch to a checkpoint directory, for `restore`. One rank's is enough."""
    write_state(os.fspath(directory), loader.state_dict())


def restore(loader: DataLoader, checkpoint: Any) -> None:
    """Start a loader from a checkpoint: that of ray.train.get_checkpoint(), or a directory. Call it on every rank.

    None is a training without a checkpoint: it begins at step 0, also if the run has gone further."""
    if checkpoint is None:
        loader.load_state_dict({"start": "fresh"})
    elif hasattr(checkpoint, "as_directory"):
        with checkpoint.as_directory() as directory:
            loader.load_state_dict(read_state_of(directory))
    else:
        loader.load_state_dict(read_state_of(os.fspath(checkpoint)))


def shutdown(run: Union[Run, str]) -> None:
    """Stop all processes of a run, and end its actors. It may be called again.

    A node that Ray has lost ends its actors itself, once it notices."""
    name = run.name if isinstance(run, Run) else run
    names = actors_of(name)
    keepers = [n for n in names if n == f"{name}/keeper"]
    _ask(keepers, "close")
    names = actors_of(name)
    hosts = [n for n in names if n not in keepers]
    _ask(hosts, "stop")
    _ask(keepers, "stop")
    for actor in hosts + keepers:
        end_actor(actor)


def _ask(names: "list[str]", method: str) -> None:
    """Call a method of actors at the same time. Those that do not answer are left out."""
    calls = []
    for name in names:
        try:
            calls.append(getattr(ray.get_actor(name, namespace=NAMESPACE), method).remote())
        except ValueError:  # it has ended
            continue
    ready, late = ray.wait(calls, num_returns=len(calls), timeout=STOP_WITHIN) if calls else ([], [])
    for call in ready:
        try:
            ray.get(call)
        except ray.exceptions.RayError as e:
            log.warning("shutdown: an actor of the run did not stop: %s", e)
    if late:
        log.warning("shutdown: %d actors of the run have not answered for %.0f s", len(late), STOP_WITHIN)


def keeper_of(run: Union[Run, str, None]) -> Any:
    """Return the actor that keeps a run. Raise ValueError if there is none, or several with run=None."""
    suffix = "/keeper"
    if run is None:
        names = [n[: -len(suffix)] for n in all_actors() if n.endswith(suffix)]
        if len(names) != 1:
            listed = ", ".join(sorted(names))
            raise ValueError(f"connect: this Ray has {len(names)} runs ({listed}): give connect() one")
        run = names[0]
    name = run.name if isinstance(run, Run) else run
    try:
        return ray.get_actor(name + suffix, namespace=NAMESPACE)
    except ValueError:
        raise ValueError(f"connect: this Ray has no run {name}: start it with millrace.ray.launch()") from None


def rank_in_train(spec: Spec) -> int:
    """Return the world rank of this worker of Ray Train. Raise ValueError if its host has ranks on other nodes."""
    context = ray.train.get_context()
    rank, world, here = context.get_world_rank(), context.get_world_size(), context.get_local_world_size()
    if world != spec.world:
        raise ValueError(f"connect: the trainer has {world} workers, and the run has {spec.world} ranks: {_CURE}")
    lowest = rank - context.get_local_rank()
    first = spec.first_of(rank)
    if first < lowest or first + spec.ranks > lowest + here:
        raise ValueError(
            f"connect: this node has the ranks {lowest} to {lowest + here - 1}, and one host of the run has the ranks "
            f"{first} to {first + spec.ranks - 1}: {_CURE}"
        )
    return int(rank)


_CURE = (
    "launch() the run with trainers=num_workers, and with a ranks_per_node that divides the number of workers on each "
    "node; ranks_per_node=1 always does"
)


def node_of(name: str) -> str:
    """Return the id of a living node, by its id or address. Raise ValueError if there is not one."""
    found = [n["NodeID"] for n in ray.nodes() if n["Alive"] and name in (n["NodeID"], n["NodeManagerAddress"])]
    if len(found) != 1:
        raise ValueError(f"launch: {len(found)} living nodes of this Ray have the id or address {name!r}: give the id")
    return str(found[0])


def await_host(keeper: Any, first: int, node: str, wait: float, may_renew: bool = False) -> Tuple[str, int]:
    """Return the run directory of a host that is ready, and the renewal of its run, when the run is planned.

    `may_renew`: renew the run if its journals are lost."""
    until, reason, said = time.monotonic() + wait, "Ray has not started its actor", ""
    while True:
        try:
            renewal = ray.get(keeper.spec.remote(), timeout=max(until - time.monotonic(), POLL)).renewal
            host = ray.get(keeper.place.remote(first, node), timeout=max(until - time.monotonic(), POLL))
            while True:
                seen = ray.get(host.serve.remote(), timeout=max(until - time.monotonic(), POLL))
                reason = seen.reason or reason
                is_late = time.monotonic() > until
                if seen.state == "ready" and (seen.is_led or is_late and not seen.lacks_for):
                    return str(seen.run_dir), int(renewal)
                if seen.state == "wrong":
                    raise ValueError(seen.reason)
                if seen.lacks_for and ray.get(keeper.is_orphaned.remote()):
                    if not may_renew:
                        raise RunError(_ORPHANED.format(seen.reason))
                    ray.get(keeper.renew.remote(renewal))
                    break
                if seen.reason and seen.reason != said:
                    log.warning("connect: the ranks from %d on are not served yet: %s", first, seen.reason)
                    said = seen.reason
                if is_late:
                    break
                time.sleep(POLL)
        except ray.exceptions.RayActorError as e:  # it or its node died
            reason = str(e)
            time.sleep(POLL)
        except ray.exceptions.GetTimeoutError:
            pass
        if time.monotonic() > until:
            raise RunError(f"the ranks from {first} on are not served after {wait:.0f} s: {reason}")


_ORPHANED = (
    "every node with a journal that counts is lost: {}. Shut the run down, launch it under another name, and load the "
    "newest saved state"
)
