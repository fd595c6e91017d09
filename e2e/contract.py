"""Independent checks of delivered batches against docs/planning.md and docs/parallelism.md. They share no code with the
program."""

from __future__ import annotations

import collections
from fractions import Fraction
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

import oracle
from harness import EPOCH, ID, LENGTH, OFFSET, ORDINAL, ROW, SOURCE, START, Delivered, Segment
from oracle import Documents
from stages import by_step
from trainer import Taken

IGNORED = -100


def check_batches(delivered: Delivered, documents: Mapping[str, Documents], mixture: Mapping[str, Any]) -> None:
    """Checks every element of every tensor against the batch's segments and the documents."""
    expected = _varlen if mixture.get("layout") == "varlen" else _packed
    axes = mixture.get("parallelism", {})
    now = by_step(delivered, mixture)
    made: Dict[Any, Dict[str, Any]] = {}  # ranks of one data-parallel rank have the same segments
    for slot, batch in delivered.slots().items():
        assert batch.tensors is not None
        key = (slot[0], tuple(batch.segments), tuple(batch.slices))
        if key not in made:
            made[key] = expected(batch, documents, {**mixture, **now[slot[0]]})
        want = made[key]
        assert batch.loss_tokens == int((want["labels"] != IGNORED).sum()), f"{slot}: {batch.loss_tokens} labels"
        if axes.get("cp", 1) > 1:
            want = _slice(want, batch, axes["cp"], slot[1] // axes.get("tp", 1) % axes["cp"], mixture)
        if mixture.get("middle_stages") == "positions" and 0 < batch.place[3] < axes["pp"] - 1:
            want = {name: array for name, array in want.items() if name not in ("tokens", "labels", "loss_mask")}
        assert batch.shapes == {name: (array.shape, array.dtype.str) for name, array in want.items()}, (
            f"{slot}: {batch.shapes}"
        )
        if batch.source is not None:
            assert batch.tensors == {}
            continue
        assert set(batch.tensors) == set(want), f"{slot}: tensors {sorted(batch.tensors)}"
        for name, array in want.items():
            got = batch.tensors[name]
            assert got.dtype == array.dtype and got.shape == array.shape, (
                f"{slot}: {name} is {got.dtype}{got.shape}, want {array.dtype}{array.shape}"
            )
            assert np.array_equal(got, array), (
                f"{slot}: {name} differs first at {np.argwhere(np.asarray(got != array))[0]}"
            )


def _dtype(mixture: Mapping[str, Any]) -> Any:
    return np.dtype(mixture.get("token_dtype", "int64"))


def _packed(batch: Taken, documents: Mapping[str, Documents], mixture: Mapping[str, Any]) -> Dict[str, Any]:
    shape = (mixture.get("micro_batch_size", 1), mixture["sequence_length"])
    dtype = _dtype(mixture)
    out = {
        "tokens": np.zeros(shape, dtype),
        "labels": np.full(shape, IGNORED, dtype),
        "position_ids": np.zeros(shape, dtype),
        "segment_ids": np.zeros(shape, np.int32),
        "loss_mask": np.zeros(shape, np.float32),
    }
    counts: Dict[int, int] = collections.Counter()
    for s in sorted(batch.segments, key=lambda s: (s[ROW], s[START])):
        counts[s[ROW]] += 1
        where = (s[ROW], slice(s[START], s[START] + s[LENGTH]))
        assert not out["segment_ids"][where].any(), f"segments overlap: {s}"
        assert s[START] + s[LENGTH] <= shape[1] and s[START] % mixture.get("pad_multiple", 1) == 0, s
        _fill(out, where, s, documents)
        out["segment_ids"][where] = counts[s[ROW]]
    return out


def _varlen(batch: Taken, documents: Mapping[str, Documents], mixture: Mapping[str, Any]) -> Dict[str, Any]:
    multiple = mixture.get("pad_multiple", 1)
    starts = [0]
    slices = batch.slices or [(0, 0, None)] * len(batch.segments)
    for s, (_, parts, _) in zip(batch.segments, slices):
        assert s[ROW] == 0 and s[START] == starts[-1], f"{s} does not follow {starts[-1]}"
        starts.append(s[START] + _width(s, parts, multiple))
    if not batch.segments:
        starts = [0, 1]
    dtype = _dtype(mixture)
    out = {
        "tokens": np.zeros(starts[-1], dtype),
        "labels": np.full(starts[-1], IGNORED, dtype),
        "position_ids": np.zeros(starts[-1], dtype),
        "loss_mask": np.zeros(starts[-1], np.float32),
        "cu_seqlens": np.array(starts, np.int32),
        "max_seqlen": np.array(max(np.diff(starts)), np.int32),
    }
    for s, (part, parts, _) in zip(batch.segments, slices):
        if parts == 0:
            _fill(out, (slice(s[START], s[START] + s[LENGTH]),), s, documents)
            continue
        chunk = _width(s, parts, multiple) // 2
        whole = {
            name: np.zeros(2 * parts * chunk, out[name].dtype)
            for name in ("tokens", "labels", "position_ids", "loss_mask")
        }
        whole["labels"][:] = IGNORED
        _fill(whole, (slice(0, s[LENGTH]),), s, documents)
        for name, array in whole.items():
            chunks = np.split(array, 2 * parts)
            out[name][s[START] : s[START] + 2 * chunk] = np.concatenate([chunks[part], chunks[2 * parts - 1 - part]])
    return out


def _width(s: Segment, parts: int, multiple: int) -> int:
    """The columns of a segment or slice. A slice is two of 2 * parts chunks, each rounded up."""
    chunks = max(2 * parts, 1)
    length = -(-s[LENGTH] // chunks)
    return -(-length // multiple) * multiple * min(chunks, 2)


def _slice(whole: Dict[str, Any], batch: Taken, cp: int, rank: int, mixture: Mapping[str, Any]) -> Dict[str, Any]:
    """A context-parallel rank's part of a microbatch. The rank has two of the 2 * cp equal chunks of each padded
    document: the rank-th from both ends. The rank's whole documents follow, then padding."""
    multiple = mixture["pad_multiple"]
    varlen = whole["labels"].ndim == 1
    if not batch.segments and varlen:  # every rank has two masked tokens
        whole = {name: np.resize(array, 2 * cp) for name, array in whole.items()}
        whole["cu_seqlens"], whole["max_seqlen"] = np.array([0, 2 * cp], np.int32), np.array(2 * cp, np.int32)
    places = [
        (s[ROW], s[START], s[START] + _width(s, parts, multiple))
        for s, (_, parts, _) in zip(batch.segments, batch.slices)
    ]
    shared = [p for p, s in zip(places, batch.slices) if s[2] is None]
    own = [p for p, s in zip(places, batch.slices) if s[2] == rank]
    out = {}
    for name, array in whole.items():
        if name in ("cu_seqlens", "max_seqlen"):
            continue
        rows = []
        for number, row in enumerate(np.atleast_2d(array)):
            pieces, end = [], 0
            for _, start, stop in (p for p in shared if p[0] == number):
                chunks = np.split(row[start:stop], 2 * cp)
                pieces += [chunks[rank], chunks[2 * cp - 1 - rank]]
            if mixture.get("cp_local") and not shared and batch.segments:
                pieces.append(np.full(2, IGNORED if name == "labels" else 0, row.dtype))
            pieces += [row[start:stop] for _, start, stop in own]
            if not varlen or not batch.segments:
                end = max([stop for at, _, stop in places if at == number], default=0)
                pieces.append(row[end : end + (len(row) - end) // cp])
            rows.append(np.concatenate(pieces))
        out[name] = rows[0] if varlen else np.stack(rows)
    if varlen:
        out["cu_seqlens"] = (
            _bounds(shared)
            if mixture.get("cp_local") and shared
            else np.array([0, 2 * cp], np.int32)
            if mixture.get("cp_local")
            else whole["cu_seqlens"]
        )
        out["max_seqlen"] = np.array(max(np.diff(out["cu_seqlens"])), np.int32)
        if mixture.get("cp_local"):
            out["cu_seqlens_local"] = _bounds(own)
            out["max_seqlen_local"] = np.array(max(np.diff(out["cu_seqlens_local"]), default=0), np.int32)
    return out


def _bounds(places: Sequence[Tuple[int, int, int]]) -> Any:
    return np.cumsum([0, *(stop - start for _, start, stop in places)]).astype(np.int32)


def _fill(out: Dict[str, Any], where: Any, s: Segment, documents: Mapping[str, Documents]) -> None:
    document = documents[s[SOURCE]][s[ID]]
    first, end = s[OFFSET], s[OFFSET] + s[LENGTH]
    assert 0 < s[LENGTH] and end <= len(document), f"{s} reaches beyond its document of {len(document)} tokens"
    labels = np.full(s[LENGTH], IGNORED, np.int64)
    following = document[first + 1 : end + 1]
    labels[: len(following)] = following
    out["tokens"][where] = document[first:end]
    out["labels"][where] = labels
    out["position_ids"][where] = np.arange(s[LENGTH])
    out["loss_mask"][where] = labels != IGNORED


def check_labels_once(delivered: Delivered, documents: Mapping[str, Documents]) -> None:
    """Checks that each delivered token has the next one of its document as its label, exactly once per epoch. The
    labels come from the tensors alone. The last token of a document has none."""
    labels: Dict[Tuple[str, str, int], List[Tuple[int, int, Any]]] = collections.defaultdict(list)
    for batch in delivered.slots().values():
        assert batch.tensors is not None
        for s in batch.segments:
            row = batch.tensors["labels"] if batch.tensors["labels"].ndim == 1 else batch.tensors["labels"][s[ROW]]
            mine = row[s[START] : s[START] + s[LENGTH]]
            labels[s[SOURCE], s[ID], s[EPOCH]].append((s[OFFSET], s[LENGTH], mine[mine != IGNORED]))
    for (source, name, epoch), parts in labels.items():
        whole = np.concatenate([part for _, _, part in sorted(parts, key=lambda p: p[0])])
        covered = sum(length for _, length, _ in parts)
        want = documents[source][name][1 : covered + 1]
        assert np.array_equal(whole, want), f"labels of {source} {name} in epoch {epoch}"


def filtered(mixture: Mapping[str, Any]) -> Set[str]:
    """The sources with a filter that may refuse documents."""
    out = {name for name, source in mixture["sources"].items() if "filter" in source}
    return out.union(*(stage.get("filters", {}) for stage in mixture.get("stages", [])))


def weightless(mixture: Mapping[str, Any]) -> Set[str]:
    """The sources to which the last milestone of the schedule gives no weight."""
    schedule = mixture["mixture"].get("schedule", [{}])
    return {name for name, weight in schedule[-1].get("weights", {}).items() if weight == 0}


def check_complete(
    delivered: Delivered, documents: Mapping[str, Documents], epochs: int, mixture: Mapping[str, Any]
) -> None:
    """Checks that every token of every document came exactly once per epoch and that ordinals count documents, or
    their pieces, over all epochs. Filters leave out whole documents only. A source without weight at the end is drawn
    up to some token only, so it may lack later ordinals and the end of its last one."""
    seen, refusing, left = pieces(delivered.segments()), filtered(mixture), weightless(mixture)
    ordinals: Dict[Tuple[str, int], Tuple[str, int, int]] = {}
    passes = {source: oracle.ordinals(mixture, source, of) for source, of in documents.items()}
    for s in delivered.segments():
        piece = oracle.piece_tokens(mixture, s[SOURCE])
        place = (s[ID], s[EPOCH], s[OFFSET] // piece if piece else 0)
        assert ordinals.setdefault((s[SOURCE], s[ORDINAL]), place) == place, f"two documents of one ordinal: {s}"
        assert s[ORDINAL] // passes[s[SOURCE]] == s[EPOCH], f"{s} of {passes[s[SOURCE]]} ordinals"
    assert len(ordinals) == len({(source, *document) for (source, _), document in ordinals.items()}), (
        "one document came under two ordinals"
    )
    last = {source: max(n for of, n in ordinals if of == source) for source, _ in ordinals}
    for source, of in documents.items():
        for name, tokens in of.items():
            for epoch in range(epochs):
                covered = 0
                for offset, length in sorted(seen.pop((source, name, epoch), [])):
                    assert offset == covered, (
                        f"{source} {name} in epoch {epoch}: token {covered} is missing or doubled "
                        f"(the next piece begins at {offset})"
                    )
                    covered += length
                if source in left and (covered == 0 or ordinals[source, last[source]][:2] == (name, epoch)):
                    continue
                assert covered == len(tokens) or covered == 0 and source in refusing, (
                    f"{source} {name} in epoch {epoch}: {covered} of {len(tokens)} tokens came"
                )
    assert not seen, f"delivered, but in no document of epochs 0 … {epochs - 1}: {list(seen)[:5]}"


def waited(s: Segment, whole: int, earlier: Iterable[int], length: int) -> bool:
    """Whether a segment fits, and ends where a step of an earlier stage cuts or ends the document. Such pieces may have
    waited, and neighbours that waited are joined."""
    end = s[OFFSET] + s[LENGTH]
    return s[LENGTH] <= length and any(end % cut == 0 or end == whole for cut in earlier)


def check_cuts(delivered: Delivered, documents: Mapping[str, Documents], mixture: Mapping[str, Any]) -> None:
    """Checks the cuts of documents. A document longer than the step's sequence becomes whole sequences and a rest.
    `concat` cuts only at row ends. Every step but the last has a full batch of sequences. `pad` puts one segment into
    each sequence."""
    now = by_step(delivered, mixture)
    ranks = len(delivered.ranks)
    for step, segments in delivered.steps().items():
        length = now[step]["sequence_length"]
        for s in segments:
            whole = len(documents[s[SOURCE]][s[ID]])
            if mixture.get("packing") == "concat":
                piece, end = oracle.piece_tokens(mixture, s[SOURCE]), s[OFFSET] + s[LENGTH]
                assert end == whole or s[START] + s[LENGTH] == length or piece and end % piece == 0, (
                    f"{s} of {whole} tokens is cut before its row ends"
                )
                continue
            if mixture.get("packing") == "bucketed":
                assert s[LENGTH] == min(mixture["sequence_length"], whole - s[OFFSET]), f"{s} of {whole} tokens"
                continue
            if "stages" in mixture and waited(s, whole, {now[t]["sequence_length"] for t in range(step)}, length):
                continue
            assert s[LENGTH] == min(length, whole - s[OFFSET]) and ("stages" in mixture or s[OFFSET] % length == 0), (
                f"{s} of {whole} tokens"
            )
        batches = [b for rank in delivered.ranks for b in rank if b.step == step]
        if step < max(now):
            assert len(batches) * now[step]["micro_batch_size"] == now[step]["global_batch_size"], (
                f"step {step} has {len(batches)} microbatches on {ranks} ranks"
            )
        if now[step]["packing"] == "pad" and mixture.get("layout") != "varlen":
            assert all(len({s[ROW] for s in b.segments}) == len(b.segments) for b in batches), (
                f"step {step}: two segments share a sequence"
            )


def pieces(segments: Sequence[Segment]) -> Dict[Tuple[str, str, int], List[Tuple[int, int]]]:
    """(offset, length) of the pieces of each (source, id, epoch)."""
    out: Dict[Tuple[str, str, int], List[Tuple[int, int]]] = collections.defaultdict(list)
    for s in segments:
        out[s[SOURCE], s[ID], s[EPOCH]].append((s[OFFSET], s[LENGTH]))
    return out


def charges(segments: Sequence[Segment], mixture: Mapping[str, Any]) -> Dict[str, int]:
    """The charge of each source for the segments, in the unit of the weights: tokens, or samples. A sample is a
    document, or a piece of one, and counts at its first segment."""
    samples = mixture["mixture"].get("unit", "tokens") == "samples"
    out: Dict[str, int] = collections.Counter()
    for s in segments:
        piece = oracle.piece_tokens(mixture, s[SOURCE])
        begins = s[OFFSET] == 0 or piece > 0 and s[OFFSET] % piece == 0
        out[s[SOURCE]] += int(begins) if samples else s[LENGTH]
    return out


def weights_at(mixture: Mapping[str, Any], step: int, tokens: int) -> Dict[str, Fraction]:
    """The mixture at a step, given the tokens placed before it. The shares add up to 1."""
    block = mixture["mixture"]
    now = {name: Fraction(str(w)) for name, w in block.get("weights", {}).items()}
    for milestone in block.get("schedule", []):
        new = _normal({name: Fraction(str(w)) for name, w in milestone["weights"].items()})
        at, start = (step, milestone["from_step"]) if "from_step" in milestone else (tokens, milestone["from_tokens"])
        over = milestone.get("over_steps", milestone.get("over_tokens", 0))
        if at < start:
            break
        if milestone.get("ramp", "none") == "linear" and at < start + over:
            part = Fraction(at - start, over)
            now = {name: now[name] + (new[name] - now[name]) * part for name in new}
        else:
            now = new
    return _normal(now)


def _normal(weights: Mapping[str, Fraction]) -> Dict[str, Fraction]:
    total = sum(weights.values())
    return {name: w / total for name, w in weights.items()}


def deviations(
    delivered: Delivered, mixture: Mapping[str, Any], until: Optional[int] = None
) -> List[Tuple[int, Fraction, str]]:
    """For each step's end up to `until`: the largest |delivered - target| of any source since step 0, in the unit of
    the weights."""
    placed: Dict[str, int] = collections.Counter()
    target: Dict[str, Fraction] = collections.defaultdict(Fraction)
    tokens, out = 0, []
    for step, segments in delivered.steps().items():
        if until is not None and step >= until:
            break
        now = charges(segments, mixture)
        for name, weight in weights_at(mixture, step, tokens).items():
            placed[name] += now.get(name, 0)
            target[name] += weight * sum(now.values())
        tokens += sum(s[LENGTH] for s in segments)
        worst = max(target, key=lambda name: abs(placed[name] - target[name]))
        out.append((step, abs(placed[worst] - target[worst]), worst))
    return out


def exhausted_at(delivered: Delivered, documents: Mapping[str, Documents], epochs: int) -> Dict[str, int]:
    """The step of the last token of each exhausted source."""
    left = {source: epochs * sum(map(len, of.values())) for source, of in documents.items()}
    out: Dict[str, int] = {}
    for step, segments in delivered.steps().items():
        for s in segments:
            left[s[SOURCE]] -= s[LENGTH]
            if left[s[SOURCE]] == 0:
                out[s[SOURCE]] = step
    return out
