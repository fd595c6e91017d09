"""Nodes of Ray that start on a busy machine.

A raylet waits for 15 s until its agents have said where they listen, and no option of Ray 2.55 makes that longer: two
interpreters may need more beside other work. Here the ports are said before the agents start. The agents of metrics and
of the dashboard, which no test needs, are those of a small Ray: with fewer imports, and without ports.

`install` counts for the calls of this process. Ray calls it in `ray start`, by RAY_START_HOOK.
"""

from __future__ import annotations

import functools
import inspect
import random
import socket
import time
from typing import Any, Callable

from ray import _raylet
from ray._private import services, utils

START_WITHIN = 150.0  # seconds, for all attempts to start a Ray
NODE_WITHIN = 70.0  # seconds, for a node to be known to Ray
UNUSED = -1  # in Ray: such a service does not listen


def free_port() -> int:
    """A port that no client gets by chance: those are above 32767."""
    while True:
        port = random.randrange(12000, 32000)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("", port))
            except OSError:
                continue
        return port


def with_ports(start: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(start)
    def start_raylet(*args: Any, **options: Any) -> Any:
        options["runtime_env_agent_port"] = port = options.get("runtime_env_agent_port") or free_port()
        node = inspect.signature(start).bind_partial(*args).arguments
        for name, listens in (
            (_raylet.RUNTIME_ENV_AGENT_PORT_NAME, port), (_raylet.METRICS_AGENT_PORT_NAME, UNUSED),
            (_raylet.METRICS_EXPORT_PORT_NAME, UNUSED), (_raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME, UNUSED),
        ):  # fmt: skip
            _raylet.persist_port(node["session_dir"], node["node_id"], name, listens)
        return start(*args, **options)

    return start_raylet


def patient(get: Callable[..., Any]) -> Callable[..., Any]:
    """Wait until Ray knows a node. Ray itself waits for 30 s."""

    @functools.wraps(get)
    def get_node(*args: Any) -> Any:
        over = time.monotonic() + NODE_WITHIN
        while True:
            try:
                return get(*args)
            except RuntimeError:
                if time.monotonic() > over:
                    raise
                time.sleep(0.2)

    return get_node


def install(start: Any = None, is_head: bool = False) -> None:
    """`start`: the parameters of `ray start`; None: this is another program."""
    if start is not None and is_head:
        start.include_dashboard = False
    if not hasattr(services.start_raylet, "__wrapped__"):
        utils.get_dashboard_dependency_error = lambda: ImportError("the tests need no dashboard")
        services.start_raylet = with_ports(services.start_raylet)
        services.get_node = patient(services.get_node)
