"""Measurements of a trainer: losses by source, and times of microbatches. Sending never waits. A report may be lost."""

from __future__ import annotations

import json
import math
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

MOST = 500  # entries of one report


class Reports:
    """Gathers measurements and calls `send(step, json)` with them."""

    def __init__(self, send: Callable[[int, bytes], None]) -> None:
        self._send = send
        self._times: Optional[Tuple[int, List[Tuple[int, float]]]] = None  # of the newest step, not sent yet

    def losses(self, step: int, losses: Mapping[str, Tuple[float, float]]) -> None:
        items = [
            (str(s), [float(total), float(n)]) for s, (total, n) in losses.items() if math.isfinite(total) and n > 0
        ]
        for first in range(0, max(len(items), 1), MOST):
            self._report(step, {"losses": dict(items[first : first + MOST])})

    def time(self, step: int, microbatch: int, seconds: float) -> None:
        if not math.isfinite(seconds) or seconds <= 0:
            return
        if self._times and self._times[0] != step:
            self._report(self._times[0], {"times": self._times[1]})
            self._times = None
        if self._times is None:
            self._times = (int(step), [])
        if len(self._times[1]) < MOST:
            self._times[1].append((int(microbatch), float(seconds)))

    def _report(self, step: int, body: Dict[str, Any]) -> None:
        self._send(int(step), json.dumps(body, separators=(",", ":")).encode())
