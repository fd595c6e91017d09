"""One microbatch: its tensors by name, and its metadata, which survives copies and moves."""

from __future__ import annotations

import hashlib
import importlib
import weakref
from typing import Any, Callable, Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Protocol, Tuple, Union

import numpy as np

from ._metadata import Metadata, Shapes
from ._segments import Segment, Slice

Tensors = Union[Mapping[str, Any], Iterable[Tuple[str, Any]]]


class Source(Protocol):
    """The frame of a batch, or a copy of it."""

    def names(self) -> Collection[str]: ...

    def tensor(self, name: str) -> Any:
        """Return a view. Raises KeyError for another name."""

    def metadata(self) -> Metadata: ...


LOST = (
    "this Batch has no {name}: a framework has rebuilt it from a plain mapping, without its metadata. Read {name} from "
    "the batch that the loader gave, or keep the metadata: move the batch by batch.to(device) or batch.pin_memory(), "
    "and replace tensors by batch.with_tensors(tensors)"
)


class Batch(Mapping[str, Any]):
    """One microbatch of one rank: a read-only mapping from names to tensors, with metadata as attributes.

    Packed layout, shape [micro_batch_size, sequence_length]:
        `tokens`, `labels`, `position_ids`: `token_dtype` of the mixture file (int64 or int32)
        `segment_ids`: int32, from 1 in each row; 0 is padding
        `loss_mask`: float32, 1.0 if the label counts
    Varlen layout: `tokens`, `labels`, `position_ids`, `loss_mask` of shape [tokens]; `cu_seqlens` int32 [segments + 1];
        `max_seqlen`, a scalar.
    `labels` are shifted already: `labels[i]` is the token after `tokens[i]`. A label of -100 does not count in the
    loss. Padding has label -100 and is 0 in every other tensor.

    Tensors are NumPy arrays or torch tensors: writable views of shared memory. They are valid as long as the batch or
    any view exists. With context parallelism they are this rank's slice, while `segments`, `loss_tokens` and
    `cu_seqlens` describe the whole microbatch.

    The metadata stays with the batch in `to`, `pin_memory`, `with_tensors`, copies, pickles and `tree_map`. If a
    framework rebuilds a batch from a plain mapping, and all tensors belong to one living batch, the new batch has its
    metadata. Otherwise reading the metadata raises AttributeError."""

    # A batch of the loader makes its tensors and its metadata from its frame when they are asked for.
    __slots__ = ("_made", "_frame", "_known_metadata", "__weakref__")

    def __init__(self, tensors: Tensors = ()) -> None:
        self._made: Dict[str, Any] = dict(tensors)
        self._frame: Optional[Source] = None
        self._known_metadata: Optional[Metadata] = (
            tensors._metadata if isinstance(tensors, Batch) else _find_metadata(self._made)
        )

    @property
    def _tensors(self) -> Dict[str, Any]:
        if self._frame is not None and len(self._made) < len(self._frame.names()):
            self._made = {name: self[name] for name in self._frame.names()}
        return self._made

    @property
    def _metadata(self) -> Optional[Metadata]:
        if self._known_metadata is None and self._frame is not None:
            self._known_metadata = self._frame.metadata()
        return self._known_metadata

    # The mapping.

    def __getitem__(self, name: str) -> Any:
        tensor = self._made.get(name)
        if tensor is None:
            if self._frame is None:
                raise KeyError(name)
            tensor = self._made[name] = self._frame.tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    # Arrays have no truth value, so batches compare by identity.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        known = self._metadata
        if known is None:
            tensors = ", ".join(f"{name}: {tuple(getattr(v, 'shape', ()))}" for name, v in self._tensors.items())
            return f"Batch(without metadata, {tensors})"
        tensors = ", ".join(f"{name}: {shape}" for name, (shape, _) in known.shapes.items())
        away = "" if known.broadcast_source is None else f", on rank {known.broadcast_source}"
        return f"Batch(step={known.step}, microbatch={known.microbatch}/{known.num_microbatches}, {tensors}{away})"

    # Metadata.

    def _known(self, name: str) -> Metadata:
        if self._metadata is None:
            raise AttributeError(LOST.format(name=name))
        return self._metadata

    @property
    def step(self) -> int:
        """The optimizer step, from 0."""
        return self._known("step").step

    @property
    def microbatch(self) -> int:
        """The number of this microbatch within its step on this rank, from 0."""
        return self._known("microbatch").microbatch

    @property
    def num_microbatches(self) -> int:
        """The number of microbatches of the step on this rank; equal on all ranks."""
        return self._known("num_microbatches").num_microbatches

    @property
    def loss_tokens(self) -> int:
        """Labels other than -100 in this microbatch, over all its context-parallel slices, as planned. A masked segment
        counts, although its labels are -100."""
        return self._known("loss_tokens").loss_tokens

    @property
    def step_loss_tokens(self) -> int:
        """Labels other than -100 in all microbatches of all data-parallel ranks of the step, as planned. The loss of a
        step is the sum over all ranks divided by this number, for every split of the step."""
        return self._known("step_loss_tokens").step_loss_tokens

    @property
    def shapes(self) -> Shapes:
        """(shape, NumPy dtype) of each tensor of the loader's batch by name, also if another rank has the tensors."""
        return self._known("shapes").shapes

    @property
    def broadcast_source(self) -> Optional[int]:
        """The rank that has the tensors, if this batch has none; None if this batch has them."""
        return self._known("broadcast_source").broadcast_source

    @property
    def segments(self) -> List[Segment]:
        """The origin of the tokens, in (row, start) order."""
        return self._known("segments").lineage()[0]

    @property
    def slices(self) -> List[Slice]:
        """This rank's part of each segment, in the order of `segments`."""
        return self._known("slices").lineage()[1]

    def state_dict(self) -> Dict[str, Any]:
        """Return the run's state after this batch, even if later batches were fetched. `json.dumps` accepts it. A
        trainer that loads it continues with the next batch."""
        return self._known("state_dict").state.to_dict()

    @property
    def digest(self) -> str:
        """blake2b-128 over the tensors as they are now, as 32 hex digits."""
        h = hashlib.blake2b(digest_size=16)
        for name in sorted(self._tensors):
            a = _as_numpy(self._tensors[name])
            shape = ",".join(str(n) for n in a.shape)
            h.update(b"\0".join((name.encode(), a.dtype.str.encode(), shape.encode(), b"")))
            h.update(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data)
        return h.hexdigest()

    # Batches made from this one.

    def with_tensors(self, tensors: Tensors) -> "Batch":
        """Return a batch with this one's metadata and other tensors."""
        return _make(dict(tensors), self._metadata)

    def to(self, device: Any, non_blocking: bool = False) -> "Batch":
        """Return a batch with this one's metadata and with torch tensors on `device`: a `torch.device`, or its name,
        such as "cuda:0". With `non_blocking`, the copy may still be running when the call returns. Raises ImportError
        without PyTorch."""
        return self._moved(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self, device: Any = None) -> "Batch":
        """Return a batch with this one's metadata and with copies of its tensors in page-locked memory, as torch
        tensors. `device` is ignored, as in newer PyTorch. Raises ImportError without PyTorch."""
        return self._moved(lambda tensor: tensor.pin_memory())

    def _moved(self, move: Callable[[Any], Any]) -> "Batch":
        torch = importlib.import_module("torch")
        moved: Dict[str, Any] = {}
        for name, value in self._tensors.items():
            tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
            moved[name] = move(tensor)
        known = self._metadata
        return _make(moved, None if known is None else known.detach())

    def __copy__(self) -> "Batch":
        return _make(dict(self._tensors), self._metadata)

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Batch":
        copy = importlib.import_module("copy")
        known = self._metadata
        return _make(copy.deepcopy(self._tensors, memo), None if known is None else known.detach())

    def __reduce__(self) -> Any:
        return _make, (self._tensors, self._metadata)


