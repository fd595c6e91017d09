"""The actors of a run by their names."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List

import ray

from ._ray_spec import NAMESPACE

# An actor of Ray that lives until `shutdown`, and that Ray starts again after it died.
LASTING: Dict[str, Any] = {
    "lifetime": "detached", "namespace": NAMESPACE, "max_restarts": -1, "max_task_retries": -1, "num_cpus": 0,
}  # fmt: skip


def actors_of(run: str) -> List[str]:
    """Return the names of the living actors of a run."""
    return [name for name in all_actors() if name.startswith(run + "/")]


def all_actors() -> List[str]:
    """Return the names of the living actors of all runs."""
    listed: Any = ray.util.list_named_actors(all_namespaces=True)
    return [entry["name"] for entry in listed if entry["namespace"] == NAMESPACE]


def end_actor(name: str) -> None:
    """End an actor of a run, if it lives."""
    with contextlib.suppress(ValueError):  # it has ended
        ray.kill(ray.get_actor(name, namespace=NAMESPACE), no_restart=True)
