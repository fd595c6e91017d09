"""Records which microbatches a trainer has trained on. The tests judge the examples by these records.

A trainer needs none of this. The examples write it so that a test can kill them at any moment and still know the
microbatches behind the last checkpoint."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Dict, List

import millrace


class Record:
    """Appends one JSON line for each trained microbatch to OUT/records/<life>-<rank>.jsonl.

    The tests set EXAMPLE_LIFE, the number of the start; EXAMPLE_DIE_AT, "step.microbatch" at which rank 0 kills
    itself with SIGKILL; and EXAMPLE_PACE, the seconds that each step takes at least."""

    def __init__(self, out: str, rank: int) -> None:
        directory = Path(out, "records")
        directory.mkdir(parents=True, exist_ok=True)
        life = os.environ.get("EXAMPLE_LIFE", "0")
        self._file = open(directory / f"{life}-{rank}.jsonl", "a", encoding="utf-8")
        self._rank = rank
        self._die_at = os.environ.get("EXAMPLE_DIE_AT", "")
        self._pace = float(os.environ.get("EXAMPLE_PACE", "0"))
        self._pending: List[Dict[str, Any]] = []

    def microbatch(self, batch: millrace.Batch, loss: float) -> None:
        """Notes a microbatch after its forward and backward pass. `loss` is its summed loss."""
        self._pending.append(
            {
                "step": batch.step,
                "microbatch": batch.microbatch,
                "num_microbatches": batch.num_microbatches,
                "rank": self._rank,
                "digest": batch.digest,
                "segments": [list(s) for s in batch.segments],
                "loss": loss,
                "step_loss_tokens": batch.step_loss_tokens,
            }
        )
        if self._rank == 0 and self._die_at == f"{batch.step}.{batch.microbatch}":
            os.kill(os.getpid(), signal.SIGKILL)

    def step(self) -> None:
        """Writes the noted microbatches. Call it when the optimizer step that they belong to is done."""
        self._file.write("".join(json.dumps(line) + "\n" for line in self._pending))
        self._file.flush()
        self._pending.clear()
        time.sleep(self._pace)
