"""Make batches of BATCH messages, over the memory of the frame or over a copy of it."""

from __future__ import annotations

import gc
import sys
import warnings
from typing import Any, Callable, Collection, Dict, NamedTuple, Optional, Tuple

import numpy as np

from . import _wire as wire
from ._batch import Batch, make_batch
from ._connection import Connection, Ring
from ._metadata import Metadata
from ._pytrees import register_trees
from ._state import State
from ._views import Names, Source, first_shown

_TABLE = wire.BATCH_FIXED.size  # where the tensor table begins in the body
_read_fixed, _new_tuple = wire.BATCH_FIXED.unpack_from, wire.new_tuple


class Layout:
    """The tensors of a batch: a parsed tensor table. The steps of a stage have equal tables."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.count = len(text) // wire.TENSOR.size
        # by name: shape, dtype, and offset in the frame
        self.table: Dict[str, Tuple[Tuple[int, ...], np.dtype[Any], int]] = {}
        for name, dtype, dims, _, *rest in wire.TENSOR.iter_unpack(text):
            kind = np.dtype(dtype.rstrip(b"\0").decode())
            self.table[name.rstrip(b"\0").decode()] = (tuple(rest[:dims]), kind, rest[4])
        self.shapes = {name: (shape, dtype) for name, (shape, dtype, _) in self.table.items()}
        self.first = next((at for _, _, at in self.table.values()), 0)  # offset of the first tensor


class Frame(NamedTuple):
    """The memory of one batch, and the content of its BATCH message. It makes tensors and metadata on demand: a trainer
    pays for the parts that it uses."""

    root: "np.ndarray[Any, Any]"  # the frame's bytes
    layout: Layout
    from_numpy: Optional[Callable[[Any], Any]]  # makes a tensor of an array
    header: wire.Header
    body: bytes
    state: State  # after the batch
    source: Optional[int]  # the rank that broadcasts the tensors, if this rank has none

    def names(self) -> Collection[str]:
        return () if self.header.flags & wire.ABSENT else self.layout.table

    def tensor(self, name: str) -> Any:
        """Return a view of the frame. Raises KeyError for a name that the batch does not have."""
        if self.header.flags & wire.ABSENT:
            raise KeyError(name)
        shape, dtype, at = self.layout.table[name]
        array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, self.root, at)
        return array if self.from_numpy is None else self.from_numpy(array)

    def metadata(self) -> Metadata:
        header, body = self.header, self.body
        _, _, lineage_at, lineage_length, *_ = wire.BATCH_FIXED.unpack_from(body)
        loss, step_loss = wire.BATCH_LOSS.unpack_from(body, _TABLE + len(self.layout.text))
        return Metadata(
            step=header.step,
            microbatch=header.microbatch,
            num_microbatches=header.microbatches,
            loss_tokens=loss,
            step_loss_tokens=step_loss,
            shapes=self.layout.shapes,
            broadcast_source=self.source if header.flags & wire.ABSENT else None,
            max_seqlen=self._max_seqlen(),
            state=self.state,
            lineage=self.root[lineage_at : lineage_at + lineage_length],
        )

    def _max_seqlen(self) -> Optional[int]:
        shape, dtype, at = self.layout.table.get("max_seqlen", ((), None, 0))
        if dtype is None or self.header.flags & wire.ABSENT:
            return None
        return int(np.ndarray(shape, dtype, self.root, at))


class Frames:
    """Makes batches of frames. A frame is released when its last view is gone."""

    def __init__(self, tensors: str, names: Optional[Names] = None) -> None:
        self.batches = self.bytes = self.copied = 0
        self._tensors = tensors
        self._names = names
        self._from_numpy: Optional[Callable[[Any], Any]] = None
        self._layout = Layout(b"")
        self._collect = Backoff()
        self._warned = False

    def read(
        self, conn: Connection, header: wire.Header, body: bytes, before: State, source: Optional[int]
    ) -> Tuple[Batch, State]:
        """Return a microbatch and the state after it. `before` is the state after the previous batch. `source` is the
        rank that broadcasts the tensors, if this rank has none."""
        offset, length, _, _, state_at, state_length, placement, count, _ = _read_fixed(body)
        root, ring = conn.lease(header, offset, length)
        layout = self._layout
        if layout.count != count or not body.startswith(layout.text, _TABLE):
            layout = self._layout = Layout(body[_TABLE : _TABLE + count * wire.TENSOR.size])
        address: Optional[int] = ring.address + offset + layout.first
        if len(ring.leased) >= ring.frames and self._is_short(ring):
            root, address = self._copy(root, ring), None
        if header.microbatch + 1 < header.microbatches:
            state: State = _new_tuple(State, (before.text, (header.microbatch + 1, placement.hex())))
        else:  # the last batch of a step brings the state after the step
            state = State(root[state_at : state_at + state_length].tobytes() or before.text, None)
        register_trees()
        from_numpy = self._from_numpy
        if from_numpy is None and self._tensors != "numpy":
            from_numpy = self._find_torch()
        frame: Source = _new_tuple(Frame, (root, layout, from_numpy, header, body, state, source))
        if self._names is not None:
            frame = self._names.over(frame)
            shown = first_shown(frame)
            if address is not None:
                address = ring.address + offset + layout.table[shown][2] if shown else None
        batch = make_batch(frame, address)
        self.batches += 1
        self.bytes += length
        return batch, state

    def _find_torch(self) -> Optional[Callable[[Any], Any]]:
        """Return the function that makes torch tensors of arrays; None while torch is not imported."""
        if "torch" in sys.modules:
            self._from_numpy = sys.modules["torch"].from_numpy
        return self._from_numpy

    def _is_short(self, ring: Ring) -> bool:
        """Return whether the trainer holds all other frames of the ring."""
        if self._collect.is_due():  # unreachable cycles may hold batches
            gc.collect()
            if len(ring.leased) < ring.frames:
                self._collect.reset()
                return False
        return True

    def _copy(self, root: "np.ndarray[Any, Any]", ring: Ring) -> "np.ndarray[Any, Any]":
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the trainer holds {ring.frames - 1} batches of a ring of {ring.frames}: further ones are copied. "
                "Drop batches and views of them after use, or copy the parts that you keep.",
                RuntimeWarning,
                stacklevel=7,  # the trainer's loop
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
