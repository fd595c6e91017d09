"""Make batches of BATCH messages, over the memory of the frame or over a copy of it."""

from __future__ import annotations

import gc
import sys
import warnings
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from . import _wire as wire
from ._batch import Batch, make_batch
from ._connection import Connection
from ._errors import Lost
from ._metadata import Metadata
from ._pytrees import register_trees
from ._state import State

Table = List[Tuple[str, "np.dtype[Any]", Tuple[int, ...], int]]  # name, dtype, shape, offset in the frame


class Frames:
    """Makes batches of frames. A frame is released when its last view is gone."""

    def __init__(self, tensors: str) -> None:
        self.batches = self.bytes = self.copied = 0
        self._tensors = tensors
        self._text = b""  # the last parsed tensor table; the steps of a stage have equal tables
        self._table: Table = []
        self._shapes: Dict[str, Tuple[Tuple[int, ...], "np.dtype[Any]"]] = {}
        self._collect = Backoff()
        self._warned = False

    def read(
        self, conn: Connection, header: wire.Header, body: memoryview, before: State, source: Optional[int]
    ) -> Tuple[Batch, State]:
        """Return a microbatch and the state after it. `before` is the state after the previous batch. `source` is the
        rank that broadcasts the tensors, if this rank has none."""
        offset, length, *fixed, placement, count, _ = wire.BATCH_FIXED.unpack_from(body)
        lineage_at, lineage_length, state_at, state_length = fixed
        root = self._root(conn, header, offset, length)
        ends = wire.BATCH_FIXED.size + count * wire.TENSOR.size
        self._parse(body[wire.BATCH_FIXED.size : ends])
        absent = bool(header.flags & wire.ABSENT)
        state = _after(header, before.text, root[state_at : state_at + state_length].tobytes(), placement)
        loss, step_loss = wire.BATCH_LOSS.unpack_from(body, ends)
        metadata = Metadata(
            step=header.step,
            microbatch=header.microbatch,
            num_microbatches=header.microbatches,
            loss_tokens=loss,
            step_loss_tokens=step_loss,
            shapes=self._shapes,
            broadcast_source=source if absent else None,
            state=state,
            lineage=root[lineage_at : lineage_at + lineage_length],
        )
        register_trees()
        batch = make_batch({} if absent else self._views(root), metadata)
        self.batches += 1
        self.bytes += length
        return batch, state

    def _parse(self, text: memoryview) -> None:
        if text != self._text:
            self._text = bytes(text)
            self._table = parse_table(self._text)
            self._shapes = {name: (shape, dtype) for name, dtype, shape, _ in self._table}

    def _views(self, root: "np.ndarray[Any, Any]") -> Dict[str, Any]:
        arrays = {name: np.ndarray(shape, dtype, root, at) for name, dtype, shape, at in self._table}
        if self._tensors == "torch" or self._tensors == "auto" and "torch" in sys.modules:
            from_numpy = sys.modules["torch"].from_numpy
            return {name: from_numpy(a) for name, a in arrays.items()}
        return arrays

    def _root(self, conn: Connection, header: wire.Header, offset: int, length: int) -> "np.ndarray[Any, Any]":
        """Return the frame's bytes, or a copy of them if the trainer holds all other frames of the ring."""
        root = conn.lease(header, offset, length)
        ring = conn.ring
        if ring is None:
            raise Lost("a batch came before its ring")
        if len(ring.leased) < ring.frames:
            return root
        if self._collect.is_due():  # unreachable cycles may hold batches
            gc.collect()
            if len(ring.leased) < ring.frames:
                self._collect.reset()
                return root
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the trainer holds {ring.frames - 1} batches of a ring of {ring.frames}: further ones are copied. "
                "Drop batches and views of them after use, or copy the parts that you keep.",
                RuntimeWarning,
                stacklevel=8,  # the trainer's loop
            )
        self.copied += 1
        copy: np.ndarray[Any, Any] = root.copy()
        return copy


class Backoff:
    """Allows something expensive at the 1st, 2nd, 4th, 8th … chance."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._chances, self._next = 0, 1

    def is_due(self) -> bool:
        self._chances += 1
        if self._chances < self._next:
            return False
        self._next = min(self._next * 2, self._next + 4096)
        return True


def _after(header: wire.Header, before: bytes, after: bytes, placement: bytes) -> State:
    """Return the state after a batch. The last batch of a step brings the state after the step."""
    if header.microbatch + 1 < header.microbatches:
        return State(before, (header.microbatch + 1, placement.hex()))
    return State(after or before, None)


def parse_table(table: bytes) -> Table:
    """Parse the tensor table of a BATCH message."""
    out: Table = []
    for name, dtype, dims, _, *rest in wire.TENSOR.iter_unpack(table):
        shape = tuple(rest[:dims])
        out.append((name.rstrip(b"\0").decode(), np.dtype(dtype.rstrip(b"\0").decode()), shape, rest[4]))
    return out
