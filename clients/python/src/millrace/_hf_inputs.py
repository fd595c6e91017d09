"""The arguments of a Hugging Face model's forward(), from a batch."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Dict, FrozenSet, Optional

import torch
from transformers.utils.generic import is_flash_attention_requested

from ._batch import Batch
from ._errors import MisuseError


def model_inputs(batch: Batch, model: Any) -> Dict[str, Any]:
    """Return the batch's tensors that the model accepts, integers as int64.

    The models find the segments from `position_ids`, and no token sees another segment. With FlashAttention they do so
    for a single row alone, so that they get the bounds of the segments of all rows. Raises MisuseError if the loader
    has other names than connect(keys="hf") gives."""
    if "input_ids" not in batch or "shift_labels" not in batch:
        raise MisuseError(
            f"the batch has the tensors {', '.join(batch)}, and a Hugging Face model needs input_ids, position_ids, "
            'labels and shift_labels: call millrace.connect(..., keys="hf")'
        )
    tensors: Dict[str, Any] = {name: _as_torch(tensor) for name, tensor in batch.items()}
    config = getattr(model, "config", None)
    if config is not None and is_flash_attention_requested(config):
        for name, value in batch.flash_attention("hf").items():
            tensors[name] = value if isinstance(value, int) else torch.as_tensor(value)
    accepted = _parameters(type(model).forward)
    return tensors if accepted is None else {name: t for name, t in tensors.items() if name in accepted}


@functools.lru_cache(maxsize=None)
def _parameters(forward: Callable[..., Any]) -> Optional[FrozenSet[str]]:
    """Return the names that a forward() accepts, and `labels`, which a compute_loss_func gets. None: it accepts all."""
    parameters = inspect.signature(forward).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return None
    return frozenset(parameters) | {"labels"}


def _as_torch(tensor: Any) -> torch.Tensor:
    out = torch.as_tensor(tensor)
    return out.long() if out.dtype is torch.int32 else out  # a loss takes int64 labels alone
