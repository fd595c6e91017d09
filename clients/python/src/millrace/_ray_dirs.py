"""The run directories of a node. They and their journals belong to the node, and not to the ranks that they serve.

    HOME/up-0, HOME/up-1, …   run directories: one for each `millrace up` that the node has had at the same time
    HOME/host-FIRST           a link to the run directory that serves the ranks from FIRST on now; sockets are there
    HOME/renewed-N/up-0, …    the same for the Nth new name of the run
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
from typing import Iterator, List, Optional

LOCK = "taken.lock"  # in a run directory; the process that has it, has the directory


class RunDir:
    """A run directory of this node, which this process has until `leave` or its own end."""

    def __init__(self, home: str, first: int, renewal: int = 0) -> None:
        self._home, self._link = home, link_of(home, first)
        self._within = os.path.join(home, f"renewed-{renewal}") if renewal else home
        self.path, self._lock = _take(self._within)
        self._point()

    def leave(self, remove: bool) -> None:
        """Leave the directory. `remove`: remove it, and the others of this node that no process has."""
        if remove:
            for path in _all(self._within):
                with _lock_of(path) as lock:
                    if lock is not None or path == self.path:
                        shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(OSError):  # another host has it now
                if not os.path.exists(self._link):
                    os.unlink(self._link)
            for directory in (self._within, self._home):
                with contextlib.suppress(OSError):  # others are in it
                    os.rmdir(directory)
        os.close(self._lock)

    def _point(self) -> None:
        """Make the link for the ranks."""
        new = f"{self._link}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        os.symlink(os.path.relpath(self.path, self._home), new)
        os.replace(new, self._link)


def link_of(home: str, first: int) -> str:
    """Return the directory in which trainers find the sockets of the ranks from `first` on."""
    return os.path.join(home, f"host-{first}")


def _take(within: str) -> "tuple[str, int]":
    """Take a run directory that no process has. Return its path and its lock.

    The one with the newest journal comes first. A copy that is in step has each of the run's facts, so that no other
    copy of this node is newer."""
    while True:
        for path in [*sorted(_all(within), key=_journal_of, reverse=True), _unused(within)]:
            os.makedirs(path, mode=0o700, exist_ok=True)
            with _lock_of(path) as lock:
                if lock is not None:
                    return path, os.dup(lock)


def _all(within: str) -> List[str]:
    return glob.glob(os.path.join(glob.escape(within), "up-*"))


def _unused(within: str) -> str:
    number = 0
    while os.path.exists(path := os.path.join(within, f"up-{number}")):
        number += 1
    return path


def _journal_of(path: str) -> int:
    """Return the time of the newest write to the journal of a run directory; 0: it has none."""
    newest = 0
    with contextlib.suppress(OSError):  # there is none
        for entry in os.scandir(os.path.join(path, "journal")):
            with contextlib.suppress(OSError):  # it was removed
                newest = max(newest, entry.stat().st_mtime_ns)
    return newest


@contextlib.contextmanager
def _lock_of(path: str) -> Iterator[Optional[int]]:
    """Lock a run directory, if no process has it. A duplicate of the descriptor keeps the lock."""
    try:
        lock = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # it was removed
        yield None
        return
    is_mine = False
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_mine = os.fstat(lock).st_nlink > 0
        except BlockingIOError:
            pass  # another process has it
        except OSError as e:
            why = f"lock {os.path.join(path, LOCK)}: {e.strerror}: use a directory on a file system with locks"
            raise OSError(e.errno, f"{why}, for example on a local disk") from None
        yield lock if is_mine else None
    finally:
        os.close(lock)
