"""Find the socket of a rank. If it is missing, find out whether a `millrace up` can bring it back."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import stat
import struct
import sys
from typing import List, Optional

from . import _wire as wire
from ._errors import StartError

TRAIN = "train"  # the stream in the run directory itself
STREAMS = "streams"  # the folder of the run directory with a folder for each further stream
MAX_PATH = 107  # bytes of a socket path, less the final zero


def find_socket(path: Optional[str]) -> str:
    """Return the absolute path of the socket: `path`, else MILLRACE_SOCKET, else MILLRACE_RUN_DIR.

    For a run directory, the socket is that of LOCAL_RANK (0 if unset). If the trainer has ranks on several hosts, it is
    that of RANK: sockets have the rank's number in the whole run. Raises ValueError if none is given."""
    path = path or os.environ.get("MILLRACE_SOCKET") or os.environ.get("MILLRACE_RUN_DIR")
    if not path:
        raise ValueError(
            "connect() has no socket: give it a path, or set MILLRACE_SOCKET, or set MILLRACE_RUN_DIR and LOCAL_RANK"
        )
    path = os.fspath(path)
    if os.path.isdir(path) or not path.endswith(".sock"):
        path = _socket_in(path)
    return os.path.abspath(path)


def _socket_in(directory: str) -> str:
    """Return the path of this rank's socket in a run directory."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    mine, everywhere = (
        os.path.join(directory, f"rank-{rank}.sock") for rank in (local, int(os.environ.get("RANK") or local))
    )
    is_spread = int(os.environ.get("WORLD_SIZE") or 0) > int(os.environ.get("LOCAL_WORLD_SIZE") or sys.maxsize)
    return everywhere if os.path.exists(everywhere) or is_spread and not os.path.exists(mine) else mine


def socket_of(path: str, stream: str) -> str:
    """Return the rank's socket of a stream. `path` is the rank's socket in the run directory.

    Raises ValueError if no stream can have that name."""
    if stream == TRAIN:
        return path
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", stream):
        raise ValueError(f"stream={stream!r}: want the name of a stream, such as 'eval', or 'train'")
    return os.path.join(os.path.dirname(path), STREAMS, stream, os.path.basename(path))


def home_of(path: str) -> str:
    """Return the run directory of a rank's socket of any stream."""
    directory = os.path.dirname(path)
    above, folder = os.path.split(os.path.dirname(directory))
    if folder == STREAMS and any(os.path.isdir(os.path.join(above, name)) for name in ("run", "journal")):
        return above
    return directory


def rank_of(path: str) -> int:
    """Return the number in the socket's name, or wire.ANY_RANK."""
    m = re.fullmatch(r"rank-(\d{1,9})\.sock", os.path.basename(path))
    return int(m.group(1)) if m else wire.ANY_RANK


def dial(path: str) -> socket.socket:
    """Return a connected socket. If the path is too long for a socket address, connect through its directory."""
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


def refuse_stranger(path: str, error: OSError) -> None:
    """Raise StartError if a connection to `path` failed, and no wait can help: no sidecar will serve there."""
    directory = os.path.dirname(path)
    if error.errno == errno.EPROTOTYPE:
        why = "it is the socket of another program"
    elif isinstance(error, PermissionError):
        why = "this user may not connect to it: train as the user of `millrace up`, or start that with --allow-uids"
    elif os.path.exists(path) and not stat.S_ISSOCK(os.stat(path).st_mode):
        why = "it is no socket"
    elif os.path.exists(directory) and not os.path.isdir(directory):
        why = f"{directory} is no directory"
    else:
        return
    raise StartError(f"connect to {path}: {why}. Give connect() a run directory, or its DIR/rank-<r>.sock") from None


def is_abandoned(path: str) -> bool:
    """Return whether no `millrace up` is alive for the run directory. A living `up` holds a lock (flock) on it."""
    try:
        directory = os.open(home_of(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
    """Return the reason of the run's end from the file that `up` wrote, or an empty string."""
    try:
        with open(os.path.join(home_of(path), "outcome.json"), encoding="utf-8") as f:
            told = json.load(f)
        return str(told.get("reason") or told.get("state") or "")
    except (OSError, ValueError, AttributeError):
        return ""


ASK_WITHIN = 2  # seconds for another rank's socket to answer


def refuse_unknown(path: str) -> None:
    """Raise StartError if the run has no stream with the socket of `path`. `up` makes the directories of all streams
    before it writes the configuration of the run."""
    home, directory = home_of(path), os.path.dirname(path)
    if home == directory or not os.path.exists(os.path.join(home, "run", "config.json")):
        return
    if not os.path.isdir(os.path.join(directory, "run")):
        raise StartError(
            f"this run has no stream {os.path.basename(directory)!r}: connect to one of "
            f"{', '.join(streams_of(home))}, or add it to `streams` of the mixture file and start millrace up again"
        )


def streams_of(home: str) -> List[str]:
    """Return the names of the streams that the `up` of a run directory serves."""
    try:
        names = sorted(os.listdir(os.path.join(home, STREAMS)))
    except OSError:
        names = []
    return [TRAIN] + [name for name in names if os.path.isdir(os.path.join(home, STREAMS, name, "run"))]


def refuse_unserved(path: str) -> None:
    """Raise StartError if the run serves other ranks, but not the rank of `path`.

    Send a HELLO for this rank to another rank's socket. That socket refuses it; the kind of its ERROR shows whether the
    run serves this rank. Raise nothing if no socket answers, or if this rank's socket is only late."""
    directory, rank = os.path.dirname(path), rank_of(path)
    if rank == wire.ANY_RANK:
        return
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return
    for name in names:
        sibling = os.path.join(directory, name)
        if rank_of(sibling) not in (wire.ANY_RANK, rank):
            refusal = _ask(sibling, rank)
            if refusal is not None:
                raise StartError(refusal)


def _ask(path: str, rank: int) -> Optional[str]:
    """Return the reason why the run does not serve a rank. Return None if it does, or if no sidecar answers."""
    try:
        with dial(path) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", ASK_WITHIN, 0))
            body = b'{"start":""}'
            sock.send(wire.pack(wire.HELLO, rank=rank, body=len(body)) + body, socket.MSG_NOSIGNAL)
            answer = sock.recv(wire.HEADER.size + wire.MAX_BODY)
    except OSError:
        return None
    if len(answer) < wire.HEADER.size:
        return None
    header = wire.read_header(answer)
    if header.kind != wire.ERROR or header.rank != wire.ERROR_START:
        return None
    return str(answer[wire.HEADER.size :], "utf-8", "replace")
