"""Mounts that lock no files: each place where a file is locked names the file, the cause and the cure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, List

import pytest

from conftest import variant
from harness import DEADLINE

CAUSES = {
    "ENOLCK": "its mount gives no locks, as NFS does without its lock service",
    "EOPNOTSUPP": "its file system cannot lock files",
    "ENOSYS": "its file system cannot lock files",
}
PLACES = {  # the kind of the lock, the command, the file, and the cure
    "run directory": ("try", ["up", "{mixture}", "--run-dir", "{run}"], "run directory {run}", "--run-dir on a file"),
    "journal": ("range", ["up", "{mixture}", "--run-dir", "{run}"], "the journal in {run}/", "--run-dir on a file"),
    "index": ("wait", ["index", "{mixture}"], "{index}/", "set index_dir to"),
    "copies": ("try", ["index", "{mixture}"], "{index}/", "or seekable_copies: false"),
}


def run(stage: Any, errno: str, kind: str, args: List[str]) -> Any:
    launcher = [sys.executable, str(Path(__file__).with_name("locking.py")), errno, kind]
    return subprocess.run([*launcher, str(stage.binary), *args], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=DEADLINE)  # fmt: skip


@pytest.mark.parametrize("errno", CAUSES)
@pytest.mark.parametrize("place", PLACES)
def test_locks_that_the_kernel_refuses(stage: Any, tmp_path: Path, place: str, errno: str) -> None:
    kind, args, file, cure = PLACES[place]
    index = tmp_path / "index"
    mixture = variant({"index_dir": str(index), "seekable_copies": True})
    at = {"mixture": str(stage.mixture(mixture)), "run": str(tmp_path / "run"), "index": str(index)}
    done = run(stage, errno, kind, [a.format(**at) for a in args])
    said = next((line for line in done.stderr.splitlines() if "lock " + file.format(**at) in line), done.stderr)
    for words in ("lock " + file.format(**at), CAUSES[errno], cure):
        assert words in said, (words, said)
    assert done.returncode == 1 and "panic" not in done.stderr, done.stderr


def test_a_lock_that_another_process_has(stage: Any, tmp_path: Path) -> None:
    """A lock that is taken is no fault of the mount."""
    mixture = str(stage.mixture(variant({"index_dir": str(tmp_path / "index")})))
    done = run(stage, "EWOULDBLOCK", "try", ["up", mixture, "--run-dir", str(tmp_path / "run")])
    assert done.returncode == 1 and "mount" not in done.stderr and "cannot lock" not in done.stderr, done.stderr
    assert str(tmp_path / "run") in done.stderr and "--run-dir" in done.stderr, done.stderr
