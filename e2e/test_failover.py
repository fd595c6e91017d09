"""Loaders and shadows of a real run die and return. Trainers get the same bytes, and `status` reports the change."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, TypeVar

import pytest

from conftest import variant
from harness import SOON, Delivered, Run, Trainers, before_next_look, command, write_mixture

RANKS = 2

T = TypeVar("T")


def training(**change: Any) -> Dict[str, Any]:
    """Two loaders over every format, about 70 steps, and a shadow."""
    return variant(
        {"loaders": 2, "global_batch_size": 8, "micro_batch_size": 2, "reliability": {"shadows": 1}, **change}
    )


@pytest.fixture(scope="module")
def golden(stage: Any) -> Delivered:
    return stage.delivered(training(), RANKS)


class Watch:
    """A run as `status` shows it, and its trainers' log."""

    def __init__(self, stage: Any, run: Run) -> None:
        self.stage, self.run = stage, run
        self.log = Path(f"{run.directory}.log")

    def start(self, pause: float, **orders: Any) -> Trainers:
        return self.run.start(pause=pause, log=str(self.log), **orders)

    def status(self) -> Dict[str, Any]:
        return json.loads(command(self.stage.binary, "status", str(self.run.directory), "--json"))

    def until(self, what: Callable[[Dict[str, Any]], T], within: float = SOON) -> T:
        """Waits until `what` returns a true value for the status, and returns that value."""
        began = time.monotonic()
        while True:
            status = self.status()
            found = what(status)
            if found:
                return found
            assert time.monotonic() - began < within, (
                f"not within {within} s:\n{json.dumps(status, indent=1)}\n{self.run.stderr()}"
            )
            before_next_look(time.monotonic() - began)

    def protected(self) -> Dict[str, Any]:
        """Waits until every stripe has a loader and a standby, and no alert is active. Returns the status."""

        def whole(s: Dict[str, Any]) -> Optional[Dict[str, Any]]:
            stripes = s["stripes"]
            return s if stripes and all(p["loader"] and p["shadow"] for p in stripes) and not s["alerts"] else None

        return self.until(whole)

    def pid(self, name: str) -> int:
        """Waits for a process of this name and returns its pid."""
        return self.until(
            lambda s: next((r["pid"] for r in s["roles"] if r["name"] == name and r["state"] == "running"), 0)
        )

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


def titles(pids: List[int]) -> List[str]:
    """The command line that `ps` shows."""
    return subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", ",".join(map(str, pids))], capture_output=True, text=True
    ).stdout.splitlines()


def holder(status: Dict[str, Any], source: str) -> str:
    return next(p["loader"] for p in status["stripes"] if p["source"] == source)


