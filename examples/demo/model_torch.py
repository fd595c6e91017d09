"""The model in PyTorch: the same weights and gradients, with derivatives by autograd."""

from __future__ import annotations

from typing import Any, Mapping, Tuple

import numpy as np
import torch
import torch.nn.functional as F

from model import IGNORED, Shape


class Model:
    """As model_numpy.Model. The parameters are tensors over the memory of the flat vectors."""

    def __init__(self, shape: Shape, weights: "np.ndarray", gradient: "np.ndarray") -> None:
        torch.set_num_threads(1)  # a rank has one core
        self.shape = shape
        self._w = {name: torch.from_numpy(view).requires_grad_() for name, view in shape.views(weights).items()}
        for name, view in shape.views(gradient).items():
            self._w[name].grad = torch.from_numpy(view)  # backward() adds to it in place

    def accumulate(self, batch: Mapping[str, Any]) -> Tuple[float, int]:
        """Adds the gradient of the batch's summed loss. Returns the loss in nats and its number of labels."""
        labels = torch.as_tensor(batch["labels"]).flatten()
        count = int(torch.as_tensor(batch["loss_mask"]).sum())
        if count == 0:
            return 0.0, 0
        logits = self._forward(*(torch.as_tensor(batch[n]) for n in ("tokens", "position_ids", "segment_ids")))
        loss = F.cross_entropy(logits.flatten(0, 1), labels, ignore_index=IGNORED, reduction="sum")
        loss.backward()
        return float(loss.detach()), count

    def _forward(self, tokens: "torch.Tensor", positions: "torch.Tensor", segments: "torch.Tensor") -> "torch.Tensor":
        w, heads = self._w, self.shape.heads
        causal = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        seen = (causal & (segments[:, :, None] == segments[:, None, :]))[:, None]  # a segment attends to itself only
        x = w["tokens"][tokens] + w["positions"][positions]
        for b in range(self.shape.blocks):
            qkv = _norm(x, w[f"{b}.norm1"]) @ w[f"{b}.qkv"]
            q, k, v = (t.unflatten(2, (heads, -1)).transpose(1, 2) for t in qkv.chunk(3, dim=2))
            scores = (q @ k.transpose(2, 3) * q.shape[3] ** -0.5).masked_fill(~seen, -1e30)
            x = x + (scores.softmax(dim=3) @ v).transpose(1, 2).flatten(2) @ w[f"{b}.out"]
            x = x + F.relu(_norm(x, w[f"{b}.norm2"]) @ w[f"{b}.up"]) @ w[f"{b}.down"]
        return _norm(x, w["norm"]) @ w["head"]


def _norm(x: "torch.Tensor", gain: "torch.Tensor") -> "torch.Tensor":
    """Root mean square norm (Zhang and Sennrich)."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * gain
