"""The actor of a host: it owns a `millrace up`."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import NamedTuple, Optional

import ray

from ._child import Child
from ._errors import RunError
from ._ray_spec import Spec, remove_dir

log = logging.getLogger("millrace")

PAUSE_FIRST, PAUSE_MOST = 0.2, 10.0  # seconds before an `up` that was killed starts again; the pause doubles
SETTLED = 30.0  # seconds of a life after which the pause is PAUSE_FIRST again


class Seen(NamedTuple):
    """The state of a host: "starting", "ready", "ended" or "wrong". The last two come with the reason."""

    state: str
    run_dir: str
    reason: str = ""


class Host:
    """Keeps the `millrace up` of the ranks from `first` on alive, on the node of this actor.

    Ray does not notice the death of an actor's child. An `up` that a signal has killed, or that could not start, starts
    again by itself. An `up` that was ready and ended, because the run is over or has failed, starts again at the next
    call of `serve`, and so does one with a wrong mixture."""

    def __init__(self, spec: Spec, first: int) -> None:
        self._spec, self._first = spec, first
        self._address, self._node = ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
        self._run_dir = spec.dir_of(first, self._address, self._node)
        self._seen = Seen("starting", self._run_dir)
        self._wanted, self._stopping = threading.Event(), threading.Event()
        self._child: Optional[Child] = None
        self._wanted.set()
        self._keeping = threading.Thread(target=self._keep, daemon=True)
        self._keeping.start()

    def serve(self) -> Seen:
        """Return the state. If `up` has ended by itself, start it again."""
        seen = self._seen
        if seen.state in ("ended", "wrong"):
            self._wanted.set()
        return seen

    def pid(self) -> int:
        """Return the process id of `up`, for people and tests; 0: there is none now."""
        child = self._child
        return child.process.pid if child is not None and child.process.returncode is None else 0

    def stop(self) -> None:
        """Stop `up`, and wait for its end."""
        self._stopping.set()
        self._wanted.set()
        self._keeping.join()
        if self._spec.is_temporary:
            remove_dir(self._run_dir)

    def _keep(self) -> None:
        pause = PAUSE_FIRST
        while self._wanted.wait() and not self._stopping.is_set():
            self._wanted.clear()
            self._seen = Seen("starting", self._run_dir)
            began = time.monotonic()
            again = self._live()
            if again:
                pause = PAUSE_FIRST if time.monotonic() - began > SETTLED else min(pause * 2, PAUSE_MOST)
                log.warning("ranks from %d on: %s", self._first, again)
                self._stopping.wait(pause)
                self._wanted.set()

    def _live(self) -> str:
        """Run `up` once. Return why it must start again, or an empty string."""
        was_ready, child = False, None
        try:
            child = self._child = self._start()
            while not self._stopping.is_set() and not child.is_ready():
                pass
            was_ready = True
            self._seen = Seen("ready", self._run_dir)
            while not self._stopping.is_set() and not child.has_ended():
                pass
            child.stop()
            reason = child.reason()
        except ValueError as e:
            self._seen = Seen("wrong", self._run_dir, str(e))
            return ""
        except (OSError, RunError) as e:
            reason = str(e)
        if self._stopping.is_set():
            return ""
        if child is not None and child.process.returncode < 0:
            return "a signal has killed `millrace up`: it starts again"
        self._seen = Seen("ended", self._run_dir, reason)
        # For example, etcd may still list the host of a lost node, which needed its time to notice.
        return "" if was_ready else f"`millrace up` could not start, and is tried again: {reason}"

    def _start(self) -> Child:
        spec = self._spec
        os.makedirs(self._run_dir, exist_ok=True)
        spec.write_cluster(self._run_dir, self._address, self._node)
        cwd = spec.directory if os.path.isdir(spec.directory) else self._run_dir
        messages = os.path.join(self._run_dir, "up.log")
        return Child(spec.arguments(self._first, self._run_dir), messages, spec.mixture, cwd)
