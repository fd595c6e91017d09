"""The model in NumPy, with derivatives written by hand."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

import numpy as np

from model import IGNORED, Shape

Array = np.ndarray
Kept = Dict[str, Any]  # values of the forward pass that the backward pass needs


class Model:
    """Weights and the sum of gradients, both flat. Only `accumulate` looks at batches."""

    def __init__(self, shape: Shape, weights: Array, gradient: Array) -> None:
        self.shape = shape
        self._w = shape.views(weights)
        self._g = shape.views(gradient)

    def accumulate(self, batch: Mapping[str, Array]) -> Tuple[float, int]:
        """Adds the gradient of the batch's summed loss. Returns the loss in nats and its number of labels."""
        w, g = self._w, self._g
        tokens, positions, segments = batch["tokens"], batch["position_ids"], batch["segment_ids"]
        learnt = np.flatnonzero(batch["loss_mask"])
        if learnt.size == 0:
            return 0.0, 0
        labels = batch["labels"].ravel()[learnt]
        assert not (labels == IGNORED).any()
        hidden = np.ascontiguousarray(attention_mask(segments))

        x = w["tokens"][tokens] + w["positions"][positions]
        kept = []
        for b in range(self.shape.blocks):
            x, k = self._block(b, x, hidden)
            kept.append(k)
        normed, norm = _norm(x, w["norm"])
        top = normed.reshape(-1, self.shape.width)[learnt]  # leaves padding out of the most expensive product

        logits = top @ w["head"]
        logits -= logits.max(axis=1, keepdims=True)
        at = np.arange(len(labels))
        right = logits[at, labels].copy()
        np.exp(logits, out=logits)
        total = logits.sum(axis=1)
        loss = float((np.log(total) - right).sum())

        logits /= total[:, None]  # now the derivative
        logits[at, labels] -= 1
        g["head"] += top.T @ logits
        d_normed = np.zeros((tokens.size, self.shape.width), x.dtype)
        d_normed[learnt] = logits @ w["head"].T
        dx = _norm_back(d_normed.reshape(x.shape), w["norm"], norm, g["norm"])
        for b in reversed(range(self.shape.blocks)):
            dx = self._block_back(b, dx, kept[b])
        _scatter_add(g["tokens"], tokens, dx)
        _scatter_add(g["positions"], positions, dx)
        return loss, len(labels)

    def _block(self, b: int, x: Array, hidden: Array) -> Tuple[Array, Kept]:
        w, heads = self._w, self.shape.heads
        rows, columns, width = x.shape
        k: Kept = {}
        k["n1"], k["norm1"] = _norm(x, w[f"{b}.norm1"])
        qkv = (k["n1"] @ w[f"{b}.qkv"]).reshape(rows, columns, 3, heads, width // heads)
        k["q"], k["k"], k["v"] = (
            np.ascontiguousarray(qkv[:, :, i].transpose(0, 2, 1, 3)) for i in range(3)
        )  # [rows, heads, columns, ·]
        scores = k["q"] @ k["k"].swapaxes(2, 3)
        scores *= np.float32((width // heads) ** -0.5)
        np.copyto(scores, -1e30, where=hidden[:, None])
        scores -= scores.max(axis=3, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=3, keepdims=True)
        k["weights"] = scores
        k["mixed"] = (scores @ k["v"]).transpose(0, 2, 1, 3).reshape(x.shape)
        x = x + k["mixed"] @ w[f"{b}.out"]
        k["n2"], k["norm2"] = _norm(x, w[f"{b}.norm2"])
        k["up"] = np.maximum(k["n2"] @ w[f"{b}.up"], 0)
        return x + k["up"] @ w[f"{b}.down"], k

    def _block_back(self, b: int, dx: Array, k: Kept) -> Array:
        w, g, heads = self._w, self._g, self.shape.heads
        rows, columns, width = dx.shape
        d_up = dx @ w[f"{b}.down"].T
        d_up *= k["up"] > 0
        g[f"{b}.down"] += _outer(k["up"], dx)
        g[f"{b}.up"] += _outer(k["n2"], d_up)
        dx = dx + _norm_back(d_up @ w[f"{b}.up"].T, w[f"{b}.norm2"], k["norm2"], g[f"{b}.norm2"])

        g[f"{b}.out"] += _outer(k["mixed"], dx)
        d_mixed = (dx @ w[f"{b}.out"].T).reshape(rows, columns, heads, -1).transpose(0, 2, 1, 3)
        p = k["weights"]
        d_scores = d_mixed @ k["v"].swapaxes(2, 3)
        d_scores -= (d_scores * p).sum(axis=3, keepdims=True)
        d_scores *= p
        d_scores *= np.float32((width // heads) ** -0.5)
        d_qkv = np.empty((rows, columns, 3, heads, width // heads), dx.dtype)
        d_qkv[:, :, 0] = (d_scores @ k["k"]).transpose(0, 2, 1, 3)
        d_qkv[:, :, 1] = (d_scores.swapaxes(2, 3) @ k["q"]).transpose(0, 2, 1, 3)
        d_qkv[:, :, 2] = (p.swapaxes(2, 3) @ d_mixed).transpose(0, 2, 1, 3)
        d_qkv = d_qkv.reshape(rows, columns, 3 * width)
        g[f"{b}.qkv"] += _outer(k["n1"], d_qkv)
        return dx + _norm_back(d_qkv @ w[f"{b}.qkv"].T, w[f"{b}.norm1"], k["norm1"], g[f"{b}.norm1"])


def attention_mask(segments: Array) -> Array:
    """Returns [rows, columns, columns]: true if the column may not attend to a later one or to another segment."""
    columns = segments.shape[1]
    later = np.triu(np.ones((columns, columns), bool), 1)
    return later | (segments[:, :, None] != segments[:, None, :])


def _norm(x: Array, gain: Array) -> Tuple[Array, Tuple[Array, Array]]:
    """Root mean square norm (Zhang and Sennrich)."""
    r = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-6))
    unit = x * r
    return unit * gain, (unit, r)


def _norm_back(dy: Array, gain: Array, kept: Tuple[Array, Array], d_gain: Array) -> Array:
    unit, r = kept
    d_gain += (dy * unit).reshape(-1, unit.shape[-1]).sum(axis=0)
    d = dy * gain
    return r * (d - unit * (d * unit).mean(axis=-1, keepdims=True))


def _outer(x: Array, dy: Array) -> Array:
    """Returns the gradient of W in x @ W, summed over all axes but the last."""
    return x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])


def _scatter_add(table: Array, at: Array, rows: Array) -> None:
    """Computes table[at] += rows. `at` may have a line of the table more than once."""
    order = np.argsort(at, axis=None, kind="stable")
    lines, starts = np.unique(at.ravel()[order], return_index=True)
    table[lines] += np.add.reduceat(rows.reshape(-1, rows.shape[-1])[order], starts, axis=0)
