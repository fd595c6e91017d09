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


class Batch(Mapping[str, Any]):
    """One microbatch: its tensors by name. The tensors are views of shared memory, valid for as long as the batch or any of them
    lives."""

    __slots__ = ("_tensors", "_lineage", "_segments", "step", "microbatch", "num_microbatches", "__weakref__")

    def __init__(
        self,
        tensors: Mapping[str, Any],
        step: int = -1,
        microbatch: int = -1,
        num_microbatches: int = -1,
        lineage: Optional["np.ndarray[Any, Any]"] = None,
    ) -> None:
        self._tensors: Dict[str, Any] = tensors if type(tensors) is dict else dict(tensors)
        self._lineage = lineage
        self._segments: Optional[List[Segment]] = None
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
        shapes = ", ".join(f"{k}: {tuple(v.shape)}" for k, v in self._tensors.items())
        return f"Batch(step={self.step}, microbatch={self.microbatch}/{self.num_microbatches}, {shapes})"

    @property
    def segments(self) -> List[Segment]:
        """Where the tokens come from, in row order."""
        if self._segments is None:
            self._segments = [] if self._lineage is None else _read_lineage(self._lineage)
        return self._segments

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
    """The content digest of a step, as hex, from the segments of all its microbatches on all ranks, in any order."""
    h = hashlib.blake2b(digest_size=16)
    for s in sorted(segments, key=lambda s: (s.source.encode(), s.ordinal, s.offset)):
        h.update(s.source.encode() + b"\0" + struct.pack("<QQQ", s.ordinal, s.offset, s.length))
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
    + [(n, "<u4") for n in ("epoch", "offset", "length", "row", "start", "reserved")]
)


def _read_lineage(blob: "np.ndarray[Any, Any]") -> List[Segment]:
    raw = blob.tobytes()
    segments, names = struct.unpack_from("<II", raw, 0)
    at = 8 + segments * _SEGMENT.itemsize
    table: List[str] = []
    for offset, length in struct.iter_unpack("<II", raw[at : at + 8 * names]):
        table.append(raw[offset : offset + length].decode("utf-8", "surrogateescape"))
    rows: List[Tuple[int, ...]] = np.frombuffer(raw, _SEGMENT, segments, 8).tolist()
    return [
        Segment(table[source], f"{table[shard]}#{record}", epoch, ordinal, offset, length, row, start)
        for source, shard, ordinal, record, epoch, offset, length, row, start, _ in rows
    ]
