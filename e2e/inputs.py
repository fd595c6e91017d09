"""Runs the binary on bad input, and checks its exit status, messages and batches."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Mapping, Sequence, Tuple

from conftest import variant
from harness import DEADLINE, Delivered, Run, write_mixture

SECONDS = DEADLINE  # the meaning of "within seconds" on a busy machine


def mixture_of(sources: Mapping[str, Any], **change: Any) -> Dict[str, Any]:
    return variant(
        {
            "sources": dict(sources),
            "mixture": {"weights": {name: 1 for name in sources}},
            "global_batch_size": 8,
            "micro_batch_size": 1,
            **change,
        }
    )


def clean(stderr: str) -> None:
    """Checks that no Go stack or internal name reaches the user."""
    assert not re.search(r"^(panic: |goroutine \d+ |fatal error: |runtime error)|goroutine \d+ \[", stderr, re.M), (
        stderr
    )


def checked(stage: Any, directory: Path, mixture: Mapping[str, Any]) -> Tuple[int, Dict[str, Any], str]:
    """Runs `check --json` and returns its exit status, output and stderr."""
    path = write_mixture(directory, mixture)
    began = time.monotonic()
    done = subprocess.run(
        [stage.binary, "check", path, "--ranks", "2", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert time.monotonic() - began < SECONDS
    clean(done.stderr)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def ran(stage: Any, directory: Path, mixture: Mapping[str, Any], **kwargs: Any) -> Tuple[int, Delivered, str]:
    """Runs `up` with two trainers and returns its exit status, the delivered batches and stderr."""
    run = Run(stage.binary, write_mixture(directory, mixture), stage.new_dir(), 2, **kwargs)
    try:
        run.__enter__()
    except AssertionError as e:
        if run.process.returncode != 1:
            raise
        said = str(e).split("stderr:\n", 1)[1]  # `up` failed before it was ready, so no rank could connect
        clean(said)
        return 1, Delivered([[], []], [("error", "RunError", said.strip().splitlines()[-1])] * 2), said
    with contextlib.ExitStack() as end:
        end.push(run.__exit__)
        delivered = run.train()
        code = run.wait(SECONDS)
        clean(run.stderr())
        return code, delivered, run.stderr()


def says(text: str, words: Sequence[str]) -> None:
    for word in words:
        assert re.search(word, text), f"{word!r} is missing in: {text}"


def failed_with(end: Any, reason: str) -> None:
    """Checks that a rank ended with a RunError or StartError that has `up`'s reason, even if it connected later."""
    assert isinstance(end, tuple) and end[1] in ("RunError", "StartError") and end[2].endswith(reason), (
        f"{end}, and `up` printed {reason!r}"
    )
