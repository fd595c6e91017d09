"""Failpoints: tests kill or delay the trainer at a named place of the client. docs/failpoints.md lists the places."""

from __future__ import annotations

import os
import signal
import time
from typing import Callable, Dict, List, Optional

armed: Dict[str, List[str]] = {}  # points by name: action, its file or duration, at which hit, hits
_told: Optional[Callable[[str, str], None]] = None


def arm(spec: str, me: str, told: Optional[Callable[[str, str], None]] = None) -> None:
    """Arm the points of a specification that are for every process or for `me`.

    The specification has the form of MILLRACE_FAILPOINTS: `[who:]name=action[:file][@n]`, separated by `;`. The actions
    are kill and sleep:<seconds>. `told(name, action)` is called before each action."""
    global _told
    armed.clear()
    _told = told
    for item in filter(None, map(str.strip, spec.split(";"))):
        name, _, action = item.partition("=")
        who, _, rest = name.rpartition(":")
        if who in ("", me):
            action, _, at = action.partition("@")
            act, _, more = action.partition(":")
            armed[rest] = [act, more, at or "1", "0"]


def hit(name: str) -> None:
    """Carry out the action that is armed at a named place, if there is one. The places of every batch ask `armed`
    first, because a call costs more."""
    point = armed.get(name)
    if point is None:
        return
    action, more, at, hits = point
    point[3] = hits = str(int(hits) + 1)
    if at not in ("0", hits) or action == "kill" and more and not _mark(more):
        return
    if _told is not None:
        _told(name, action)
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(float(more))


def _mark(path: str) -> bool:
    """Create a file. Return False if it exists, because an earlier process has already taken the action."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
