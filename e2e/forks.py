"""The clean process that forks trainers. It has loaded the client and has none of the test's threads."""

from __future__ import annotations

import functools
import multiprocessing
import os
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

HERE = str(Path(__file__).resolve().parent)
MODULES = ["trainer", "stub"]  # they load the client and NumPy


@functools.lru_cache(maxsize=None)
def processes() -> ForkServerContext:
    """Starts the process at the first call and returns the context whose processes it forks."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(MODULES)
    # The process does not get the sys.path of the test. It ignores modules that it does not find, and each trainer
    # would load them again.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = HERE if before is None else os.pathsep.join([HERE, before])
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return context
