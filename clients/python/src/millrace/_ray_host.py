"""The actor of a host: it owns a `millrace up`."""

from __future__ import annotations

import json
import os
import time
from typing import NamedTuple, Optional, Tuple

import ray

from ._child import Child
from ._ray_dirs import RunDir, link_of
from ._ray_kept import Kept
from ._ray_spec import Spec

LACKS = " lacks steps that "  # the program says so while this host may not plan


class Seen(NamedTuple):
    """The state of a host: "starting", "ready", "ended" or "wrong". The last two come with the reason."""

    state: str
    run_dir: str
    reason: str = ""
    is_led: bool = False  # whether its sidecar has heard of the process that plans the run
    lacks_for: float = 0.0  # seconds since nobody plans the run and this host may not, because its journal lacks steps


class Host(Kept):
    """Keeps the `millrace up` of the ranks from `first` on alive, on the node of this actor."""

    def __init__(self, spec: Spec, first: int) -> None:
        super().__init__(f"ranks from {first} on")
        self._spec, self._first = spec, first
        self._address, self._node = ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
        self._home = spec.home(self._address, self._node)
        self._dir: Optional[RunDir] = None  # taken with the first start
        self._seen = Seen("starting", link_of(self._home, first))
        self._lacks_since = 0.0
        self._begin()

    def serve(self) -> Seen:
        """Return the state. If `up` has ended by itself, start it again."""
        seen = self._seen
        if seen.state in ("ended", "wrong"):
            self._wanted.set()
        return seen

    def look(self) -> Seen:
        """Return the state, and start nothing."""
        return self._seen

    def stop(self) -> None:
        """Stop `up`, and wait for its end."""
        self._end()
        if self._dir is not None:
            self._dir.leave(remove=self._spec.is_temporary)

    def _start(self) -> Child:
        spec = self._spec
        if self._dir is None:
            self._dir = RunDir(self._home, self._first, spec.renewal)
        run_dir = self._dir.path
        spec.write_cluster(run_dir, self._address, self._node)
        messages = os.path.join(run_dir, "up.log")
        return Child(spec.arguments(self._first, run_dir), messages, spec.mixture, spec.cwd(run_dir))

    def _see(self, state: str, reason: str = "") -> None:
        is_led, lacks_since = not self._spec.is_spread, 0.0
        if state == "ready" and self._spec.is_spread and self._dir is not None:
            is_led, waits = read_roles(self._dir.path)
            if LACKS in waits:
                is_led, reason, lacks_since = False, waits, self._lacks_since or time.monotonic()
        self._lacks_since = lacks_since
        lacks_for = time.monotonic() - lacks_since if lacks_since else 0.0
        self._seen = Seen(state, self._seen.run_dir, reason, is_led, lacks_for)


def read_roles(run_dir: str) -> Tuple[bool, str]:
    """Return whether the sidecar of an `up` has heard of a leader, and what its orchestrator waits for."""
    try:
        with open(os.path.join(run_dir, "run", "roles.json"), encoding="utf-8") as file:
            roles = json.load(file)
    except (OSError, ValueError):  # `up` has ended
        return False, ""
    is_led = any(role["role"] == "sidecar" and role["term"] > 0 for role in roles)
    return is_led, next((role.get("lacks", "") for role in roles if role["role"] == "orchestrator"), "")
