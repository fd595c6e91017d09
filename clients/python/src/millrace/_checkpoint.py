"""The run's state in a checkpoint directory."""

from __future__ import annotations

import json
import os
from typing import Any, Dict

from ._errors import StartError

STATE = "millrace.json"


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
            "from a checkpoint that has one"
        ) from None
    except ValueError as e:
        raise StartError(f"cannot resume from {path}: it is no JSON ({e}). Resume from an earlier checkpoint") from None
    if not isinstance(state, dict):
        raise StartError(f"cannot resume from {path}: it holds no state of a run. Resume from an earlier checkpoint")
    return state
