"""The origin of a batch's tokens: segments, their slices, and the content digest of a step."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np


class _Place(NamedTuple):
    source: str  # name of the source in the mixture file
    id: str  # address of the document: `<path below the source's root>#<record>`
    epoch: int  # pass over the source
    ordinal: int  # position of the document in the source's stream
    offset: int  # first token within the document
    length: int  # tokens
    row: int
    start: int  # first column


class Segment(_Place):
    """A run of tokens of one document in one row.

    The segment holds tokens `offset … offset+length` of the document, at columns `start … start+length` of `row`.
    All numbers count from 0. With the varlen layout `row` is 0 and `start` indexes the 1-D tensors.

    `fields` has the values of the record that `fields` of the source names. It is None if the source names none, and
    for a masked segment. `pair` is "chosen" or "rejected" for the segments of a preference pair, which stand one behind
    the other, and None for others. Both are no elements of the tuple, and segments compare without them."""

    fields: Optional[Dict[str, Any]] = None
    pair: Optional[str] = None


class Slice(NamedTuple):
    """The part of a segment that this rank has under data or context parallelism."""

    part: int  # number of this rank's slice; 0 if the segment is not split over data-parallel ranks
    parts: int  # data-parallel ranks that share the segment; 0: it is not split
    holder: Optional[int]  # context-parallel rank that has the whole segment; None: no single one does, or there is one


def content_digest(segments: Iterable[Segment]) -> str:
    """Return the content digest of a step as 32 hex digits.

    `segments` has the segments of all microbatches of the step on all ranks, in any order. A segment that several ranks
    have counts once. The digest is equal under every topology."""
    h = hashlib.blake2b(digest_size=16)
    places = {  # a plan has one segment for a pair, from its beginning to the end of the rejected segment
        (s.source.encode(), s.ordinal, 0, s.offset + s.length)
        if s.pair
        else (s.source.encode(), s.ordinal, s.offset, s.length)
        for s in segments
        if s.pair != "chosen"
    }
    for source, ordinal, offset, length in sorted(places):
        h.update(source + b"\0" + struct.pack("<QQQ", ordinal, offset, length))
    return h.hexdigest()


_RECORD = np.dtype(
    [(n, "<u4") for n in ("source", "shard")]
    + [(n, "<u8") for n in ("ordinal", "record")]
    + [(n, "<u4") for n in ("epoch", "offset", "length", "row", "start", "slice")]
)


_PAIR = {0xFFFE: "chosen", 0xFFFF: "rejected"}  # by the slice's part, without parts


def read_lineage(raw: bytes) -> Tuple[List[Segment], List[Slice]]:
    """Read the lineage of a microbatch (docs/protocol.md): its segments in (row, start) order, and a slice for each."""
    count, names = struct.unpack_from("<II", raw, 0)
    at = 8 + count * _RECORD.itemsize
    table: List[str] = []
    for offset, length in struct.iter_unpack("<II", raw[at : at + 8 * names]):
        table.append(raw[offset : offset + length].decode("utf-8", "surrogateescape"))
    rows: List[Tuple[Any, ...]] = np.frombuffer(raw, _RECORD, count, 8).tolist()
    segments = [
        Segment(table[source], f"{table[shard]}#{record}", epoch, ordinal, offset, length, row, start)
        for source, shard, ordinal, record, epoch, offset, length, row, start, _ in rows
    ]
    for segment, values in zip(segments, _read_fields(raw, at, count, names)):
        segment.fields = values
    for segment, row in zip(segments, rows):
        if row[-1] in _PAIR:
            segment.pair = _PAIR[row[-1]]
    return segments, [_slice(0 if r[-1] in _PAIR else r[-1]) for r in rows]


def _read_fields(raw: bytes, at: int, count: int, names: int) -> Iterator[Optional[Dict[str, Any]]]:
    """Read the fields behind the names, whose table begins at `at`. A lineage without fields ends with the names."""
    end = at + 8 * names
    if names:
        offset, length = struct.unpack_from("<II", raw, end - 8)
        end = offset + length
    if len(raw) > end:
        for offset, length in struct.iter_unpack("<II", raw[end : end + 8 * count]):
            yield json.loads(raw[offset : offset + length]) if length else None


def _slice(packed: int) -> Slice:
    part, parts = packed & 0xFFFF, packed >> 16
    if packed == 0 or parts:
        return Slice(part, parts, None)
    return Slice(0, 0, packed - 1)
