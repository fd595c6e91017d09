"""A trainer's process: one rank that takes batches and sends a record of each to the test."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

CLIENT = Path(__file__).resolve().parent.parent / "clients" / "python" / "src"
sys.path.insert(0, os.environ.get("MILLRACE_CLIENT", str(CLIENT)))

import millrace  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Orders:
    """The orders of a trainer: its start, its reports, and the (step, microbatch) after which it leaves."""

    start: Optional[str] = None
    state: Optional[Dict[str, Any]] = None
    override: Tuple[str, ...] = ()
    leave_after: Optional[Tuple[int, int]] = None
    stay: bool = False  # keep the connection after leave_after, until the process is killed
    tensors: bool = False  # send the arrays
    states: bool = False  # send state_dict() after every batch
    pause: float = 0.0  # seconds of training for each batch
    hold: Optional[str] = None  # a file; pauses, also one that has begun, end when it is gone
    slow: Optional[int] = None  # the number of batches with a pause; by default all
    wait: float = 0.5  # seconds to wait for the first `up`; the harness starts no trainer before `up` is ready
    patience: float = 1.0  # seconds to wait for a new `up` after a kill
    losses: Optional[Dict[str, float]] = (
        None  # mean losses by source; reported with times for each batch
    )
    log: Optional[str] = None  # a file for the client's log
    stream: Optional[str] = None  # another stream than train


@dataclasses.dataclass
class Taken:
    """One batch of a trainer. Segments are plain tuples in the order of millrace.Segment."""

    step: int
    microbatch: int
    num_microbatches: int
    digest: str
    segments: List[Tuple[str, str, int, int, int, int, int, int]]
    tensors: Optional[Dict[str, Any]] = None
    state: Optional[str] = None
    loss_tokens: int = 0
    step_loss_tokens: int = 0
    source: Optional[int] = None  # the rank with the tensors, if this rank receives none
    shapes: Dict[str, Tuple[Tuple[int, ...], str]] = dataclasses.field(default_factory=dict)
    place: Tuple[int, ...] = ()  # tp, cp, dp, pp
    slices: List[Tuple[int, int, Optional[int]]] = dataclasses.field(default_factory=list)
    fields: List[Optional[Dict[str, Any]]] = dataclasses.field(default_factory=list)  # of the segments


def report(loader: Any, taken: Taken, means: Dict[str, float]) -> None:
    """Reports losses and a modelled time: attention costs as much as all linear work at 50 tokens."""
    tokens: Dict[str, int] = {}
    for s in taken.segments:
        tokens[s[0]] = tokens.get(s[0], 0) + s[5]
    loader.report_losses(taken.step, {source: (means[source] * n, n) for source, n in tokens.items()})
    loader.report_time(taken.step, taken.microbatch, sum(1e-6 * (s[5] + s[5] ** 2 / 50) for s in taken.segments))


def rest(orders: Orders, taken: int) -> None:
    """Pauses after a number of batches as the orders say."""
    if orders.slow is not None and taken > orders.slow:
        return
    until = time.monotonic() + orders.pause
    while (left := until - time.monotonic()) > 0:
        if orders.hold is None:
            time.sleep(left)
        elif os.path.exists(orders.hold):
            time.sleep(min(left, 0.02))
        else:
            return


def train(pipe: Any, socket: str, orders: Orders) -> None:
    """Runs in a process of its own. Sends each Taken, then "end", "left", or ("error", type, reason)."""
    if orders.log is not None:
        logging.basicConfig(filename=orders.log, format="%(created).3f %(message)s", force=True)
    try:
        named = {} if orders.stream is None else {"stream": orders.stream}  # the oldest clients know no streams
        loader = millrace.connect(
            socket, tensors="numpy", start=orders.start, wait=orders.wait, patience=orders.patience, **named
        )
        if orders.state is not None:
            loader.load_state_dict(orders.state, override=orders.override)
        for number, batch in enumerate(loader, 1):
            taken = Taken(
                batch.step, batch.microbatch, batch.num_microbatches, batch.digest, [tuple(s) for s in batch.segments]
            )
            taken.loss_tokens, taken.step_loss_tokens, taken.source = (
                batch.loss_tokens,
                batch.step_loss_tokens,
                batch.broadcast_source,
            )
            taken.shapes = {name: (shape, dtype.str) for name, (shape, dtype) in batch.shapes.items()}
            taken.place = tuple(loader.coordinates[axis] for axis in ("tp", "cp", "dp", "pp"))
            taken.slices = [tuple(s) for s in batch.slices]
            taken.fields = [getattr(s, "fields", None) for s in batch.segments]  # a client of an older release has none
            if orders.tensors:
                taken.tensors = {name: array.copy() for name, array in batch.items()}
            if orders.states:
                taken.state = json.dumps(loader.state_dict(), sort_keys=True)
            if orders.losses is not None:
                report(loader, taken, orders.losses)
            pipe.send(taken)
            if (batch.step, batch.microbatch) == orders.leave_after:
                pipe.send("left")
                while orders.stay:
                    time.sleep(60)
                loader.close()
                return
            del batch
            rest(orders, number)
        pipe.send("end")
        loader.close()
    except millrace.RunError as e:
        pipe.send(("error", type(e).__name__, e.reason))
    except BaseException:
        pipe.send(("error", "crash", traceback.format_exc()))
