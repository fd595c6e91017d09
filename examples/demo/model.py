"""The model of both variants: a small GPT. Its weights and its gradients are one flat vector of float32 each."""

from __future__ import annotations

import dataclasses
from typing import Dict, Tuple

import numpy as np

IGNORED = -100  # the label of tokens without loss


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of the model. `context` is the longest segment."""

    vocabulary: int
    context: int
    width: int = 96
    heads: int = 4
    blocks: int = 1

    def parameters(self) -> Dict[str, Tuple[int, ...]]:
        """Returns the shapes of the parameters by name, in the order of the flat vector."""
        w = self.width
        out: Dict[str, Tuple[int, ...]] = {"tokens": (self.vocabulary, w), "positions": (self.context, w)}
        for b in range(self.blocks):
            out.update({f"{b}.norm1": (w,), f"{b}.qkv": (w, 3 * w), f"{b}.out": (w, w)})
            out.update({f"{b}.norm2": (w,), f"{b}.up": (w, 4 * w), f"{b}.down": (4 * w, w)})
        out.update({"norm": (w,), "head": (w, self.vocabulary)})
        return out

    def size(self) -> int:
        """Returns the length of the flat vector."""
        return sum(int(np.prod(s)) for s in self.parameters().values())

    def views(self, flat: "np.ndarray") -> Dict[str, "np.ndarray"]:
        """Returns the parameters as views of the flat vector."""
        out, at = {}, 0
        for name, shape in self.parameters().items():
            n = int(np.prod(shape))
            out[name] = flat[at : at + n].reshape(shape)
            at += n
        return out

    def first_weights(self, seed: int = 0) -> "np.ndarray":
        """Returns the initial weights."""
        rng = np.random.default_rng(seed)
        flat = np.zeros(self.size(), np.float32)
        for name, view in self.views(flat).items():
            if "norm" in name:
                view[:] = 1
            elif name in ("tokens", "positions"):
                view[:] = rng.standard_normal(view.shape) * (1 if name == "tokens" else 0.1)
            else:
                view[:] = rng.standard_normal(view.shape) / np.sqrt(view.shape[0]) * (0.1 if name == "head" else 1)
        return flat


class Adam:
    """Kingma and Ba, "Adam: A Method for Stochastic Optimization", on the flat vector."""

    def __init__(self, size: int, rate: float) -> None:
        self.rate = rate
        self.steps = 0
        self.mean = np.zeros(size, np.float32)
        self.square = np.zeros(size, np.float32)

    def update(self, weights: "np.ndarray", gradient: "np.ndarray", scale: float) -> None:
        """Changes the weights in place. `scale` multiplies the learning rate."""
        self.steps += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.02 * (gradient * gradient - self.square)
        rate = np.float32(self.rate * scale * np.sqrt(1 - 0.98**self.steps) / (1 - 0.9**self.steps))
        weights -= rate * self.mean / (np.sqrt(self.square) + np.float32(1e-8))
