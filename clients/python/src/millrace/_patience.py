"""One wait of the trainer: its limit and its log messages."""

from __future__ import annotations

import json
import logging
import os
import time
from typing import Callable, NamedTuple, Optional

from . import _wire as wire
from ._connection import Connection
from ._errors import Abandoned, Lost, OutOfStep, RunError
from ._where import home_of, is_abandoned, outcome, refuse_unknown, refuse_unserved

log = logging.getLogger("millrace")

PATIENCE = 30.0  # a run without an `up` counts as dead after so many seconds
STAY = 1.0  # the same if `up` has written the run's outcome, or if this rank has consumed everything
SAY_FIRST, SAY_MOST = 1.0, 60.0  # seconds of waiting until the first log message; the pause doubles up to SAY_MOST
DEAF_AFTER = 4  # questions, half a second apart
SAY_AGAIN = 1.0  # seconds at least between two log messages because the cause has changed
PAUSE_FIRST, PAUSE_MOST = 0.005, 0.25  # seconds between attempts to connect
ASK_FIRST = 0.2  # seconds without a socket until refuse_unserved asks another socket


class Limits(NamedTuple):
    """The limits of a loader's wait for `millrace up`, in seconds."""

    wait: float  # for the first `up`
    patience: float  # for the next `up`, after one was killed


class Cause(NamedTuple):
    """What a trainer waits for: an activity of a role in a file of a source. Empty or 0: it is not known."""

    activity: str
    source: str
    shard: str
    role: str
    pid: int
    text: str

    @classmethod
    def read(cls, body: bytes) -> "Cause":
        m = json.loads(body)
        activity, source, shard, role = (m.get(k, "") for k in ("activity", "source", "shard", "role"))
        return cls(activity, source, shard, role, m.get("pid", 0), m["text"])

    def is_same(self, other: "Optional[Cause]") -> bool:
        """Return whether both name the same activity of the same role in the same source."""
        return other is not None and (self.activity, self.source, self.role) == other[:2] + (other.role,)


class Patience:
    """One wait since `began`, on the monotonic clock. `goal()` names its goal. `arrived`: the run was there before.
    `complete`: this rank has its last batch. `waited`: seconds of all waits before. Most waits end at once, so that a
    new Patience sets as little as possible."""

    left = False  # the sidecar has sent LEAVING: another one comes
    _ask, _pause = ASK_FIRST, PAUSE_FIRST
    _alone: Optional[float] = None  # the time at which `up` was found missing
    _lost = 0
    _asked = 0  # questions that the sidecar has not answered
    said = False  # the beginning of the wait was logged
    cause: Optional[Cause] = None  # the newest that the sidecar has named
    _said_cause: Optional[Cause] = None
    _said_at = 0.0

    def __init__(
        self,
        path: str,
        limits: Limits,
        goal: Callable[[], str],
        began: float,
        arrived: bool,
        complete: bool,
        waited: float = 0.0,
    ) -> None:
        self.arrived = arrived
        self._path, self._limits, self._goal, self._complete = path, limits, goal, complete
        self._began, self._say, self._waited = began, SAY_FIRST, waited

    def lost(self, why: Lost) -> None:
        """Note that a connection broke. After the first loss, return at once; after each later one, pause first."""
        log.debug("connection to %s %s: %s", self._path, "left" if self.left else "lost", why)
        if self._lost > 0:
            if isinstance(why, OutOfStep):
                raise RunError(str(why))
            if self._is_due():
                self.say(str(why))
            self._rest()
        self._lost += 1

    def ask(self, conn: Connection) -> None:
        """Send delayed releases, and ask the sidecar for the reason of the wait.

        Raise Abandoned if it has not answered for long and no `up` is alive: it is another program."""
        conn.flush()
        if self._asked >= DEAF_AFTER and is_abandoned(self._path):
            raise Abandoned(f"the program at {self._path} does not answer, and no `millrace up` serves this directory")
        self._asked += 1
        now = time.monotonic() - self._began
        waited = int((self._waited + now) * 1e6)
        conn.send(wire.pack(wire.WAIT, flags=wire.CAUSE, frame=int(now * 1e3), generation=waited))

    def hear(self, header: wire.Header, body: bytes) -> None:
        """Take the sidecar's answer. Log it if a message is due, or if the cause has changed since the last message."""
        self._asked = 0
        text = str(body, "utf-8", "replace")
        if header.flags & (wire.CAUSE | wire.FED):
            self.cause = Cause.read(body)
            text = self.cause.text
        now = time.monotonic()
        changed = self.said and self.cause is not None and not self.cause.is_same(self._said_cause)
        if self._is_due() or changed and now - self._said_at >= SAY_AGAIN:
            self.say(text)
            self._said_cause, self._said_at = self.cause, now

    def say(self, status: str) -> None:
        self.said = True
        log.warning("waiting for %s for %.1f s: %s", self._goal(), time.monotonic() - self._began, status)

    def over(self) -> None:
        """Log the end of the wait."""
        log.warning("waiting is over after %.1f s", time.monotonic() - self._began)

    def pause(self) -> None:
        """Wait a little for the socket. Raise Abandoned if no `up` can bring it, and StartError if the run has no such
        stream or does not serve this rank."""
        now = time.monotonic()
        if not is_abandoned(self._path):
            self._alone = None
            refuse_unknown(self._path)
            if now - self._began >= self._ask:
                self._ask *= 2
                refuse_unserved(self._path)
        elif self._alone is None:
            self._alone = now
        elif now - self._alone >= self._stay():
            raise Abandoned(self._farewell())
        if self._is_due():
            self.say(f"the sidecar at {self._path} is away")
        self._rest()

    def _stay(self) -> float:
        """Return the limit of the wait for another `up`, in seconds."""
        if not self.arrived:
            return self._limits.wait
        if self._complete or outcome(self._path):
            return min(STAY, self._limits.patience)
        return self._limits.patience

    def _farewell(self) -> str:
        directory, told = home_of(self._path), outcome(self._path)
        if told:
            return f"no `millrace up` serves {directory} any more: {told}"
        return f"no `millrace up` serves {directory}: start `millrace up MIXTURE --ranks N --run-dir {directory}`"

    def _is_due(self) -> bool:
        """Return whether the next log message is due."""
        if time.monotonic() - self._began < self._say:
            return False
        self._say = min(self._say * 2, self._say + SAY_MOST)
        return True

    def _rest(self) -> None:
        time.sleep(self._pause)
        self._pause = min(self._pause * 1.5, PAUSE_MOST)


def read_patience() -> float:
    """Return MILLRACE_PATIENCE, or the default, in seconds."""
    said = os.environ.get("MILLRACE_PATIENCE")
    try:
        return float(said) if said else PATIENCE
    except ValueError:
        raise ValueError(f"MILLRACE_PATIENCE={said!r}: want a number of seconds") from None
