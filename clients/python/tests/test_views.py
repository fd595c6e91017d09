"""Batches under the names that models expect, and masks of attention."""

from __future__ import annotations

import concurrent.futures
import copy
import pickle

import numpy as np
import pytest

import millrace

STEPS = 4
SHAPE = ("--steps", str(STEPS), "--microbatches", "2", "--rows", "3", "--length", "64")
VARLEN = (*SHAPE, "--layout", "varlen")
NO_VARLEN = ("maxtext", VARLEN)
PRESETS = {
    "hf": {"input_ids", "position_ids", "labels", "shift_labels"},
    "torchtitan": {"input", "positions", "labels"},
    "megatron": {"tokens", "labels", "loss_mask", "position_ids"},
    "maxtext": {
        "inputs", "inputs_position", "inputs_segmentation", "targets", "targets_position", "targets_segmentation",
    },
}  # fmt: skip
AS_THEY_ARE = {
    "hf": {"input_ids": "tokens", "position_ids": "position_ids", "shift_labels": "labels"},
    "torchtitan": {"input": "tokens", "positions": "position_ids", "labels": "labels"},
    "megatron": {"tokens": "tokens", "loss_mask": "loss_mask", "position_ids": "position_ids"},
    "maxtext": {
        "inputs": "tokens", "inputs_position": "position_ids", "inputs_segmentation": "segment_ids",
        "targets_position": "position_ids",
    },
}  # fmt: skip




@pytest.fixture
def batches(house):
    """Returns pairs of batches: the loader's own, and those under `keys`."""

    def take(keys, *shape):
        house.start(*shape)
        plain = millrace.connect(house.path(), start="fresh")
        own = [pickle.loads(pickle.dumps(batch)) for batch in plain]
        plain.close()
        loader = millrace.connect(house.path(), start="fresh", keys=keys)
        assert len(own) == 2 * STEPS
        return zip(own, loader)

    return take


@pytest.mark.parametrize("keys, shape", [(k, s) for k in PRESETS for s in (SHAPE, VARLEN) if (k, s) != NO_VARLEN])
def test_presets(batches, keys, shape):
    varlen = shape is VARLEN
    for plain, batch in batches(keys, *shape):
        extra = {"cu_seqlens", "max_seqlen"} if varlen and keys == "megatron" else set()
        assert set(batch) == PRESETS[keys] | extra and len(batch) == len(set(batch))
        for new, old in AS_THEY_ARE[keys].items():
            want = plain[old][None] if varlen else plain[old]
            assert np.array_equal(batch[new], want) and batch[new].dtype == want.dtype
            assert batch[new].base is not None, "a copy"
        assert batch.digest == plain.digest and batch.segments == plain.segments
        assert batch.state_dict() == plain.state_dict() and batch.shapes == plain.shapes
        with pytest.raises(KeyError):
            batch["segment_ids"]


def test_labels_of_hugging_face(batches):
    """A model that shifts these labels gets the loader's labels, apart from the last column, which has no place. The
    loader's labels stand beside them."""
    lost = 0
    for plain, batch in batches("hf", *SHAPE):
        assert (batch["labels"][:, 0] == -100).all()
        assert np.array_equal(batch["labels"][:, 1:], plain["labels"][:, :-1])
        assert np.array_equal(batch["shift_labels"], plain["labels"])
        lost += int((plain["labels"][:, -1] != -100).sum())
    assert lost > 0, "the last column has labels in this run"


def test_labels_are_made_on_access(house):
    house.start(*SHAPE, "--frames", "3")
    loader = millrace.connect(house.path(), keys="hf")
    batch = next(loader)
    assert set(batch._made) == set()
    tokens, labels = batch["input_ids"], batch["labels"]
    assert set(batch._made) == {"input_ids", "labels"} and batch["labels"] is labels
    del batch, tokens
    assert loader.stats()["held_frames"] == 0, "computed labels hold no frame"


