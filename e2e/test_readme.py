"""The quickstart of README.md, run as it is written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def quickstart() -> str:
    """The quickstart's commands without those that build and install."""
    text = (ROOT / "README.md").read_text()
    found = re.search(r"^## Quickstart\n\n```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, "README.md has no quickstart"
    return "".join(line for line in found[1].splitlines(True) if not line.startswith(("go build", "pip install")))


def test_quickstart_runs_as_written(binary: Path, tmp_path: Path) -> None:
    for directory in ("docs", "examples"):
        shutil.copytree(ROOT / directory, tmp_path / directory)
    (tmp_path / "millrace").symlink_to(binary)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "clients/python/src"),
    }
    outputs = []
    for _ in range(2):
        done = subprocess.run(
            ["bash", "-e", "-c", quickstart()],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        outputs.append(done.stdout)
    first, second = outputs
    assert re.search(r"^0 \(1, 1024\) \['pages.jsonl#\d+'", first, re.MULTILINE), "no batch of step 0 was printed"
    assert "(1, 1024)" not in second, "a complete run has no more batches"
