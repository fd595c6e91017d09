"""A full disk under a run."""

from __future__ import annotations

import json
import resource
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from conftest import variant
from harness import Run
from inputs import SECONDS, clean, says


def test_full_disk(stage: Any, tmp_path: Path) -> None:
    """The journal cannot be written: the run fails at once, every rank gets the reason, and the journal verifies."""
    golden = stage.delivered(variant({"global_batch_size": 8}), 2)
    directory = stage.new_dir()
    with stage.up(variant({"global_batch_size": 8}), 2, directory) as run:
        trainers = run.start(pause=0.01)
        trainers.collect(until=3)
        roles = json.loads((directory / "run" / "roles.json").read_text())
        written = max(p.stat().st_size for p in (directory / "journal").glob("*.log"))
        for pid in [run.process.pid, *(r["pid"] for r in roles if r["role"] == "orchestrator")]:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (written + 2000, written + 2000))
        first = trainers.collect()
        assert run.wait(SECONDS) == 1
        clean(run.stderr())
        reason = run.stderr().strip().splitlines()[-1]
        says(reason, ["journal", "file too large|no space"])
        for end in first.ends:
            assert isinstance(end, tuple) and end[1] == "RunError" and "journal" in end[2], end
    with stage.up(variant({"global_batch_size": 8}), 2, directory) as run:
        second = run.train(start="latest")
        assert second.ends == ["end"] * 2 and run.wait(SECONDS) == 0
    start = min(step for step, _, _ in second.bytes())
    assert first.bytes().items() <= golden.bytes().items()
    assert second.bytes() == {slot: d for slot, d in golden.bytes().items() if slot[0] >= start}


def test_full_file_system(stage: Any, tmp_path: Path) -> None:
    """The file system of the run directory is full from the start. The run reports it and begins once there is space.
    If the test may not mount, a limit on file sizes replaces it. Then the run reports the limit and exits 1, and no
    rank waits forever."""
    small = tmp_path / "small"
    small.mkdir()
    mixture = stage.mixture(variant({"global_batch_size": 8}))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", small], capture_output=True).returncode == 0:
        try:
            make_room(stage, mixture, small, tmp_path / "stderr")
        finally:
            subprocess.run(["umount", "-l", small], check=True)
        return
    try:
        with Run(stage.binary, mixture, small / "run", 2, launcher=["sh", "-c", 'ulimit -f 40; exec "$0" "$@"']) as run:
            delivered = run.train()
            assert run.wait(SECONDS) == 1, run.stderr()
            clean(run.stderr())
            says(run.stderr().strip().splitlines()[-1], ["no space|file too large"])
            for end in delivered.ends:
                assert isinstance(end, tuple) and end[1] == "RunError", end
    except AssertionError as e:
        if "`up` printed" not in str(e):
            raise
        says(str(e), ["no space|file too large"])  # `up` failed before it was ready


def make_room(stage: Any, mixture: Path, small: Path, said: Path) -> None:
    """Starts a run on a full file system and frees space after its report."""
    with open(said, "w") as stderr:
        up = subprocess.Popen(
            [stage.binary, "up", mixture, "--ranks", "2", "--run-dir", small / "run"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        over = time.monotonic() + SECONDS
        while "no space" not in said.read_text():
            assert time.monotonic() < over and up.poll() is None, said.read_text()
            time.sleep(0.05)
        clean(said.read_text())
        subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
        assert (
            up.stdout is not None
            and select.select([up.stdout], [], [], SECONDS)[0]
            and up.stdout.readline().startswith("ready")
        ), said.read_text()
    finally:
        up.terminate()
        up.wait(SECONDS)
