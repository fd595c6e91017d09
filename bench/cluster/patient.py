"""Ray for a busy machine: `ray start` fails if a node does not register within 30 seconds, and that limit has no
setting. With this module a node may take minutes.

    python bench/cluster/patient.py start --block ...        # as the command `ray`
"""

from __future__ import annotations

import time
from typing import Any

from ray._private import services

WITHIN = 400.0  # seconds for a node to register
get_node = services.get_node


def wait_for_node(*args: Any) -> Any:
    until = time.monotonic() + WITHIN
    while True:
        try:
            return get_node(*args)
        except RuntimeError:
            if time.monotonic() > until:
                raise
            time.sleep(1)


services.get_node = wait_for_node

if __name__ == "__main__":
    from ray.scripts.scripts import main

    main()
