"""One microbatch: its tensors by name, and its metadata, which survives copies and moves."""

from __future__ import annotations

import hashlib
import importlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

import numpy as np

from . import _masks
from ._living import find, is_same, note, note_in_frame
from ._metadata import Metadata, Shapes
from ._segments import Segment, Slice
from ._views import Held, Shown, Source, View, first_shown

Tensors = Union[Mapping[str, Any], Iterable[Tuple[str, Any]]]

LOST = (
    "this Batch has no {name}: a framework has rebuilt it from a plain mapping, without its metadata. Read {name} from "
    "the batch that the loader gave, or keep the metadata: move the batch by batch.to(device) or batch.pin_memory(), "
    "and replace tensors by batch.with_tensors(tensors)"
)

ELSEWHERE = (
    "step_loss_tokens of step {step} is unknown on this host: an earlier release planned the step and did not count "
    "the tokens that are not trained on, and only other hosts have some tokens of the step. Add batch.loss_tokens up "
    "over the microbatches of the step and all data-parallel ranks (all_reduce), and divide the loss by this sum"
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

    With `middle_stages: positions` in the mixture file, the batches of pipeline stages between the first and the last
    have no `tokens`, `labels` and `loss_mask`.

    With `connect(keys=…)` the batch has other names, and some shapes differ.

    The metadata stays with the batch in `to`, `pin_memory`, `with_tensors`, copies, pickles and `tree_map`. If a
    framework rebuilds a batch from a plain mapping, and all tensors belong to one living batch, the new batch has its
    metadata. Otherwise reading the metadata raises AttributeError."""

    # A batch of the loader makes its tensors and its metadata from its frame when they are asked for.
    __slots__ = ("_made", "_frame", "_known_metadata", "__weakref__")

    def __init__(self, tensors: Tensors = ()) -> None:
        self._made: Dict[str, Any] = dict(tensors)
        origin = tensors if isinstance(tensors, Batch) else find(self._made)
        self._known_metadata: Optional[Metadata] = None if origin is None else origin._metadata
        self._frame: Optional[Source] = None
        if origin is not None and isinstance(origin._frame, View) and is_same(self._made, origin):
            self._frame = origin._frame  # a view whose tensors were all given again is still that view

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
        step is the sum over all ranks divided by this number, for every split of the step. A host may not know it of
        steps that an earlier release planned: reading it then raises AttributeError."""
        known = self._known("step_loss_tokens")
        if known.step_loss_tokens is None:
            raise AttributeError(ELSEWHERE.format(step=known.step))
        return known.step_loss_tokens

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
        """blake2b-128 over the tensors as they are now, as 32 hex digits. With `connect(keys=…)`, over the loader's
        tensors under the loader's names."""
        tensors, _ = self._delivered()
        h = hashlib.blake2b(digest_size=16)
        for name in sorted(tensors):
            a = _as_numpy(tensors[name])
            shape = ",".join(str(n) for n in a.shape)
            h.update(b"\0".join((name.encode(), a.dtype.str.encode(), shape.encode(), b"")))
            h.update(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data)
        return h.hexdigest()

    def _delivered(self) -> Tuple[Dict[str, Any], Optional[Dict[str, Shown]]]:
        """Return the tensors below the view, and the view's names; without a view the tensors and None."""
        if not isinstance(self._frame, View):
            return self._tensors, None
        base = self._frame.base
        return {name: base.tensor(name) for name in base.names()}, self._frame.shown

    # Attention.

    @property
    def max_seqlen(self) -> int:
        """Varlen layout: the longest padded segment, as a Python number that needs no wait for a device. Packed layout:
        the length of a row."""
        known = self._known("max_seqlen")
        return known.shapes["position_ids"][0][1] if known.max_seqlen is None else known.max_seqlen

    def attention_mask(self) -> Any:
        """Return a mask for `scaled_dot_product_attention(attn_mask=…)`: bool, [n, 1, L, L], true where a query
        attends to a key. A token attends to itself and to the earlier tokens of its own segment. A varlen batch is one
        row."""
        return _masks.attention_mask(self._get)

    def block_mask(self, block_size: int = 128) -> Any:
        """Return the same mask as a torch `BlockMask` for `flex_attention(block_mask=…)`. It needs no L × L memory."""
        return _masks.block_mask(self._get, block_size)

    def flash_attention(self, names: str = "flash_attn") -> Dict[str, Any]:
        """Return the arguments of `flash_attn_varlen_func`: cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k. The
        bounds are int32 on the device of the tensors, and the lengths are Python numbers. Add `causal=True`.

        `names`: "flash_attn", or "hf" for the FlashAttentionKwargs of Transformers. Packed tensors are to be flattened
        to one row."""
        return _masks.flash_attention(self._get, self.max_seqlen, names)

    def _get(self, name: str) -> Any:
        """Return a tensor of the loader under the loader's name. Raises KeyError for another name."""
        return self._frame.base.tensor(name) if isinstance(self._frame, View) else self[name]

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
        tensors, shown = self._delivered()
        for name, value in tensors.items():
            tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
            moved[name] = move(tensor)
        known = self._metadata
        return _make(moved, None if known is None else known.detach(), shown)

    def __copy__(self) -> "Batch":
        tensors, shown = self._delivered()
        copy = _make(dict(tensors), self._metadata, shown)
        copy._made = dict(self._tensors)  # a mapping that is rebuilt from either batch belongs to both
        return copy

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Batch":
        copy = importlib.import_module("copy")
        tensors, shown = self._delivered()
        known = self._metadata
        return _make(copy.deepcopy(tensors, memo), None if known is None else known.detach(), shown)

    def __reduce__(self) -> Any:
        tensors, shown = self._delivered()
        return _make, (tensors, self._metadata, shown)


def make_batch(source: Source, address: Optional[int]) -> Batch:
    """Make the batch that the loader returns. `address` is that of a tensor in its frame; None for a copy."""
    batch = _new(Batch)
    batch._made, batch._frame, batch._known_metadata = {}, source, None
    if address is None:
        _note(batch)
    else:
        note_in_frame(batch, address)
    return batch


def _make(
    tensors: Dict[str, Any], metadata: Optional[Metadata], shown: Optional[Dict[str, Shown]] = None
) -> Batch:
    """Make a batch of tensors. With `shown`, they are the tensors below a view."""
    batch = _new(Batch)
    batch._made, batch._frame, batch._known_metadata = tensors, None, metadata
    if shown is not None and metadata is not None:
        batch._made, batch._frame = {}, View(Held(tensors, metadata), shown)
    if metadata is not None:
        _note(batch)
    return batch


def _note(batch: Batch) -> None:
    source = batch._frame
    name = next(iter(batch._made), None) if source is None else first_shown(source)
    if name is not None:
        note(batch, batch._get(name))


_new = Batch.__new__

def _as_numpy(tensor: Any) -> "np.ndarray[Any, Any]":
    if isinstance(tensor, np.ndarray):
        return tensor
    if hasattr(tensor, "detach"):  # torch, on any device
        tensor = tensor.detach().cpu().numpy()
    return np.asarray(tensor)
