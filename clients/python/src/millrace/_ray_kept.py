"""A process of `millrace` that an actor keeps alive."""

from __future__ import annotations

import logging
import threading
import time
from typing import Optional

from ._child import Child
from ._errors import RunError

log = logging.getLogger("millrace")

PAUSE_FIRST, PAUSE_MOST = 0.2, 10.0  # seconds before a process that was killed starts again; the pause doubles
SETTLED = 30.0  # seconds of a life after which the pause is PAUSE_FIRST again


class Kept:
    """Keeps a process alive. Ray does not notice the death of an actor's child.

    A process that a signal has killed, or that could not start, starts again by itself. One that was ready and ended,
    because the run is over or has failed, starts again at the next `want`, and so does one with a wrong mixture."""

    def __init__(self, what: str) -> None:
        self._what = what  # for people
        self._wanted, self._stopping = threading.Event(), threading.Event()
        self._child: Optional[Child] = None
        self._keeping = threading.Thread(target=self._keep, daemon=True)

    def pid(self) -> int:
        """Return the process id, for people and tests; 0: there is none now."""
        child = self._child
        return child.process.pid if child is not None and child.process.returncode is None else 0

    def _begin(self) -> None:
        self._wanted.set()
        self._keeping.start()

    def _end(self) -> None:
        """Stop the process, and wait for its end."""
        self._stopping.set()
        self._wanted.set()
        self._keeping.join()

    def _start(self) -> Child:
        """Start the process."""
        raise NotImplementedError

    def _see(self, state: str, reason: str = "") -> None:
        """Note the state: "starting", "ready", "ended" or "wrong". A process that is ready is seen again and again."""
        raise NotImplementedError

    def _keep(self) -> None:
        pause = PAUSE_FIRST
        while self._wanted.wait() and not self._stopping.is_set():
            self._wanted.clear()
            self._see("starting")
            began = time.monotonic()
            again = self._live()
            if again:
                pause = PAUSE_FIRST if time.monotonic() - began > SETTLED else min(pause * 2, PAUSE_MOST)
                log.warning("%s: %s", self._what, again)
                self._stopping.wait(pause)
                self._wanted.set()

    def _live(self) -> str:
        """Run the process once. Return why it must start again, or an empty string."""
        was_ready, child = False, None
        try:
            child = self._child = self._start()
            while not self._stopping.is_set() and not child.is_ready():
                pass
            was_ready = True
            self._see("ready")
            while not self._stopping.is_set() and not child.has_ended():
                self._see("ready")
            child.stop()
            reason = child.reason()
        except ValueError as e:
            self._see("wrong", str(e))
            return ""
        except (OSError, RunError) as e:
            reason = str(e)
        if self._stopping.is_set():
            return ""
        if child is not None and child.process.returncode < 0:
            return "a signal has killed the process: it starts again"
        self._see("ended", reason)
        # For example, etcd may still list the host of a lost node, which needed its time to notice.
        return "" if was_ready else f"the process could not start, and is tried again: {reason}"
