"""Parts that the adapters for trainers' frameworks share."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Iterator, Optional

from ._batch import Batch
from ._loader import DataLoader


def read_state(batch: Batch) -> Callable[[], Dict[str, Any]]:
    """Return a function that returns the run's state after the batch. It keeps neither the tensors nor their frame."""
    return batch._known("state_dict").state.to_dict


def end_run(loader: DataLoader) -> None:
    """Commit the run's last step if the loader has returned its batches.

    A step counts as consumed when the trainer asks for the batch after it. A trainer that counts steps itself asks for
    none after its last one, and the run would wait for ever."""
    place = loader._stream.place
    if place is not None and place.last:
        next(loader, None)


class Evaluation:
    """An iterable over batches that are evaluated again and again. If they are those of a loader, each iteration begins
    at the first step of its stream."""

    def __init__(self, batches: Iterable[Any], convert: Optional[Callable[[Any], Any]] = None) -> None:
        self._batches = batches
        self._convert = convert

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self._batches, DataLoader):
            self._batches.load_state_dict({"start": "fresh"})
        for batch in self._batches:
            yield self._convert(batch) if self._convert else batch