def make_batch(frame: Source, address: Optional[int]) -> Batch:
    """Make the batch that the loader returns. `address` is that of the frame's first tensor; None for a copy."""
    batch = _new(Batch)
    batch._made, batch._frame, batch._known_metadata = {}, frame, None
    if address is None:
        _note(batch)
        return batch
    if len(_in_frames) >= MOST_FRAMES:
        for old in [at for at, alive in _in_frames.items() if alive() is None]:
            del _in_frames[old]
    _in_frames[address] = _ref(batch)
    return batch


def _make(tensors: Dict[str, Any], metadata: Optional[Metadata]) -> Batch:
    batch = _new(Batch)
    batch._made, batch._frame, batch._known_metadata = tensors, None, metadata
    if metadata is not None:
        _note(batch)
    return batch


def _note(batch: Batch) -> None:
    """Note a batch under the address of its first tensor. One tensor is enough to find the batch."""
    for value in batch._tensors.values():
        address = _address(value)
        if address is not None:
            _alive[address] = batch
        break


_new = Batch.__new__
_ref = weakref.ref

# Living batches with metadata, by the address of their first tensor. A living batch keeps its memory: a tensor with the
# same address and shape has the same data. The loader's own batches use the addresses of frames again and again, so
# that a plain dict with a few entries of dead batches serves them.
_alive: "weakref.WeakValueDictionary[int, Batch]" = weakref.WeakValueDictionary()
_in_frames: "Dict[int, weakref.ref[Batch]]" = {}
MOST_FRAMES = 256  # entries, until the dead ones are removed


def _living(address: Optional[int]) -> Optional[Batch]:
    if address is None:
        return None
    alive = _in_frames.get(address)
    return (alive() if alive is not None else None) or _alive.get(address)


def _find_metadata(tensors: Mapping[str, Any]) -> Optional[Metadata]:
    """Find the metadata of the one living batch that all the tensors belong to. Their names may differ."""
    places = [(_address(value), _shape(value)) for value in tensors.values()]
    for address, _ in places:
        batch = _living(address)
        if batch is not None:
            known = {(_address(value), _shape(value)) for value in batch._tensors.values()}
            return batch._metadata if known.issuperset(places) else None
    return None


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


def _as_numpy(tensor: Any) -> "np.ndarray[Any, Any]":
    if isinstance(tensor, np.ndarray):
        return tensor
    if hasattr(tensor, "detach"):  # torch, on any device
        tensor = tensor.detach().cpu().numpy()
    return np.asarray(tensor)
