"""The place of this process among the GPUs of its host. The sidecar watches the GPU; no batch depends on it."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Optional


def seat() -> Dict[str, Any]:
    """Return CUDA_VISIBLE_DEVICES, LOCAL_RANK and the current device among the visible ones; None for each that is
    unknown. The current device is known if torch uses CUDA already."""
    return {"visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "local_rank": _local_rank(), "device": _device()}


def _local_rank() -> Optional[int]:
    said = os.environ.get("LOCAL_RANK", "")
    return int(said) if said.isdecimal() else None


def _device() -> Optional[int]:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return int(cuda.current_device()) if cuda is not None and cuda.is_initialized() else None
    except Exception:  # a broken CUDA is the trainer's to report
        return None
