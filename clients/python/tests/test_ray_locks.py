"""The lock of a node's run directory on a mount without locks."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from millrace._ray_dirs import LOCK, RunDir


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_mount_without_locks(tmp_path: Path, monkeypatch: Any, number: int) -> None:
    """The error names the file, the cause and the cure."""

    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError) as caught:
        RunDir(str(tmp_path), 0)
    for words in (str(tmp_path / "up-0" / LOCK), os.strerror(number), "on a file system with locks"):
        assert words in str(caught.value), caught.value
    assert caught.value.errno == number


def test_a_directory_that_another_process_has(tmp_path: Path) -> None:
    first = RunDir(str(tmp_path), 0)
    second = RunDir(str(tmp_path), 1)
    assert [os.path.basename(d.path) for d in (first, second)] == ["up-0", "up-1"]
    second.leave(remove=False)
    first.leave(remove=False)