@pytest.mark.parametrize("shape", [SHAPE, VARLEN], ids=["packed", "varlen"])
def test_labels_of_megatron(batches, shape):
    """Each label is a token, and the loss mask says which count."""
    for plain, batch in batches("megatron", *shape):
        counts = plain["loss_mask"].astype(bool).reshape(batch["labels"].shape)
        assert (batch["labels"][~counts] == 0).all()
        assert np.array_equal(batch["labels"][counts], plain["labels"].reshape(counts.shape)[counts])
        assert batch["labels"].dtype == plain["labels"].dtype
        if shape is VARLEN:
            assert batch["cu_seqlens"].shape == (1, len(plain["cu_seqlens"])) and batch["max_seqlen"].shape == (1,)


def test_targets_of_maxtext(batches):
    """MaxText counts the targets with a segmentation other than 0."""
    for plain, batch in batches("maxtext", *SHAPE):
        counts = batch["targets_segmentation"] != 0
        assert np.array_equal(counts, plain["labels"] != -100) and (batch["targets"] >= 0).all()
        assert np.array_equal(batch["targets_segmentation"][counts], plain["segment_ids"][counts])


def test_own_names(batches):
    keys = {"x": "tokens", "y": "labels", "shifted": "unshifted_labels", "mask": "attention_mask"}
    for plain, batch in batches(keys, *SHAPE):
        assert list(batch) == list(keys) and batch.digest == plain.digest
        assert np.array_equal(batch["x"], plain["tokens"]) and np.array_equal(batch["mask"], plain.attention_mask())


@pytest.mark.parametrize("keys", ["hf", {"y": "labels"}, {"y": "unshifted_labels"}])
def test_copies_keep_the_names(batches, keys):
    for plain, batch in batches(keys, *SHAPE):
        for other in (
            copy.copy(batch),
            copy.deepcopy(batch),
            pickle.loads(pickle.dumps(batch)),
            type(batch)(batch),
            batch if keys == {"y": "unshifted_labels"} else type(batch)(dict(batch)),
        ):
            assert list(other) == list(batch) and all(np.array_equal(other[n], batch[n]) for n in batch)
            assert other.digest == plain.digest and other.state_dict() == plain.state_dict()
            assert np.array_equal(other.attention_mask(), plain.attention_mask())
            assert other.max_seqlen == plain.max_seqlen
        if keys == "hf":
            swapped = type(batch)(dict(batch, labels=batch["shift_labels"], shift_labels=batch["labels"]))
            assert np.array_equal(copy.copy(swapped)["labels"], plain["labels"]), "the tensors that were given"


def test_wrong_names(house):
    house.start(*VARLEN)
    for keys, error in (
        ("huggingface", "want None, one of 'hf', 'torchtitan', 'megatron', 'maxtext'"),
        (7, "keys=7"),
        ({"x": 3}, "mapping of new names"),
    ):
        with pytest.raises((ValueError, TypeError), match=error):
            millrace.connect(house.path(), keys=keys)
    for keys, error in (
        ({"x": "token"}, "no tensor 'token' for 'x'. It has .*cu_seqlens.* computes .*unshifted_labels"),
        ("maxtext", "needs `layout: packed`"),
        ({"s": "segment_ids"}, "needs `layout: packed`"),
    ):
        with pytest.raises(ValueError, match=error):
            next(millrace.connect(house.path(), keys=keys, start="fresh"))
    assert next(millrace.connect(house.path(), keys="hf", start="fresh")).step == 0, "the run goes on"


def test_a_rank_without_tensors(house, at_once):
    house.start(*SHAPE, "--ranks", "2", "--tp", "2", "--broadcast-tp")
    here, away = at_once(*(lambda r=r: next(millrace.connect(house.path(r), keys="hf")) for r in range(2)))
    assert len(here) == 4 and len(away) == 0 and away.step == 0 and away.shapes == here.shapes


