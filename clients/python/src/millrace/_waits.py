"""The long waits of a trainer for its batches."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ._patience import Cause, Patience

LONG = 1.0  # seconds from which on a wait is counted as long


class Waits:
    """The notable waits of `next`. The first batch of a loader counts apart: the run begins."""

    def __init__(self) -> None:
        self.first: Optional[float] = None
        self.longest = 0.0
        self.long = 0
        self.cause: Optional[Cause] = None  # of the newest wait that the sidecar explained

    def add(self, seconds: float, patience: Optional[Patience]) -> None:
        if patience is not None and patience.cause is not None:
            self.cause = patience.cause
        if self.first is None:
            self.first = seconds
            return
        if seconds > LONG:
            self.long += 1
        if seconds > self.longest:
            self.longest = seconds

    def to_dict(self) -> Dict[str, Any]:
        return {
            "first_batch_seconds": self.first or 0.0,
            "longest_wait_seconds": self.longest,
            "long_waits": self.long,
            "last_cause": self.cause._asdict() if self.cause is not None else None,
        }
