"""Bounds of a process that its shared memory meets: the error names the bound and the cure."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from typing import Any

import pytest

from conftest import variant
from harness import DEADLINE
from trainer import CLIENT

# The shared memory of a rank has some MiB.
LARGE = variant({"global_batch_size": 8, "micro_batch_size": 2, "sequence_length": 16384, "stop": {"steps": 3}})

TRAINER = """
import resource, sys, millrace
loader = millrace.connect(sys.argv[1], tensors="numpy")
size = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmSize"))
if len(sys.argv) > 2:
    resource.setrlimit(getattr(resource, sys.argv[2]), (int(sys.argv[3]) + size * (sys.argv[2] == "RLIMIT_AS"),) * 2)
try:
    print(sum(1 for batch in loader), "batches")
except millrace.RunError as e:
    print(type(e).__name__, e.reason)
"""


def trained(run: Any, *bound: str) -> str:
    """What a trainer prints, under a bound if one is given."""
    done = subprocess.run(
        [sys.executable, "-c", TRAINER, run.sockets()[0], *bound],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE,
        env={**os.environ, "PYTHONPATH": os.environ.get("MILLRACE_CLIENT", str(CLIENT))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_sidecar_that_may_not_write_such_files(stage: Any) -> None:
    """A bound of the size of files holds for shared memory, too. The sidecar names it, and its successor serves."""
    expected = stage.delivered(LARGE, 1)
    with stage.up(LARGE, 1) as run:
        roles = json.loads((run.directory / "run" / "roles.json").read_text())
        pid = next(r["pid"] for r in roles if r["name"] == "sidecar-0")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (40960, 40960))
        delivered = run.train()
        assert delivered.ends == ["end"] and run.wait() == 0, (delivered.ends, run.stderr())
        for words in ("make ring", "40960 bytes (ulimit -f): raise `ulimit -f`", "sidecar-0 died"):
            assert words in run.stderr(), run.stderr()
    assert delivered.bytes() == expected.bytes()


@pytest.mark.long
def test_a_bound_of_every_sidecar(stage: Any) -> None:
    """If no sidecar may have the memory, the run ends with the bound as its reason, and the trainer gets it."""
    bound = ["sh", "-c", 'ulimit -f 81920; exec "$0" "$@"']
    larger = {**LARGE, "sequence_length": 1 << 19}
    with stage.up(larger, 1, launcher=bound) as run:
        delivered = run.train()
        assert run.wait() == 1, run.stderr()
        assert "ulimit -f" in run.stderr() and "panic" not in run.stderr(), run.stderr()
        for reason in delivered.reasons():
            assert "ulimit -f" in reason, (reason, run.stderr())


def test_a_trainer_that_may_not_map_the_memory(stage: Any) -> None:
    """The client names the bound of addresses. A bound of the size of files is none for a client, which writes none.
    Another trainer then trains."""
    with stage.up(LARGE, 1) as run:
        told = trained(run, "RLIMIT_AS", str(1 << 19))
        assert told.startswith("RunError map the ") and "(ulimit -v): raise `ulimit -v`" in told, told
        assert trained(run, "RLIMIT_FSIZE", "4096") == f"{3 * 4} batches\n", run.stderr()
        assert run.wait() == 0, run.stderr()
