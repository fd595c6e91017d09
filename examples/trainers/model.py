"""The model of the examples: a small causal transformer for packed rows, in double precision.

In double precision, another number of ranks changes a loss by rounding alone, far below the effect of one microbatch
that is lost or repeated."""

from __future__ import annotations

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, LENGTH, WIDTH, HEADS, BLOCKS = 257, 64, 32, 2, 2  # the byte values and an end of text
IGNORED = -100


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """Logits of each next token. A token sees the earlier tokens of its own segment."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, position_ids: Tensor, segment_ids: Optional[Tensor] = None) -> Tensor:
        x = self.tokens(tokens) + self.positions(position_ids)
        length = tokens.shape[1]
        seen = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()[None, None]
        if segment_ids is not None:
            seen = seen & (segment_ids[:, None, :, None] == segment_ids[:, None, None, :])
        for block in self.blocks:
            x = block(x, seen)
        return self.head(self.norm(x))


def make_model() -> Model:
    """Returns the model with the same first weights in every process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return Model().double()


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def loss_sum(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the loss summed over the labels. `labels` are shifted already, as Millrace gives them."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
