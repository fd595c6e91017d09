"""The model of the JAX example: a small causal transformer for packed rows, in double precision, as in model.py."""

from __future__ import annotations

from typing import Any, Dict, Mapping

import jax
import jax.numpy as jnp

VOCABULARY, LENGTH, WIDTH, BLOCKS = 257, 64, 32, 2

Parameters = Dict[str, Any]


def make_parameters() -> Parameters:
    """Returns the same first weights in every process."""
    keys = iter(jax.random.split(jax.random.key(0), 4 + 4 * BLOCKS))

    def draw(*shape: int) -> jax.Array:
        return jax.random.normal(next(keys), shape, jnp.float64) * shape[0] ** -0.5

    blocks = [
        {"qkv": draw(WIDTH, 3 * WIDTH), "out": draw(WIDTH, WIDTH), "up": draw(WIDTH, 4 * WIDTH),
         "down": draw(4 * WIDTH, WIDTH)}
        for _ in range(BLOCKS)
    ]  # fmt: skip
    return {
        "tokens": draw(VOCABULARY, WIDTH), "positions": draw(LENGTH, WIDTH), "blocks": blocks,
        "head": draw(WIDTH, VOCABULARY),
    }  # fmt: skip


def row_losses(p: Parameters, batch: Mapping[str, jax.Array]) -> jax.Array:
    """Returns the summed loss of each row, [rows], of a batch with the names of MaxText.

    A token sees the earlier tokens of its own segment."""
    inputs, ids = batch["inputs"], batch["inputs_segmentation"]
    x = p["tokens"][inputs] + p["positions"][batch["inputs_position"]]
    length = inputs.shape[1]
    seen = jnp.tril(jnp.ones((length, length), bool)) & (ids[:, :, None] == ids[:, None, :])
    for block in p["blocks"]:
        q, k, v = jnp.split(_norm(x) @ block["qkv"], 3, axis=-1)
        scores = jnp.where(seen, q @ k.swapaxes(1, 2) / WIDTH**0.5, -1e9)
        x = x + jax.nn.softmax(scores) @ v @ block["out"]
        x = x + jax.nn.gelu(_norm(x) @ block["up"]) @ block["down"]
    predictions = jax.nn.log_softmax(_norm(x) @ p["head"])
    chosen = jnp.take_along_axis(predictions, batch["targets"][..., None], axis=-1)[..., 0]
    return -(chosen * (batch["targets_segmentation"] != 0)).sum(axis=1)


def _norm(x: jax.Array) -> jax.Array:
    return x / jnp.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)
