"""Refuse frameworks that would split, skip or block batches. Millrace has split the batches over the ranks already."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, NamedTuple, Optional, Tuple

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


_DCP = (
    "torch.distributed.checkpoint loads only the keys that a state has before it is loaded, and those of a loader "
    "change at its first batch. Give it loader.dcp_state() in place of the loader"
)

BATCH, STATE = "batch", "state"  # calls of the loader
HARMLESS = ""  # a verdict: this caller, and every one behind it, may make the call


class Framework(NamedTuple):
    """Callers of a loader that are known to use it wrongly, or rightly.

    `judge` gets the `self` of a stack frame of these modules, and returns None if it cannot tell, HARMLESS, or the
    reason of a refusal."""

    modules: Tuple[str, ...]  # prefixes of their names
    call: str  # BATCH: any frame of the stack counts; STATE: the caller itself
    judge: Callable[[Any], Optional[str]]


def refuse_misuse(call: str) -> None:
    """Raise MisuseError if a caller on the stack shares this rank's batches with other ranks or processes, or saves the
    state of a batch that it has only fetched, or would not find a state again.

    Accelerate's DataLoaderDispatcher reads on rank 0 alone. The other ranks then never join, and the run waits for
    ever. Its IterableDatasetShard skips the batches of other ranks, although this rank gets none of them.

    The stack decides refusals alone, never an answer. MILLRACE_CHECK=0 turns this off."""
    if os.environ.get("MILLRACE_CHECK") == "0":
        return
    if call == BATCH and _is_torch_worker():
        raise MisuseError(_WORKERS)
    frame: Any = sys._getframe(2)  # the caller of the loader's method, or further in
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        for known in FRAMEWORKS:
            if known.call == call and module.startswith(known.modules):
                verdict = known.judge(frame.f_locals.get("self"))
                if verdict == HARMLESS:
                    return
                if verdict is not None:
                    raise MisuseError(verdict)
        if call == STATE:
            return
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
        return f"Accelerate reads this loader on rank 0 alone and splits its batches (dispatch_batches). {_RIGHT_WAY}"
    if "IterableDatasetShard" in kinds:
        return f"Accelerate gives each rank every n-th batch of this loader only (IterableDatasetShard). {_RIGHT_WAY}"
    return None


def _looking_ahead(loop: Any) -> Optional[str]:
    """Return why a loop of Lightning may not read the loader. One that evaluates saves no state."""
    verdicts = {"_EvaluationLoop": HARMLESS, "_FitLoop": _LIGHTNING, "_TrainingEpochLoop": _LIGHTNING}
    return verdicts.get(type(loop).__name__)


# The first row that has a verdict decides.
FRAMEWORKS = (
    Framework(("accelerate.", "transformers."), BATCH, _sharing),
    Framework(("lightning.", "pytorch_lightning."), BATCH, _looking_ahead),
    Framework(("millrace.lightning",), BATCH, lambda _: HARMLESS),  # it knows which batches are trained
    Framework(("torch.distributed.checkpoint",), STATE, lambda _: _DCP),
)
