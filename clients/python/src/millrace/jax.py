"""Millrace for JAX: an iterator with the methods of Grain's, whose state Orbax saves and restores.

The methods follow `grain.DatasetIterator` and Orbax's `StatefulCheckpointable`, in the versions 0.2 and 0.12.

    iterator = millrace.jax.Iterator(millrace.connect(run, tensors="numpy", keys="maxtext"))
    for batch in iterator:                      # one microbatch of this process: a pytree of NumPy arrays
        loss, grads = step(parameters, batch)
    manager.save(step, args=ocp.args.Composite(
        model=ocp.args.StandardSave(parameters), data=ocp.args.JsonSave(iterator.get_state())))
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Awaitable, Dict, Optional

import jax
import numpy as np

from ._batch import Batch
from ._loader import DataLoader

FILE = "millrace.json"


class Iterator:
    """Iterates over the microbatches of one process.

    `loader`: this process's loader. Each process of `jax.distributed` is one data-parallel rank of the run.

    A batch is a `millrace.Batch`: a pytree of this process's arrays by name, with its metadata. `make_global` makes
    global arrays of it. The run gives every process the same number of microbatches in each step."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._last: Optional[Batch] = None  # the last yielded batch, without tensors
        _be_a_grain_iterator()

    def __iter__(self) -> "Iterator":
        iter(self._loader)
        return self

    def __next__(self) -> Batch:
        batch = next(self._loader)
        self._last = batch.with_tensors({})
        return batch

    # The state.

    def get_state(self) -> Dict[str, Any]:
        """Return the state after the last yielded batch. `json.dumps` accepts it. At a step's end it is equal on all
        processes, and any number of processes can continue from it.

        If the trainer fetches batches ahead, save `batch.state_dict()` of the last batch that was trained on."""
        return self._loader.state_dict() if self._last is None else self._last.state_dict()

    def set_state(self, state: Dict[str, Any]) -> None:
        """Continue after the batch of a state. Every process must set the same state, before its first batch or
        between two batches."""
        self._loader.load_state_dict(state)
        self._last = None

    async def save(self, directory: Any) -> Awaitable[None]:
        """Save the state as one file for all processes, as Orbax 0.12 asks a `StatefulCheckpointable`.

        Process 0 writes the file, so another number of processes can load it. Call it at a step's end."""
        text = json.dumps(self.get_state())

        async def write() -> None:
            path = await directory.await_creation()
            if jax.process_index() == 0:
                await asyncio.to_thread((path / FILE).write_text, text)

        return write()

    async def load(self, directory: Any) -> Awaitable[None]:
        """Load the state that `save` wrote under any number of processes."""

        async def read() -> None:
            self.set_state(json.loads(await asyncio.to_thread((Path(directory) / FILE).read_text)))

        return read()

    # Leaving.

    def start_prefetch(self) -> None:
        """Do nothing. The sidecar builds batches ahead as soon as every rank has asked for its first one."""

    def close(self) -> None:
        """Leave the run, as `DataLoader.close` does."""
        self._loader.close()


def make_global(batch: Batch, sharding: "jax.sharding.Sharding") -> Batch:
    """Return the microbatch of all processes: a batch of global `jax.Array`s, with the metadata of this process.

    `sharding` divides the rows of the whole microbatch among the processes, for example
    `NamedSharding(mesh, PartitionSpec("data"))`. Along that axis, the rows of all processes follow each other. Raises
    ValueError for a batch of `layout: varlen`: its arrays have another length on each process."""
    if any(np.ndim(array) != 2 for array in batch.values()):
        raise ValueError(
            "make_global needs `layout: packed`: with `layout: varlen`, arrays have another length on each process"
        )
    return batch.with_tensors(
        {name: jax.make_array_from_process_local_data(sharding, np.asarray(array)) for name, array in batch.items()}
    )


def _be_a_grain_iterator() -> None:
    """Register Iterator as a `grain.DatasetIterator` if Grain is imported. Grain's checkpoint handler then saves its
    state as JSON."""
    grain = sys.modules.get("grain")
    kind = getattr(grain, "DatasetIterator", None)
    if kind is not None:
        kind.register(Iterator)
