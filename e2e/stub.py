"""A trainer that behaves like a real one: takes batches, saves its state, is killed, and restarts from an older
checkpoint. It writes its own record of the batches, which survives its death."""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import logging
import os
import signal
import socket as sockets
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import trainer  # noqa: F401  adds the client to sys.path
from millrace import RunError, _failpoint, _wire, connect


@dataclasses.dataclass(frozen=True)
class Orders:
    """The orders of one trainer process of a rank."""

    rank: int
    socket: str
    events: str  # directory of event records
    checkpoints: str  # directory of saved states
    start: Optional[str] = None
    state: Optional[Dict[str, Any]] = None
    pause: float = 0.0  # seconds of training for each batch
    every: int = 4  # steps between two checkpoints
    naps: Tuple[Tuple[int, float], ...] = ()  # (batch, additional seconds of training)
    cuts: Tuple[int, ...] = ()  # the connection breaks before these batches
    failpoints: str = ""


class Record:
    """Appends event records as the roles do. The operating system has each record before the trainer continues."""

    def __init__(self, directory: str, name: str) -> None:
        self._name, self._seq = name, 0
        self._fd = os.open(Path(directory, f"{name}-{os.getpid()}.jsonl"), os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def write(self, event: str, **more: Any) -> None:
        self._seq += 1
        line = {
            "seq": self._seq,
            "boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
            "role": self._name,
            "pid": os.getpid(),
            "event": event,
        }
        os.write(self._fd, json.dumps({**line, "step": -1, **more}, separators=(",", ":")).encode() + b"\n")


def held() -> Dict[str, int]:
    """Returns the descriptors and the memory of this process."""
    return {
        "fds": len(os.listdir("/proc/self/fd")) - 1,
        "rss_bytes": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
    }


def train(orders: Orders) -> None:
    """Runs in its own process until the run ends, an error occurs (exit status 1), or a signal kills it."""
    record = Record(orders.events, f"trainer-{orders.rank}")
    log_to(Path(orders.events, f"trainer-{orders.rank}-{os.getpid()}.log"))
    _failpoint.arm(
        orders.failpoints,
        f"trainer-{orders.rank}",
        lambda point, action: record.write("failpoint", key=f"{point}={action}"),
    )
    state = orders.state or {}
    record.write(
        "start",
        start=orders.start or "",
        state_step=state.get("step", -1),
        state_microbatch=state.get("microbatch", 0),
        **held(),
    )
    try:
        _train(orders, record)
        record.write("end", **held())
    except RunError as e:
        record.write("error", key=type(e).__name__, reason=e.reason)
        sys.exit(1)
    except Exception:
        record.write("error", key="crash", reason=traceback.format_exc())
        sys.exit(1)


def log_to(path: Path) -> None:
    """Logs the client's messages to a file. At SIGQUIT, the trainer's stack goes there too."""
    logging.basicConfig(filename=path, format="%(asctime)s %(message)s", level=logging.DEBUG)
    faulthandler.register(signal.SIGQUIT, file=open(path, "a"))


def _train(orders: Orders, record: Record) -> None:
    loader = connect(orders.socket, tensors="numpy", start=orders.start)
    if orders.state is not None:
        loader.load_state_dict(orders.state)
    naps, taken = dict(orders.naps), 0
    while True:
        if taken in orders.cuts and loader._stream.conn is not None:
            record.write("cut")
            cut(loader._stream.conn.sock)
        record.write("ask")
        batch = next(loader, None)
        if batch is None:
            break
        assert loader._stream.place is not None
        position = loader._stream.place.next
        record.write(
            "batch",
            step=batch.step,
            attempt=position[0],
            rank=orders.rank,
            microbatch=batch.microbatch,
            of=batch.num_microbatches,
            digest=batch.digest,
            segments=[tuple(s) for s in batch.segments],
            peer=any(loader.coordinates[axis] for axis in ("tp", "cp", "pp")),
        )
        if taken == 0:
            forget(orders, batch.step)
        last, step = batch.microbatch + 1 == batch.num_microbatches, batch.step
        del batch
        if taken in naps:
            record.write("nap", step=step)
        time.sleep(orders.pause + naps.get(taken, 0.0))
        taken += 1
        if last and step % orders.every == orders.every - 1:
            save(orders, step, loader.state_dict())
            record.write("saved", step=step)
            loader.checkpoint_saved(max(0, step - 2 * orders.every))  # two older checkpoints are kept
    loader.close()


def cut(sock: sockets.socket) -> None:
    """Releases a frame that was never lent and closes the connection."""
    try:
        sock.send(_wire.pack(_wire.RELEASE, ring=0, frame=0, generation=1 << 40))
        sock.shutdown(sockets.SHUT_RDWR)
    except OSError:
        pass  # the connection is closed


def forget(orders: Orders, step: int) -> None:
    """Removes the states of later steps, so that the trainer's history has no branches."""
    for path in Path(orders.checkpoints).glob(f"*-{orders.rank}.json"):
        if int(path.name.split("-")[0]) >= step:
            path.unlink()


def save(orders: Orders, step: int, state: Dict[str, Any]) -> None:
    """Writes a temporary file and renames it, as trainers do."""
    path = Path(orders.checkpoints, f"{step:06d}-{orders.rank}.json")
    path.with_suffix(".tmp").write_text(json.dumps(state))
    path.with_suffix(".tmp").replace(path)


def checkpoints(directory: str, ranks: int) -> List[Dict[str, Any]]:
    """Returns the states that all ranks have saved, oldest first. All ranks save equal states, so rank 0's is
    returned."""
    steps: Dict[str, int] = {}
    for path in Path(directory).glob("*.json"):
        steps[path.name.split("-")[0]] = steps.get(path.name.split("-")[0], 0) + 1
    return [
        json.loads(Path(directory, f"{step}-0.json").read_text())
        for step in sorted(s for s, n in steps.items() if n == ranks)
    ]
