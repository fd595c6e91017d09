"""Where the socket is, and whether anybody is left to bring it back."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
from typing import Optional

from ._wire import ANY_RANK

MAX_PATH = 107  # bytes of a socket path, less the final zero


def find_socket(path: Optional[str]) -> str:
    """The socket's path: as given, or MILLRACE_SOCKET, or MILLRACE_RUN_DIR with LOCAL_RANK. A run directory stands for its rank's."""
    path = path or os.environ.get("MILLRACE_SOCKET") or os.environ.get("MILLRACE_RUN_DIR")
    if not path:
        raise ValueError("no socket: give connect() a path, or set MILLRACE_SOCKET, or MILLRACE_RUN_DIR with LOCAL_RANK")
    path = os.fspath(path)
    if os.path.isdir(path) or not path.endswith(".sock"):
        path = os.path.join(path, f"rank-{int(os.environ.get('LOCAL_RANK', '0'))}.sock")
    return os.path.abspath(path)


def rank_of(path: str) -> int:
    """The number in the socket's name, or ANY_RANK."""
    m = re.fullmatch(r"rank-(\d{1,9})\.sock", os.path.basename(path))
    return int(m.group(1)) if m else ANY_RANK


def dial(path: str) -> socket.socket:
    """Connect, also where the path is longer than a socket address takes: then through the directory's descriptor."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        if len(os.fsencode(path)) <= MAX_PATH:
            sock.connect(path)
            return sock
        directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sock.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
        finally:
            os.close(directory)
        return sock
    except BaseException:
        sock.close()
        raise


def is_abandoned(path: str) -> bool:
    """Whether no `millrace up` holds the run directory: it holds a lock (flock) on the directory itself while it lives."""
    try:
        directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(directory, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(directory)


def outcome(path: str) -> str:
    """How the run ended as `up` wrote it down, or an empty string."""
    try:
        with open(os.path.join(os.path.dirname(path), "outcome.json"), encoding="utf-8") as f:
            told = json.load(f)
        return str(told.get("reason") or told.get("state") or "")
    except (OSError, ValueError, AttributeError):
        return ""
