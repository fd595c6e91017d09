"""Trainers of other users than that of `millrace up`, as in another container of a pod."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import variant
from harness import DEADLINE
from trainer import CLIENT

USER = 4242
MIXTURE = variant({"global_batch_size": 8, "stop": {"steps": 12}})
TRAIN = """
import os, sys
sys.path.insert(0, sys.argv[2])
import millrace
os.setgroups([])
os.setgid(int(sys.argv[3]))
os.setuid(int(sys.argv[3]))
print(sum(1 for _ in millrace.connect(sys.argv[1], tensors="numpy")))
"""


@pytest.mark.needs("root")  # which alone can act as another user
def test_a_listed_user_trains(stage: Any) -> None:
    """A listed user gets all batches. Another one is refused with the cure."""
    directory = stage.new_dir()
    directory.mkdir(parents=True, exist_ok=True)
    for part in [directory, *directory.parents]:  # pytest's directories are private
        if part.stat().st_mode & 0o011 != 0o011:
            part.chmod(part.stat().st_mode | 0o011)

    def train(user: int) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", TRAIN, str(directory / "rank-0.sock"), str(CLIENT), str(user)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE,
        )

    with stage.up(MIXTURE, 1, directory, args=["--allow-uids", str(USER)]) as run:
        refused = train(USER + 1)
        assert f"belongs to user {USER + 1}, which may not connect" in refused.stderr, refused.stderr
        trained = train(USER)
        assert int(trained.stdout) > 3, trained.stderr
        assert run.wait(DEADLINE) == 0, run.stderr()
    with stage.up(MIXTURE, 1, Path(stage.new_dir())) as run:
        directory = run.directory
        directory.chmod(0o711)
        assert "start that with --allow-uids" in train(USER).stderr
