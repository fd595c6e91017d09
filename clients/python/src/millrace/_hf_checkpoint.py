"""The run's state in the checkpoint directories of the Hugging Face Trainer."""

from __future__ import annotations

import json
import logging
import os
import re
from typing import Any, Dict, Optional

from ._errors import StartError

log = logging.getLogger("millrace")

STATE = "millrace.json"
LAST_WRITTEN = "trainer_state.json"


def write_state(directory: str, state: Dict[str, Any]) -> None:
    """Write the state to a checkpoint directory, durably and as a whole."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, STATE)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def read_state_of(directory: str) -> Dict[str, Any]:
    """Read the state of a checkpoint directory. Raise StartError if it has none."""
    path = os.path.join(directory, STATE)
    try:
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
    except FileNotFoundError:
        raise StartError(
            f"cannot resume from {directory}: it has no {STATE}, so the batches behind its weights are unknown. Resume "
            "from a checkpoint that millrace.hf.Trainer has saved"
        ) from None
    except ValueError as e:
        raise StartError(f"cannot resume from {path}: it is no JSON ({e}). Resume from an earlier checkpoint") from None
    if not isinstance(state, dict):
        raise StartError(f"cannot resume from {path}: it holds no state of a run. Resume from an earlier checkpoint")
    return state


def find_last(output_dir: str) -> Optional[str]:
    """Return the newest complete checkpoint directory. A trainer that was killed while it saved leaves an incomplete
    one, which is skipped."""
    found = []
    for name in os.listdir(output_dir) if os.path.isdir(output_dir) else ():
        match = re.fullmatch(r"checkpoint-(\d+)", name)
        if match:
            found.append((int(match.group(1)), os.path.join(output_dir, name)))
    for _, directory in sorted(found, reverse=True):
        if _is_complete(directory):
            return directory
        log.warning("checkpoint %s is incomplete, probably because its trainer was killed: it is skipped", directory)
    return None


def _is_complete(directory: str) -> bool:
    try:
        with open(os.path.join(directory, LAST_WRITTEN), encoding="utf-8") as file:
            json.load(file)
    except (OSError, ValueError):
        return False
    return os.path.exists(os.path.join(directory, STATE))
