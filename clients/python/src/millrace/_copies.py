"""Batches on their way to a device: a queue of copies that run ahead of the trainer."""

from __future__ import annotations

import collections
import os
from typing import Any, Collection, Deque, NamedTuple, Optional, Protocol

import numpy as np

from ._connection import Ring
from ._devices import Device, Done
from ._layout import Layout
from ._metadata import Metadata


class Frame(Protocol):
    """The memory of a batch."""

    @property
    def layout(self) -> Layout: ...

    def names(self) -> Collection[str]: ...

    def span(self) -> "np.ndarray[Any, Any]":
        """Return the bytes of all tensors as one array."""

    def metadata(self) -> Metadata: ...


class Moved:
    """The tensors of a batch on a device. They are views of one memory."""

    __slots__ = ("_memory", "_layout", "_names", "_metadata")

    def __init__(self, memory: Any, frame: Frame) -> None:
        self._memory = memory
        self._layout = frame.layout
        self._names = frame.names()
        self._metadata = frame.metadata().detach()

    def names(self) -> Collection[str]:
        return self._names

    def tensor(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._layout.view(name, self._memory)

    def metadata(self) -> Metadata:
        return self._metadata


class Lent(NamedTuple):
    """A frame that a copy reads."""

    done: Done
    memory: "np.ndarray[Any, Any]"  # keeps the frame from its release
    ring: Ring  # stays registered


class Copies:
    """Copies frames to a device. A frame is released when its copy has ended: at the next call of any method."""

    def __init__(self, device: Device, prefetch: int) -> None:
        self.prefetch = prefetch  # most copies ahead of the trainer
        self._device = device
        self._pid = os.getpid()
        self._ring: Optional[Ring] = None  # the registered one
        self._lent: Deque[Lent] = collections.deque()  # in the order of the copies

    def start(self, frame: Frame, ring: Ring) -> "Copy":
        if self._ring is not ring:
            self._device.register(ring)
            self._ring = ring
        memory = frame.span()
        target, done = self._device.copy(memory)
        self._lent.append(Lent(done, memory, ring))
        return Copy(Moved(target, frame), target, done)

    def finish(self, copy: "Copy") -> Moved:
        """Return the batch of a copy. Work that the trainer starts from now on waits for it."""
        self._device.hand_over(copy.target, copy.done)
        return copy.moved

    def release(self) -> None:
        """Release the frames whose copies have ended."""
        while self._lent and self._lent[0].done.query():
            self._lent.popleft()

    def make_room(self, ring: Ring) -> bool:
        """Return whether the sidecar has a frame of the ring to fill after one more copy has started."""
        self.release()
        return len(ring.leased) + 1 < ring.frames

    def wait_for_room(self, ring: Ring) -> None:
        """Wait until a copy has ended if copies hold all other frames of the ring."""
        while self._lent and not self.make_room(ring):
            self._lent[0].done.synchronize()

    def settle(self) -> None:
        """Wait for all copies, and release their frames. In a forked child, do nothing: the copies are the parent's."""
        if os.getpid() == self._pid:
            while self._lent:
                self._lent[0].done.synchronize()
                self.release()


class Copy(NamedTuple):
    """A batch whose copy has started."""

    moved: Moved
    target: Any
    done: Done
