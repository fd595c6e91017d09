"""What can go wrong."""

from __future__ import annotations


class RunError(RuntimeError):
    """The run failed, or nothing is left that could bring it back. `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StartError(RunError):
    """The run cannot start as it was said: the ranks differ, the state is of another identity, or a run with history was given
    neither a state nor `start=`."""


class Lost(Exception):
    """The connection is gone or out of step; the loader connects anew and goes on where it is."""


class OutOfStep(Lost):
    """What came is not what is next: a message was swallowed by an interrupt, or the other side is wrong."""


class Abandoned(Exception):
    """No `millrace up` is left for the run directory."""