def test_loaders_come_and_go(stage: Any, golden: Delivered) -> None:
    """Loaders are killed and stopped, alone and together. No byte differs. Killed loaders return as shadows, and `up`
    prints the warnings and their end."""
    slow = "shadow-0:loader/ready/before=sleep:2s@1"  # a slow shadow is reported as missing
    with stage.up(training(), RANKS, env={"MILLRACE_FAILPOINTS": slow}) as run:
        watch = Watch(stage, run)
        (held := Path(f"{run.directory}.hold")).touch()
        trainers = watch.start(pause=0.3, hold=str(held))
        assert "unprotected" in watch.until(lambda s: [a["kind"] for a in s["alerts"]])
        loader = holder(watch.protected(), "plain")
        trainers.collect(until=3)

        killed = watch.pid(loader)
        os.kill(killed, signal.SIGKILL)
        taken = watch.until(lambda s: s if holder(s, "plain") == "shadow-0" else None)
        assert next(r["role"] for r in taken["roles"] if r["name"] == "shadow-0") == "loader"
        after = watch.protected()
        assert (
            holder(after, "plain") == "shadow-0"
            and next(r["role"] for r in after["roles"] if r["name"] == loader) == "shadow"
        )
        titled = titles([watch.pid("shadow-0"), watch.pid(loader)])
        assert any(t.startswith("millrace role loader") and "shadow-0" in t for t in titled), titled
        assert any(t.startswith("millrace role shadow") and loader in t for t in titled), titled

        stopped = watch.pid("shadow-0")
        os.kill(stopped, signal.SIGSTOP)
        watch.until(lambda s: holder(s, "plain") == loader)
        fresh = watch.until(
            lambda s: next(
                (
                    r["pid"]
                    for r in s["roles"]
                    if r["name"] == "shadow-0" and r["pid"] != stopped and r["state"] == "running"
                ),
                0,
            )
        )
        assert os.path.exists(f"/proc/{stopped}") and fresh != stopped
        watch.protected()
        os.kill(stopped, signal.SIGCONT)
        gone = time.monotonic() + SOON
        while os.path.exists(f"/proc/{stopped}"):
            assert time.monotonic() < gone, "the fenced process does not exit"
            time.sleep(0.02)

        first = watch.status()["step"]
        os.kill(fresh, signal.SIGKILL)
        watch.until(lambda s: any(a["kind"] == "unprotected" for a in s["alerts"]))
        watch.protected()
        both = [watch.pid(loader), watch.pid("shadow-0")]
        for pid in both:
            os.kill(pid, signal.SIGKILL)
        held.unlink()
        delivered = trainers.collect()
        assert first < len(golden.steps()) - 2, "the last death came at the end of the run"
        assert delivered.ends == ["end"] * RANKS and run.wait() == 0, run.stderr()
        assert delivered.bytes() == golden.bytes()
        said, log = run.stderr(), watch.said()
    assert (
        said.count("warning: some stripes have no shadow") >= 2 and said.count("over: some stripes have no shadow") >= 2
    ), said
    assert "alert (unprotected)" in log and "alert is over (unprotected)" in log, log
    assert f"shadow-0 (pid {stopped}) was fenced" in said and f"the fenced shadow-0 (pid {stopped}) has left" in said, (
        said
    )


def test_source_away(stage: Any, golden: Delivered, tmp_path: Path) -> None:
    """A source's directory vanishes while its loader restarts. The run names the source, waits, and continues when the
    directory is back."""
    shutil.copytree(stage.corpus, tmp_path / "corpus")
    mixture = write_mixture(tmp_path / "corpus", training(loaders=1, reliability={"shadows": 0}))
    with Run(stage.binary, mixture, stage.new_dir(), RANKS) as run:
        watch = Watch(stage, run)
        trainers = watch.start(pause=0.02)
        trainers.collect(until=3)
        (tmp_path / "corpus" / "tables").rename(tmp_path / "tables")
        os.kill(watch.pid("loader-0"), signal.SIGKILL)
        alert = watch.until(lambda s: [a for a in s["alerts"] if a["kind"] == "source"])[0]["text"]
        assert "source tables cannot be read by loader-0" in alert and "tables" in alert.split(":", 1)[1], alert
        waits = time.monotonic() + SOON
        while "waiting for" not in watch.said() or "alert (source)" not in watch.said():
            assert time.monotonic() < waits, f"the trainer's log has: {watch.said()}"
            time.sleep(0.05)
        (tmp_path / "tables").rename(tmp_path / "corpus" / "tables")
        delivered = trainers.collect()
        assert delivered.ends == ["end"] * RANKS and run.wait() == 0, run.stderr()
        assert delivered.bytes() == golden.bytes()
        assert "warning: source tables" in run.stderr() and "over: source tables" in run.stderr()
        assert "alert is over (source)" in watch.said() and "waiting is over" in watch.said(), watch.said()


def test_sidecar_without_memory(stage: Any) -> None:
    """A sidecar without shared memory is replaced, and no trainer sees a failed run."""
    large = training(sequence_length=4096, global_batch_size=64, micro_batch_size=32, stop={"steps": 3})
    expected = stage.delivered(large, RANKS)
    with stage.up(large, RANKS) as run:
        watch = Watch(stage, run)
        pid = watch.pid("sidecar-0")
        size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (size + (4 << 20), resource.RLIM_INFINITY))
        delivered = watch.start(pause=0.0).collect()
        assert delivered.ends == ["end"] * RANKS and run.wait() == 0, run.stderr()
        assert delivered.bytes() == expected.bytes()
        said = run.stderr()
    assert "sidecar-0" in said and "restarted" in said, said
