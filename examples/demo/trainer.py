"""One data-parallel rank: it takes batches, learns, and averages gradients with the other ranks after every step.

Every rank adds the gradients of its microbatches in its own line of a shared array. When all ranks have finished, each
sums the lines in the same order and divides by the number of labels in the step. So all ranks hold the same weights,
bit for bit, and never send them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))

import numpy as np  # noqa: E402

import millrace  # noqa: E402
from model import Adam, Shape  # noqa: E402

PATIENCE = 120.0  # seconds that a rank waits for the others


@dataclasses.dataclass(frozen=True)
class Orders:
    """The orders of a rank."""

    socket: str
    rank: int
    ranks: int
    model: str  # numpy | torch
    shape: Shape
    rate: float
    steps: int  # of the whole training, for the learning rate
    resume: Optional[Path] = None  # the checkpoint to begin from
    save: Optional[Path] = None  # the path of the checkpoint
    save_after: int = -1  # write the checkpoint after this step
    leave_after: int = -1  # leave before the batch after this step


@dataclasses.dataclass
class Taken:
    """The report of one rank about one step."""

    rank: int
    step: int
    loss: float  # nats a label, over all ranks
    segments: List[millrace.Segment]
    places: int  # places for tokens in its batches
    waited: float  # seconds, for batches
    at: float  # when the step was done
    saved: str = ""  # the path of the checkpoint written after the step


@dataclasses.dataclass
class Left:
    """The end of a rank."""

    rank: int
    weights: str = ""  # their digest
    failed: str = ""


def gradients(ranks: int, shape: Shape, processes: Any) -> Any:
    """Returns the shared array: the gradient, the summed loss and the number of labels of each rank."""
    return processes.RawArray("f", ranks * (shape.size() + 2))


def train(orders: Orders, shared: Any, barrier: Any, told: Any) -> None:
    """Runs a rank's process. Sends each Taken, then Left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the ranks
    try:
        told.put(Left(orders.rank, weights=_train(orders, shared, barrier, told)))
    except Exception as e:
        barrier.abort()
        told.put(Left(orders.rank, failed=f"{type(e).__name__}: {e}"))


def _train(orders: Orders, shared: Any, barrier: Any, told: Any) -> str:
    lines = np.frombuffer(shared, np.float32).reshape(orders.ranks, -1)
    mine = lines[orders.rank]
    weights = orders.shape.first_weights()
    adam = Adam(weights.size, orders.rate)
    model = _model(orders.model)(orders.shape, weights, mine[:-2])
    loader = millrace.connect(orders.socket, tensors=orders.model)
    if orders.resume:
        loader.load_state_dict(_load(orders.resume, weights, adam))

    segments: List[millrace.Segment] = []
    places, waited = 0, 0.0
    for batch in loader:
        if batch.microbatch == 0:
            mine[:] = 0
            segments, places = [], 0
        loss, labels = model.accumulate(batch)
        mine[-2:] += loss, labels
        segments += batch.segments
        places += int(np.prod(batch["tokens"].shape))
        if batch.microbatch + 1 < batch.num_microbatches:
            continue

        barrier.wait(PATIENCE)  # all gradients are complete
        total = lines.sum(axis=0)
        barrier.wait(PATIENCE)  # all ranks have read them
        adam.update(weights, total[:-2] / total[-1], _schedule(batch.step, orders.steps))
        before, waited = waited, loader.stats()["wait_seconds"]
        taken = Taken(
            orders.rank, batch.step, float(total[-2] / total[-1]), segments, places, waited - before, time.monotonic()
        )
        if batch.step == orders.save_after and orders.save:
            if orders.rank == 0:
                taken.saved = _save(orders.save, weights, adam, loader.state_dict())
            barrier.wait(PATIENCE)
            loader.checkpoint_saved(batch.step)
        told.put(taken)
        if batch.step == orders.leave_after:
            break
    loader.close()
    return hashlib.blake2b(weights.tobytes(), digest_size=8).hexdigest()


def _model(name: str) -> Any:
    return importlib.import_module(f"model_{name}").Model


def _schedule(step: int, steps: int) -> float:
    """Returns the factor of the learning rate: rising over ten steps, then falling to a tenth at the end."""
    return min(1.0, (step + 1) / 10) * (1 - 0.9 * step / steps)


def _save(path: Path, weights: "np.ndarray", adam: Adam, state: Dict[str, Any]) -> str:
    """Writes the weights to PATH.npz and the loader's state to PATH.json, each atomically."""
    with open(f"{path}.npz.part", "wb") as f:
        np.savez(f, weights=weights, mean=adam.mean, square=adam.square, steps=adam.steps)
    Path(f"{path}.json.part").write_text(json.dumps(state))
    for kind in ("npz", "json"):
        os.replace(f"{path}.{kind}.part", f"{path}.{kind}")
    return str(path)


def _load(path: Path, weights: "np.ndarray", adam: Adam) -> Dict[str, Any]:
    """Reads the weights and the optimizer's state, and returns the loader's state."""
    with np.load(f"{path}.npz") as saved:
        weights[:], adam.mean[:], adam.square[:] = saved["weights"], saved["mean"], saved["square"]
        adam.steps = int(saved["steps"])
    state: Dict[str, Any] = json.loads(Path(f"{path}.json").read_text())
    return state
