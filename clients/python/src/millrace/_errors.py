"""The errors of the client."""

from __future__ import annotations


class RunError(RuntimeError):
    """The run failed or was stopped, or no `millrace up` serves it any more. `reason` has the cause and the remedy."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StartError(RunError):
    """The run cannot start as this rank declared. The declarations of the ranks differ, the state has another identity,
    a run with history got neither a state nor `start=`, or the run does not serve this rank."""


class MisuseError(RuntimeError):
    """The loader is used in a way that would give wrong batches or block for ever. The message names the right way."""


class Lost(Exception):
    """The connection is gone or out of step. The loader connects again and continues at its position."""


class OutOfStep(Lost):
    """A message is missing: an interrupt lost it, or the sidecar is at fault."""


class Abandoned(Exception):
    """No `millrace up` is left for the run directory."""
