"""Nodes for Ray's autoscaler: raylets on this machine. The autoscaler imports this module in a process of its own."""

from __future__ import annotations

from typing import Any, Dict

import ray
from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider
from ray.cluster_utils import AutoscalingCluster

import lean

lean.install()
ray._private.node.Node.start_log_monitor = lambda node: None  # that of the head reads all logs of this machine


class Provider(FakeMultiNodeProvider):
    """Starts and ends raylets. The memory of a node, which that of Ray refuses, is what the raylet finds."""

    def _create_node_with_resources_and_labels(
        self, node_config: Any, tags: Any, count: int, resources: Dict[str, float], labels: Any
    ) -> None:
        others = {name: amount for name, amount in resources.items() if name != "memory"}
        super()._create_node_with_resources_and_labels(node_config, tags, count, others, labels)


class Autoscaled(AutoscalingCluster):
    """A head with Ray's autoscaler. That of Ray reads its settings from a file that no wheel has."""

    def _generate_config(self, head_resources: Any, worker_node_types: Any, **others: Any) -> Dict[str, Any]:
        head = {"resources": dict(head_resources), "node_config": {}, "max_workers": 0}
        return {
            "cluster_name": "test", "max_workers": 8, "upscaling_speed": 1.0, "docker": {}, "auth": {},
            "provider": {
                "type": "external", "module": "provider.Provider", "use_node_id_as_ip": True,
                "disable_node_updaters": True, "disable_launch_config_check": True,
            },
            "available_node_types": {**worker_node_types, "ray.head.default": head},
            "head_node_type": "ray.head.default",
            "file_mounts": {}, "cluster_synced_files": [], "file_mounts_sync_continuously": False,
            "rsync_exclude": [], "rsync_filter": [], "initialization_commands": [], "setup_commands": [],
            "head_setup_commands": [], "worker_setup_commands": [], "head_start_ray_commands": [],
            "worker_start_ray_commands": [],
            **{name: value for name, value in others.items() if name != "autoscaler_v2"},
        }  # fmt: skip
