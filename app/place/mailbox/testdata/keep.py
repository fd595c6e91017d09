"""Keeps a run on a Ray of this machine until the end of the input: `keep.py ETCD RUN-DIR`. The run has no trainers."""

from __future__ import annotations

import sys

import ray

import millrace.ray

ATTEMPTS = 5  # on a busy machine, a raylet gives up if its agent needs 15 s


def start() -> None:
    for left in range(ATTEMPTS - 1, -1, -1):
        try:
            ray.init(
                address="local", num_cpus=8, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False
            )
            return
        except Exception:
            ray.shutdown()
            if left == 0:
                raise


start()
with millrace.ray.launch({}, 2, ranks_per_node=1, name="r", cluster={"etcd": [sys.argv[1]]}, run_dir=sys.argv[2]):
    print("kept", flush=True)
    sys.stdin.read()
ray.shutdown()
