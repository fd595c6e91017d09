"""The checkpoint directories of the Hugging Face Trainer."""

from __future__ import annotations

import json
import logging
import os
import re
from typing import Optional

from ._checkpoint import STATE

log = logging.getLogger("millrace")

LAST_WRITTEN = "trainer_state.json"


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
