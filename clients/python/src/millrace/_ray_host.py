"""The actor of a host: it owns a `millrace up`."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from typing import NamedTuple, Optional, Tuple

import ray

from ._child import Child
from ._errors import RunError
from ._ray_dirs import RunDir, link_of
from ._ray_spec import Spec

log = logging.getLogger("millrace")

PAUSE_FIRST, PAUSE_MOST = 0.2, 10.0  # seconds before an `up` that was killed starts again; the pause doubles
SETTLED = 30.0  # seconds of a life after which the pause is PAUSE_FIRST again


LACKS = "this host's journal lacks steps that"  # the program says so while this host may not plan


class Seen(NamedTuple):
    """The state of a host: "starting", "ready", "ended" or "wrong". The last two come with the reason."""

    state: str
    run_dir: str
    reason: str = ""
    is_led: bool = False  # whether its sidecar has heard of the process that plans the run
    lacks_for: float = 0.0  # seconds since nobody plans the run and this host may not, because its journal lacks steps


class Host:
    """Keeps the `millrace up` of the ranks from `first` on alive, on the node of this actor.

    Ray does not notice the death of an actor's child. An `up` that a signal has killed, or that could not start, starts
    again by itself. An `up` that was ready and ended, because the run is over or has failed, starts again at the next
    call of `serve`, and so does one with a wrong mixture."""

    def __init__(self, spec: Spec, first: int) -> None:
        self._spec, self._first = spec, first
        self._address, self._node = ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
        self._home = spec.home(self._address, self._node)
        self._dir: Optional[RunDir] = None  # taken with the first start
        self._seen = Seen("starting", link_of(self._home, first))
        self._lacks_since = 0.0
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

    def look(self) -> Seen:
        """Return the state, and start nothing."""
        return self._seen

    def pid(self) -> int:
        """Return the process id of `up`, for people and tests; 0: there is none now."""
        child = self._child
        return child.process.pid if child is not None and child.process.returncode is None else 0

    def stop(self) -> None:
        """Stop `up`, and wait for its end."""
        self._stopping.set()
        self._wanted.set()
        self._keeping.join()
        if self._dir is not None:
            self._dir.leave(remove=self._spec.is_temporary)

    def _keep(self) -> None:
        pause = PAUSE_FIRST
        while self._wanted.wait() and not self._stopping.is_set():
            self._wanted.clear()
            self._see("starting")
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
            self._see_roles()
            while not self._stopping.is_set() and not child.has_ended():
                self._see_roles()
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
            return "a signal has killed `millrace up`: it starts again"
        self._see("ended", reason)
        # For example, etcd may still list the host of a lost node, which needed its time to notice.
        return "" if was_ready else f"`millrace up` could not start, and is tried again: {reason}"

    def _start(self) -> Child:
        spec = self._spec
        if self._dir is None:
            self._dir = RunDir(self._home, self._first, spec.renewal)
        run_dir = self._dir.path
        spec.write_cluster(run_dir, self._address, self._node)
        cwd = spec.directory if os.path.isdir(spec.directory) else run_dir
        return Child(spec.arguments(self._first, run_dir), os.path.join(run_dir, "up.log"), spec.mixture, cwd)

    def _see(self, state: str, reason: str = "") -> None:
        self._seen = Seen(state, self._seen.run_dir, reason)
        self._lacks_since = 0.0

    def _see_roles(self) -> None:
        """See a host that is ready, and who plans the run."""
        if not self._spec.is_spread or self._dir is None:
            self._seen = Seen("ready", self._seen.run_dir, is_led=True)
            return
        is_led, waits = read_roles(self._dir.path)
        lacks = LACKS in waits
        now = time.monotonic()
        self._lacks_since = (self._lacks_since or now) if lacks else 0.0
        self._seen = Seen(
            "ready", self._seen.run_dir, waits if lacks else "", is_led and not lacks,
            now - self._lacks_since if lacks else 0.0,
        )  # fmt: skip


def read_roles(run_dir: str) -> Tuple[bool, str]:
    """Return whether the sidecar of an `up` has heard of a leader, and what its orchestrator waits for."""
    try:
        with open(os.path.join(run_dir, "run", "roles.json"), encoding="utf-8") as file:
            roles = json.load(file)
    except (OSError, ValueError):  # `up` has ended
        return False, ""
    is_led = any(role["role"] == "sidecar" and role["term"] > 0 for role in roles)
    return is_led, next((role.get("lacks", "") for role in roles if role["role"] == "orchestrator"), "")
