"""The tensors of a batch, and their places in its memory."""

from __future__ import annotations

import math
import sys
from typing import Any, Dict, Tuple

import numpy as np

from . import _wire as wire


class Layout:
    """The tensors of a batch: a parsed tensor table. The steps of a stage have equal tables."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.count = len(text) // wire.TENSOR.size
        # by name: shape, dtype, and offset in the frame
        self.table: Dict[str, Tuple[Tuple[int, ...], np.dtype[Any], int]] = {}
        ends = [0]
        for name, dtype, dims, _, *rest in wire.TENSOR.iter_unpack(text):
            kind = np.dtype(dtype.rstrip(b"\0").decode())
            self.table[name.rstrip(b"\0").decode()] = (tuple(rest[:dims]), kind, rest[4])
            ends.append(rest[4] + rest[5])
        self.shapes = {name: (shape, dtype) for name, (shape, dtype, _) in self.table.items()}
        places = [at for _, _, at in self.table.values()]
        self.first = next(iter(places), 0)  # offset of the first tensor of the table
        self.begin, self.end = min(places, default=0), max(ends)  # of the bytes that hold all tensors

    def view(self, name: str, memory: Any) -> Any:
        """Return a tensor as a view of the bytes from `begin` to `end`, a torch tensor (uint8). Raises KeyError for
        another name."""
        shape, dtype, at = self.table[name]
        at -= self.begin
        part = memory[at : at + math.prod(shape) * dtype.itemsize]
        return part.view(getattr(sys.modules["torch"], dtype.name)).view(shape)
