"""Make batches of BATCH messages, over the memory of the frame or over a copy of it."""

from __future__ import annotations

import gc
import warnings
from typing import Any, Callable, Collection, NamedTuple, Optional, Tuple, Union

import numpy as np

from . import _wire as wire
from ._arrays import FROM_NUMPY
from ._batch import Batch, make_batch
from ._connection import Connection, Ring
from ._copies import Copies, Copy
from ._layout import Layout
from ._metadata import Metadata
from ._pytrees import register_trees
from ._state import State
from ._views import Names, Source, first_shown

_TABLE = wire.BATCH_FIXED.size  # where the tensor table begins in the body
_read_fixed, _new_tuple = wire.BATCH_FIXED.unpack_from, wire.new_tuple


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

    def span(self) -> "np.ndarray[Any, Any]":
        """Return the bytes of all tensors as one array."""
        end = self.layout.end if self.names() else self.layout.begin
        span: np.ndarray[Any, Any] = self.root[self.layout.begin : end]
        return span

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
        after = _TABLE + len(self.layout.text)
        (loss,) = wire.COUNT.unpack_from(body, after)
        after += wire.COUNT.size
        step_loss: Optional[int] = wire.COUNT.unpack_from(body, after)[0] if len(body) > after else None
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

    def __init__(self, tensors: str, names: Optional[Names] = None, copies: Optional[Copies] = None) -> None:
        """`tensors` is "numpy", "torch" or "jax". With `copies`, every batch is copied to a device, and `read` returns
        its copy."""
        self.batches = self.bytes = self.copied = 0
        self._names = names
        self.copies = copies
        self._from_numpy = FROM_NUMPY[tensors]()
        self._layout = Layout(b"")
        self._collect = Backoff()
        self._warned = False

    def read(
        self, conn: Connection, header: wire.Header, body: bytes, before: State, source: Optional[int]
    ) -> Tuple[Union[Batch, Copy], State]:
        """Return a microbatch, or its copy on the way, and the state after it. `before` is the state after the previous
        batch. `source` is the rank that broadcasts the tensors, if this rank has none."""
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
        frame: Frame = _new_tuple(Frame, (root, layout, self._from_numpy, header, body, state, source))
        self.batches += 1
        self.bytes += length
        if self.copies is not None:
            return self.copies.start(frame, ring), state
        if self._names is None:
            return make_batch(frame, address), state
        view = self._names.over(frame)
        shown = first_shown(view)
        if address is not None:
            address = ring.address + offset + layout.table[shown][2] if shown else None
        return make_batch(view, address), state

    def finish(self, copy: Copy) -> Batch:
        """Return the batch of a copy on the device."""
        assert self.copies is not None  # it has started the copy
        moved: Source = self.copies.finish(copy)
        return make_batch(moved if self._names is None else self._names.over(moved), None)

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
