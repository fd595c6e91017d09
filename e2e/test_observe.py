"""A slow stage between the files and the trainer is named: in the trainer's log, in `stats()` and in `status`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, NamedTuple, Tuple

import pytest

import corpus
from conftest import HERE, variant
from harness import LOOK, SOON, Run, command, write_mixture

TIMES = int(os.environ.get("MILLRACE_OBSERVE_TIMES", "0"))  # runs of each planted stage; `make observe` sets 20
READS_AHEAD = "the loader reads ahead in a file in which reads are slow"
NAMED_WITHIN = 5.0 if TIMES else 2 * SOON  # seconds; only `make observe` holds the promise on any machine


class Planted(NamedTuple):
    """A slow stage and the names that it must get."""

    points: Tuple[str, ...]  # failpoints; each pauses while the file of the scene exists
    pause: str
    activity: str
    source: str = ""  # "*": any, because a reply carries all sources
    role: str = ""


STAGES = {
    "read": Planted(("loader/file/read",), "1500ms", "read", "web", "loader-"),
    "decode": Planted(("loader/decode/before",), "1500ms", "decode", "web", "loader-"),
    "tokenise": Planted(("loader/tokenise/before",), "1500ms", "tokenise", "web", "loader-"),
    "fetch": Planted(("loader/reply/before",), "2500ms", "fetch", "*", "loader-"),
    "build": Planted(("sidecar/filling",), "2500ms", "build", "", "sidecar"),
    "plan": Planted(("orchestrator/journal/before",), "2500ms", "plan", "", "orchestrator"),
    "rank": Planted((), "", "ranks", "", "rank 1"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("observed")
    texts = corpus.real_texts(0, 4000, 40)
    corpus.write_jsonl(directory / "web.jsonl", texts, odd=False)
    corpus.write_megatron(directory / "code", [[len(t) % 50000] * (len(t) + 1) for t in texts], "u2")
    return directory


MIXTURE: Dict[str, Any] = variant({
    # No loader reads the tokens of code: the sidecar reads them in place.
    "sources": {"web": {"path": "web.jsonl"}, "code": {"format": "megatron", "path": "code"}},
    "mixture": {"weights": {"web": 0.5, "code": 0.5}},
    "loaders": 2, "reliability": {"shadows": 0}, "global_batch_size": 8, "micro_batch_size": 2,
    "sequence_length": 1024, "stop": {"steps": 10**6},
    "limits": {"loader_memory": "128MiB", "runway_seconds": 1},
})  # fmt: skip


class Scene:
    """A run of two ranks, of which rank 1 can be made slow, and of which one stage is slow while `slow` exists."""

    def __init__(self, stage: Any, files: Path, directory: Path, planted: Planted) -> None:
        self.stage, self.planted, self.directory = stage, planted, directory
        self.slow = directory / "slow"
        points = ";".join(f"{p}=slow:{planted.pause}:{self.slow}" for p in planted.points)
        self.run = Run(
            stage.binary, write_mixture(files, MIXTURE, f"{directory.name}.yaml"), stage.new_dir(), 2,
            env={"MILLRACE_FAILPOINTS": points, "MILLRACE_LOG": "info"},
        )  # fmt: skip

    def __enter__(self) -> "Scene":
        self.run.__enter__()
        self.trainers = [
            subprocess.Popen(
                [sys.executable, str(HERE / "watched.py"), socket, str(self.log(rank)), str(self.stats_of(rank)), "4"]
            )
            for rank, socket in enumerate(self.run.sockets())
        ]
        self.until("the ranks train", lambda: all(self.stats(r).get("batches", 0) > 20 for r in (0, 1)), SOON * 2)
        return self

    def __exit__(self, *why: Any) -> None:
        for trainer in self.trainers:
            trainer.kill()
            trainer.wait()
        self.run.__exit__(*why)

    def log(self, rank: int) -> Path:
        return self.directory / f"log-{rank}"

    def stats_of(self, rank: int) -> Path:
        return self.directory / f"stats-{rank}"

    def stats(self, rank: int) -> Dict[str, Any]:
        path = self.stats_of(rank)
        return json.loads(path.read_text()) if path.exists() else {}

    def status(self) -> Dict[str, Any]:
        return json.loads(command(self.stage.binary, "status", str(self.run.directory), "--json"))

    def until(self, what: str, holds: Any, within: float) -> None:
        began = time.monotonic()
        while not holds():
            assert time.monotonic() - began < within, (
                f"not within {within} s: {what}\nlog: {self.log(0).read_text() if self.log(0).exists() else ''}\n"
                f"stats: {self.stats(0)}\nstatus: {json.dumps(self.status(), indent=1)}\n{self.run.stderr()}"
            )
            time.sleep(LOOK)

    def is_named(self, cause: Any) -> bool:
        """Whether a cause, as stats() and status have it, names the planted stage, its source and its role."""
        p = self.planted
        if not cause or (cause.get("activity") or cause.get("kind")) != p.activity:
            return False
        source = cause.get("source", "")
        # On a busy machine a read in place takes long. The loader then reads and decodes code, too, which is as slow.
        shares = p.activity in ("read", "decode")
        is_shared = shares and source == "code" and READS_AHEAD in self.run.stderr()
        return (p.source in ("*", source) or is_shared) and cause.get("role", "").startswith(p.role)

    def is_in_status(self) -> bool:
        status = self.status()
        if status["delivery"] is None:  # an orchestrator that is slow to plan is slow to answer
            return self.planted.activity == "plan" and "the orchestrator does not answer" in status["waiting"]
        return self.is_named(status["delivery"].get("slowest"))

    def waits(self) -> None:
        """Wait until rank 0 has run out of batches, which the planted stage does not limit yet."""
        self.slow.touch()
        if not self.planted.points:
            (self.directory / "stats-1.slow").touch()
        before = self.stats(0)["batches"]
        quiet = time.monotonic()
        until = time.monotonic() + 6 * SOON
        while time.monotonic() - quiet < 0.6:  # a busy machine makes shorter pauses
            assert time.monotonic() < until, f"rank 0 does not run out of batches: {self.stats(0)}"
            time.sleep(0.02)
            if (now := self.stats(0)["batches"]) != before:
                before, quiet = now, time.monotonic()


@pytest.mark.parametrize("time_", range(TIMES or 1))
@pytest.mark.parametrize("name", STAGES)
def test_a_slow_stage_is_named(stage: Any, files: Path, tmp_path: Path, name: str, time_: int) -> None:
    """Once a trainer has run dry, the log, stats() and status name the stage; `make observe` allows five seconds."""
    planted = STAGES[name]
    with Scene(stage, files, tmp_path, planted) as scene:
        scene.waits()
        began = time.monotonic()

        def left() -> float:
            return began + NAMED_WITHIN - time.monotonic()

        scene.until("stats() names it", lambda: scene.is_named(scene.stats(0)["last_cause"]), left())
        said = planted.role if planted.source in ("", "*") else f"of source {scene.stats(0)['last_cause']['source']}"
        scene.until("the log names it", lambda: "waiting for" in scene.log(0).read_text()
                    and said in scene.log(0).read_text(), left())  # fmt: skip
        scene.until("status names it", scene.is_in_status, left())
