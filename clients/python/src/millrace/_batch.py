"""One microbatch, where its tokens come from, and the digests over both."""

from __future__ import annotations

import hashlib
import struct
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np


class Segment(NamedTuple):
    """A run of tokens of one document in one row: tokens `offset … offset+length` of the document `id` of `source`, at columns
    `start … start+length` of `row`. `ordinal` is the document's position in the source's stream, `epoch` the pass over the source."""

    source: str
    id: str
    epoch: int
    ordinal: int
    offset: int
    length: int
    row: int
    start: int


class Slice(NamedTuple):
    """How much of a segment a rank has. `parts` > 0: the segment is split over that many data-parallel ranks, this one has number `part`.
    `holder`: the context-parallel rank that alone has it, whole; None where each has a slice, or there is one."""

    part: int
    parts: int
    holder: Optional[int]


class Batch(Mapping[str, Any]):
    """One microbatch: its tensors by name. The tensors are views of shared memory, valid for as long as the batch or any of them
    lives. With context parallelism they are the rank's slice; `segments` and what they say of rows and columns, `loss_tokens` and
    `cu_seqlens` are those of the whole microbatch.

    `loss_tokens`, `step_loss_tokens`: labels other than -100 in this microbatch, of all its slices, and in all microbatches of all
    data-parallel ranks of the step, as planned: a segment that turned out unreadable counts, though its labels are -100. A step's loss is
    the sum over all ranks divided by `step_loss_tokens`, whatever the split.
    `shapes`: (shape, dtype) of each tensor by name; also where the tensors are not here.
    `broadcast_source`: None, or the rank that has the tensors: then the batch is empty but for what is named here."""

    __slots__ = (
        "_tensors", "_lineage", "_segments", "_slices", "step", "microbatch", "num_microbatches", "loss_tokens", "step_loss_tokens", "shapes",
        "broadcast_source", "__weakref__",
    )  # fmt: skip

    def __init__(
        self,
        tensors: Mapping[str, Any],
        step: int = -1,
        microbatch: int = -1,
        num_microbatches: int = -1,
        lineage: Optional["np.ndarray[Any, Any]"] = None,
        loss_tokens: int = -1,
        step_loss_tokens: int = -1,
        shapes: Optional[Mapping[str, Tuple[Tuple[int, ...], Any]]] = None,
        broadcast_source: Optional[int] = None,
    ) -> None:
        self._tensors: Dict[str, Any] = tensors if type(tensors) is dict else dict(tensors)
        self._lineage = lineage
        self._segments: Optional[List[Segment]] = None
        self._slices: List[Slice] = []
        self.loss_tokens = loss_tokens
        self.step_loss_tokens = step_loss_tokens
        self.shapes = {k: (tuple(v.shape), v.dtype) for k, v in self._tensors.items()} if shapes is None else shapes
        self.broadcast_source = broadcast_source
        self.step = step
        self.microbatch = microbatch
        self.num_microbatches = num_microbatches

    def __getitem__(self, name: str) -> Any:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    # Arrays have no truth value, so that batches are compared as objects.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        shapes = ", ".join(f"{k}: {shape}" for k, (shape, _) in self.shapes.items())
        away = "" if self.broadcast_source is None else f", on rank {self.broadcast_source}"
        return f"Batch(step={self.step}, microbatch={self.microbatch}/{self.num_microbatches}, {shapes}{away})"

    @property
    def segments(self) -> List[Segment]:
        """Where the tokens come from, in row order."""
        if self._segments is None:
            self._segments, self._slices = ([], []) if self._lineage is None else _read_lineage(self._lineage)
        return self._segments

    @property
    def slices(self) -> List[Slice]:
        """How much of each segment this rank has."""
        return self._slices if self.segments else []

    @property
    def digest(self) -> str:
        """blake2b-128 over the tensors as they are now, as hex."""
        h = hashlib.blake2b(digest_size=16)
        for name in sorted(self._tensors):
            a = _as_numpy(self._tensors[name])
            shape = ",".join(str(n) for n in a.shape)
            h.update(b"\0".join((name.encode(), a.dtype.str.encode(), shape.encode(), b"")))
            h.update(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data)
        return h.hexdigest()


def content_digest(segments: Iterable[Segment]) -> str:
    """The content digest of a step, as hex, from the segments of all its microbatches on all ranks, in any order. What several ranks have
    of a segment counts once."""
    h = hashlib.blake2b(digest_size=16)
    for source, ordinal, offset, length in sorted({(s.source.encode(), s.ordinal, s.offset, s.length) for s in segments}):
        h.update(source + b"\0" + struct.pack("<QQQ", ordinal, offset, length))
    return h.hexdigest()


def _as_numpy(tensor: Any) -> "np.ndarray[Any, Any]":
    if isinstance(tensor, np.ndarray):
        return tensor
    if hasattr(tensor, "detach"):  # torch, on whatever device
        tensor = tensor.detach().cpu().numpy()
    return np.asarray(tensor)


_SEGMENT = np.dtype(
    [(n, "<u4") for n in ("source", "shard")]
    + [(n, "<u8") for n in ("ordinal", "record")]
    + [(n, "<u4") for n in ("epoch", "offset", "length", "row", "start", "slice")]
)


def _read_lineage(blob: "np.ndarray[Any, Any]") -> Tuple[List[Segment], List[Slice]]:
    raw = blob.tobytes()
    segments, names = struct.unpack_from("<II", raw, 0)
    at = 8 + segments * _SEGMENT.itemsize
    table: List[str] = []
    for offset, length in struct.iter_unpack("<II", raw[at : at + 8 * names]):
        table.append(raw[offset : offset + length].decode("utf-8", "surrogateescape"))
    rows: List[Tuple[int, ...]] = np.frombuffer(raw, _SEGMENT, segments, 8).tolist()
    whole = [
        Segment(table[source], f"{table[shard]}#{record}", epoch, ordinal, offset, length, row, start)
        for source, shard, ordinal, record, epoch, offset, length, row, start, _ in rows
    ]
    return whole, [Slice(r[-1] & 0xFFFF, r[-1] >> 16, None) if r[-1] == 0 or r[-1] >> 16 else Slice(0, 0, r[-1] - 1) for r in rows]
