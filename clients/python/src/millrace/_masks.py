"""Masks of attention: a token attends to itself and to the earlier tokens of its own segment."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, Tuple

from ._arrays import count_up, namespace

Get = Callable[[str], Any]

# How the arguments are named: the bounds of queries and of keys, then the longest of each.
FLASH_NAMES: Dict[str, Tuple[str, str, str, str]] = {
    "flash_attn": ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
    "hf": ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"),
}


def find_segments(get: Get) -> Any:
    """Return the number of each token's segment, [rows, length]. A varlen batch is one row."""
    ids = _find(get, "segment_ids")
    if ids is not None:
        return ids
    bounds = _get_bounds(get)
    xp = namespace(bounds)
    columns = count_up(get("position_ids").shape[0], bounds)
    return xp.searchsorted(bounds, columns, side="right")[None]


def attention_mask(get: Get) -> Any:
    """Return a mask for scaled_dot_product_attention: bool, [rows, 1, length, length], true if a query (third index)
    attends to a key (fourth index). Padding attends to earlier padding, so that no row is empty."""
    ids = find_segments(get)
    xp = namespace(ids)
    return xp.tril(ids[:, None, :, None] == ids[:, None, None, :])


def block_mask(get: Get, size: int) -> Any:
    """Return torch's BlockMask for flex_attention, with blocks of size × size. It is equal to that of
    create_block_mask, but is computed from the bounds of segments, without a mask of length × length."""
    torch = importlib.import_module("torch")
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    ids = torch.as_tensor(find_segments(get))
    (_, length), columns = ids.shape, torch.arange(ids.shape[1], device=ids.device)
    blocks = torch.arange(-(-length // size), device=ids.device)
    begins = torch.ones_like(ids, dtype=torch.bool)
    begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
    start = torch.where(begins, columns, 0).cummax(-1).values  # the first column of each token's segment
    # Segments do not interleave, so the keys of a block of queries are one run: from the first query's segment start
    # to the last query. A block of keys is full if it lies in the last query's segment and before the block.
    last = torch.clamp(blocks * size + size - 1, max=length - 1)
    query, key = blocks[:, None], blocks[None, :]
    needed = (key >= (start[:, ::size] // size)[..., None]) & (key <= query)
    full = (key * size >= start[:, last][..., None]) & (key < query) & (query < length // size)

    def attends(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (ids[b, q] == ids[b, k]) & (q >= k)

    return flex.BlockMask.from_kv_blocks(
        *_list_blocks(needed & ~full), *_list_blocks(full), BLOCK_SIZE=size, mask_mod=attends,
        seq_lengths=(length, length),
    )  # fmt: skip


def _list_blocks(wanted: Any) -> Tuple[Any, Any]:
    """Return the count of wanted blocks of keys for each block of queries, and all their numbers, wanted ones first."""
    wanted = wanted[:, None].int()  # one mask for all heads
    order = wanted.argsort(dim=-1, descending=True, stable=True)
    return wanted.sum(-1).int(), order.int().contiguous()


def flash_attention(get: Get, longest: int, names: str) -> Dict[str, Any]:
    """Return the arguments of a flash-attention function for variable lengths, under the names of `names`.

    Packed rows count as one row after the other, as `flatten(0, 1)` makes them."""
    if names not in FLASH_NAMES:
        raise ValueError(f"names={names!r}: want one of {', '.join(map(repr, FLASH_NAMES))}")
    ids = _find(get, "segment_ids")
    bounds = _get_bounds(get) if ids is None else _find_bounds(ids)
    return dict(zip(FLASH_NAMES[names], (bounds, bounds, longest, longest)))


def _find_bounds(ids: Any) -> Any:
    """Return the start of each segment of packed rows, and the end, as int32."""
    xp = namespace(ids)
    first = xp.ones_like(ids[:, :1])
    begins = xp.concatenate((first, ids[:, 1:] - ids[:, :-1]), -1).reshape(-1) != 0
    columns = count_up(begins.shape[0] + 1, ids)
    return columns[xp.concatenate((begins, xp.ones_like(begins[:1])))]


def _get_bounds(get: Get) -> Any:
    bounds = _find(get, "cu_seqlens")
    if bounds is None:
        raise AttributeError(
            "a mask needs the bounds of segments, and this batch has neither segment_ids nor cu_seqlens: make the mask "
            "of the batch that the loader gave, or of batch.to(device)"
        )
    return bounds


def _find(get: Get, name: str) -> Any:
    try:
        return get(name)
    except KeyError:
        return None
