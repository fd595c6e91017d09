"""Refuse frameworks that would split, skip or block batches. Millrace has split the batches over the ranks already."""

from __future__ import annotations

import sys
from typing import Any, Optional

from ._errors import MisuseError

_RIGHT_WAY = (
    "Millrace has split the batches over the ranks already: iterate the loader itself on every rank. For the Hugging "
    "Face Trainer use millrace.hf.Trainer(..., loader=loader). With Accelerate pass no torch DataLoader of it to "
    "`prepare()`, which leaves the loader itself as it is"
)
_WORKERS = (
    "a millrace loader cannot be read in a worker process of torch's DataLoader: it serves one process per rank and "
    "needs no workers. Iterate the loader itself, or use DataLoader(loader, batch_size=None, num_workers=0)"
)
_LIGHTNING = (
    "Lightning fetches one batch ahead of training, and its checkpoints would hold the loader's state after that "
    "batch: a resumed training would skip it. Give the Trainer datamodule=millrace.lightning.DataModule(loader)"
)


def refuse_misuse() -> None:
    """Raise MisuseError if a caller on the stack shares this rank's batches with other ranks or processes, or saves the
    state of a batch that it has only fetched.

    Accelerate's DataLoaderDispatcher reads on rank 0 alone. The other ranks then never join, and the run waits for
    ever. Its IterableDatasetShard skips the batches of other ranks, although this rank gets none of them."""
    if _is_torch_worker():
        raise MisuseError(_WORKERS)
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(("accelerate.", "transformers.")):
            culprit = _sharing(frame.f_locals.get("self"))
            if culprit is not None:
                raise MisuseError(culprit + _RIGHT_WAY)
        elif module.startswith(("lightning.", "pytorch_lightning.")):
            loop = type(frame.f_locals.get("self")).__name__
            if loop == "_EvaluationLoop":
                return  # it saves no state
            if loop in ("_FitLoop", "_TrainingEpochLoop"):
                raise MisuseError(_LIGHTNING)
        elif module == "millrace.lightning":
            return  # it knows which batches are trained
        frame = frame.f_back


def _is_torch_worker() -> bool:
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and worker.get_worker_info() is not None


def _sharing(reader: Any) -> Optional[str]:
    """Return the way in which an object of Accelerate or Transformers shares batches. Return None if it shares none."""
    kinds = {kind.__name__ for kind in type(reader).__mro__}
    ranks = getattr(reader, "num_processes", None) or getattr(getattr(reader, "state", None), "num_processes", None)
    if ranks == 1:
        return None
    if "DataLoaderDispatcher" in kinds:
        return "Accelerate reads this loader on rank 0 alone and splits its batches (dispatch_batches). "
    if "IterableDatasetShard" in kinds:
        return "Accelerate gives each rank every n-th batch of this loader only (IterableDatasetShard). "
    return None
