"""Living batches by their memory, so that a batch that a framework rebuilds finds its metadata again."""

from __future__ import annotations

import weakref
from typing import Any, Dict, Iterable, Mapping, Optional, Protocol, Tuple

import numpy as np


class Living(Protocol):
    """A batch."""

    def values(self) -> Iterable[Any]: ...


# Living batches with metadata, by the address of a tensor. A living batch keeps its memory: a tensor with the same
# address and shape has the same data. The loader's own batches use the addresses of frames again and again, so that a
# plain dict with a few entries of dead batches serves them.
_alive: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
_in_frames: "Dict[int, weakref.ref[Any]]" = {}
MOST_FRAMES = 256  # entries, until the dead ones are removed


def note_in_frame(batch: Living, address: int) -> None:
    """Note a batch of the loader. `address` is that of one of its tensors in the frame."""
    if len(_in_frames) >= MOST_FRAMES:
        for old in [at for at, alive in _in_frames.items() if alive() is None]:
            del _in_frames[old]
    _in_frames[address] = _ref(batch)


def note(batch: Living, tensor: Any) -> None:
    """Note a batch by one of its tensors. One is enough to find the batch."""
    address = _address(tensor)
    if address is not None:
        _alive[address] = batch


def find(tensors: Mapping[str, Any]) -> Optional[Any]:
    """Return the one living batch that all the tensors belong to. Their names may differ."""
    places = [(_address(value), _shape(value)) for value in tensors.values()]
    for address, _ in places:
        batch = _at(address)
        if batch is not None:
            known = {(_address(value), _shape(value)) for value in batch.values()}
            return batch if known.issuperset(places) else None
    return None


def is_same(tensors: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Return whether both mappings have the same names for the same memory."""
    return len(tensors) == len(others) and all(
        name in tensors and _address(tensors[name]) == _address(other) and _shape(tensors[name]) == _shape(other)
        for name, other in others.items()
    )


_ref = weakref.ref


def _at(address: Optional[int]) -> Optional[Any]:
    if address is None:
        return None
    alive = _in_frames.get(address)
    return (alive() if alive is not None else None) or _alive.get(address)


def _address(tensor: Any) -> Optional[int]:
    """Return the address of the tensor's first element; None if it has no memory or no readable address."""
    try:
        if isinstance(tensor, np.ndarray):
            return int(tensor.__array_interface__["data"][0]) if tensor.size else None
        return int(tensor.data_ptr()) or None
    except Exception:  # a tensor without memory, or another object
        return None


def _shape(tensor: Any) -> Tuple[int, ...]:
    return tuple(getattr(tensor, "shape", ()))
