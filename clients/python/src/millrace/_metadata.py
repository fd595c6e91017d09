"""The metadata of a batch: its place in the run, the origin of its tokens, and the run's state after the batch."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ._segments import Segment, Slice, read_lineage
from ._state import State

Shapes = Mapping[str, Tuple[Tuple[int, ...], "np.dtype[Any]"]]


class Metadata:
    """The metadata of one microbatch. The loader's batch and all batches that a framework makes from it share one
    Metadata. It is immutable, apart from a cache of the segments."""

    __slots__ = (
        "step", "microbatch", "num_microbatches", "loss_tokens", "step_loss_tokens", "shapes", "broadcast_source",
        "max_seqlen", "state", "_lineage", "_read",
    )  # fmt: skip

    def __init__(
        self,
        *,
        step: int,
        microbatch: int,
        num_microbatches: int,
        loss_tokens: int,
        step_loss_tokens: Optional[int],  # None: this host does not know it
        shapes: Shapes,
        broadcast_source: Optional[int],
        max_seqlen: Optional[int],  # None: the layout has none
        state: State,
        lineage: Any,  # bytes, or a uint8 view of the frame, which keeps the frame
    ) -> None:
        self.step = step
        self.microbatch = microbatch
        self.num_microbatches = num_microbatches
        self.loss_tokens = loss_tokens
        self.step_loss_tokens = step_loss_tokens
        self.shapes = shapes
        self.broadcast_source = broadcast_source
        self.max_seqlen = max_seqlen
        self.state = state
        self._lineage = lineage
        self._read: Optional[Tuple[List[Segment], List[Slice]]] = None

    def lineage(self) -> Tuple[List[Segment], List[Slice]]:
        if self._read is None:
            self._read = read_lineage(bytes(self._lineage))
        return self._read

    def detach(self) -> "Metadata":
        """Return metadata without a view of the frame, so that the frame is released when the tensors are gone."""
        if isinstance(self._lineage, bytes):
            return self
        return Metadata(**dict(self._fields(), lineage=bytes(self._lineage)))

    def _fields(self) -> Dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__ if not name.startswith("_")}
        return dict(fields, lineage=self._lineage)

    def __reduce__(self) -> Any:
        fields = self.detach()._fields()
        return _restore, (dict(fields, shapes=dict(self.shapes), state=tuple(self.state)),)


def _restore(fields: Dict[str, Any]) -> Metadata:
    return Metadata(**dict(fields, state=State(*fields["state"])))