def test_many_held_batches_are_found_again(house):
    """Copied batches, too, keep their metadata when a framework rebuilds them."""
    house.start(*SHAPE, "--frames", "3")
    with pytest.warns(RuntimeWarning, match="further ones are copied"):
        held = list(millrace.connect(house.path(), keys="torchtitan"))
    for batch in held:
        assert type(batch)(dict(batch)).digest == batch.digest
        assert type(batch)({"a": batch["input"]}).step == batch.step


# Attention.


def attends(batch):
    """The mask by the definition: over the segments of the batch, one after the other; padding sees itself."""
    rows, length = batch["tokens"].shape if batch["tokens"].ndim == 2 else (1, batch["tokens"].shape[0])
    mask = np.zeros((rows, 1, length, length), bool)
    for segment in batch.segments:
        for i in range(segment.length):
            at = segment.start + i
            mask[segment.row, 0, at, segment.start : at + 1] = True
    return mask


@pytest.mark.parametrize("shape", [SHAPE, VARLEN], ids=["packed", "varlen"])
def test_attention_mask(batches, shape):
    for plain, batch in batches("hf", *shape):
        mask, want = batch.attention_mask(), attends(plain)
        assert mask.dtype == bool and mask.shape == want.shape
        real = want.any(-1)[..., None]
        assert np.array_equal(mask & real, want) and mask.any(-1).all(), "no row is empty"


def test_flash_attention(batches):
    for plain, batch in batches("hf", *VARLEN):
        given = batch.flash_attention()
        assert list(given) == ["cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"]
        assert np.array_equal(given["cu_seqlens_q"], plain["cu_seqlens"]) and given["cu_seqlens_k"].dtype == np.int32
        assert type(given["max_seqlen_q"]) is int and given["max_seqlen_q"] == int(plain["max_seqlen"])
        assert list(batch.flash_attention("hf")) == ["cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"]
        with pytest.raises(ValueError, match="want one of 'flash_attn', 'hf'"):
            batch.flash_attention("flash")


def test_flash_attention_of_packed_rows(batches):
    """The rows one after the other: the bounds are those of the segments and of the padding behind them."""
    for plain, batch in batches(None, *SHAPE):
        bounds = batch.flash_attention()["cu_seqlens_q"]
        rows, length = plain["tokens"].shape
        want = {0, rows * length}
        for s in plain.segments:
            want |= {s.row * length, s.row * length + s.start, s.row * length + s.start + s.length}
        assert bounds.tolist() == sorted(want) and bounds.dtype == np.int32
        assert batch.max_seqlen == length


def test_masks_need_the_bounds_of_segments(batches):
    _, batch = next(batches("hf", *SHAPE))
    with pytest.raises(AttributeError, match="neither segment_ids nor cu_seqlens"):
        batch.with_tensors({"input_ids": batch["input_ids"]}).attention_mask()


@pytest.mark.parametrize("shape", [SHAPE, VARLEN], ids=["packed", "varlen"])
def test_a_stage_without_tokens(house, shape):
    """The middle of three stages has positions alone. Presets leave out what needs tokens, and attention needs none."""
    house.start(*shape, "--ranks", "3", "--pp", "3", "--positions")
    names = {"position_ids", "cu_seqlens", "max_seqlen"} if shape is VARLEN else {"position_ids", "segment_ids"}
    with_keys = {"megatron": names - {"segment_ids"}, "hf": {"position_ids"}, None: names}
    for keys, want in with_keys.items():
        loaders = [millrace.connect(house.path(r), start="fresh", keys=keys if r == 1 else None) for r in range(3)]
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            first, middle, last = pool.map(next, loaders)
        assert set(middle) == want and {"tokens", "labels"} <= set(first) & set(last)
        assert np.array_equal(middle["position_ids"].ravel(), first["position_ids"].ravel())
        assert middle.max_seqlen == first.max_seqlen and middle.loss_tokens == first.loss_tokens
        assert np.array_equal(middle.attention_mask(), first.attention_mask())
        for loader in loaders:
            loader.close()
