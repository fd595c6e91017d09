"""A run whose lease is in etcd: a member of `millrace etcd`, which is killed and paused under the run."""

from __future__ import annotations

import contextlib
import json
import multiprocessing.connection
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

import needs
from conftest import variant
from harness import DEADLINE, Run, before_next_look, command

RANKS = 2
MIXTURE = variant({"global_batch_size": 8, "stop": {"steps": 60}})


def program() -> str:
    """The etcd program of tools/etcd.sh."""
    needs.use("etcd")
    named = os.environ.get("MILLRACE_ETCD", "")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    built = [named] if named else sorted(map(str, cache.glob("millrace/etcd-*/etcd")))
    return built[-1]


class Member:
    """A member for development, with the file of a cluster that has it alone."""

    def __init__(self, stage: Any, directory: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % free.getsockname()[1]
        self._command = [str(stage.binary), "etcd", "--dir", str(directory / "etcd"), "--listen", self.address,
                         "--program", program()]
        self.log = directory / "etcd.log"
        self.file = directory / "cluster.yaml"
        self.file.write_text(f"name: run-1\netcd: ['http://{self.address}']\n")

    def start(self) -> None:
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        ready = multiprocessing.connection.wait([self.process.stdout.fileno()], timeout=DEADLINE)
        line = self.process.stdout.readline() if ready else ""
        assert line == f"ready: etcd on http://{self.address}\n", line

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)

    def kill(self) -> None:
        self.process.kill()  # etcd dies with it
        self.process.wait()


@contextlib.contextmanager
def running(stage: Any, directory: Path) -> Iterator[Member]:
    member = Member(stage, directory)
    member.start()
    try:
        yield member
    finally:
        if member.process.poll() is None:
            member.kill()


@pytest.mark.needs("etcd")
def test_a_member_stops_without_a_word(stage: Any, tmp_path: Path) -> None:
    """etcd itself reports its clean stop as errors with stacks."""
    with running(stage, tmp_path) as member:
        assert member.stop() == 0
        assert member.log.read_text() == ""


def status(stage: Any, run: Run) -> Dict[str, Any]:
    return json.loads(command(stage.binary, "status", str(run.directory), "--json"))


def until(what: str, is_true: Callable[[], bool], run: Run) -> None:
    began = time.monotonic()
    while not is_true():
        waited = time.monotonic() - began
        assert waited < DEADLINE, f"{what}: not within {DEADLINE:.0f} s\n{run.stderr()}"
        before_next_look(waited)


def frozen(stage: Any, run: Run) -> List[str]:
    return [a["text"] for a in status(stage, run)["alerts"] if "frozen: " in a["text"]]


@pytest.mark.needs("etcd")
def test_training_goes_on_while_etcd_is_away(stage: Any, tmp_path: Path) -> None:
    """etcd dies in the middle of a run. The ranks use the planned steps, `status` says frozen, and the run goes on
    when etcd is back. The batches are those of a run without etcd."""
    golden = stage.delivered(MIXTURE, RANKS)
    hold = tmp_path / "hold"
    hold.touch()
    with running(stage, tmp_path) as member:
        run_dir = stage.new_dir()
        with stage.up(MIXTURE, RANKS, run_dir, args=["--cluster", str(member.file)]) as run:
            assert not frozen(stage, run)
            trainers = run.start(pause=0.2, hold=str(hold))
            trainers.collect(until=3)
            before = status(stage, run)
            member.kill()
            until("frozen", lambda: bool(frozen(stage, run)), run)
            seen = max(b.step for b in trainers.delivered.ranks[0])
            trainers.collect(until=seen + 2)  # planned before
            # The lease is lost by now: the next orchestrator waits for another one, and says so.
            until("a restart", lambda: "orchestrator cannot continue now" in run.stderr(), run)
            until("the next one", lambda: run.stderr().count("warning: frozen: ") > 1, run)
            assert frozen(stage, run)
            member.start()
            hold.unlink()
            until("over", lambda: "over: frozen: " in run.stderr() and not frozen(stage, run), run)
            delivered = trainers.collect()
            assert delivered.ends == ["end"] * RANKS, delivered.ends
            assert run.wait(DEADLINE) == 0, run.stderr()
        assert delivered.bytes() == golden.bytes()
        assert "etcd" in run_stderr(run) and "warning: frozen: " in run_stderr(run)
        terms = {r["term"] for r in before["roles"] if r["role"] == "orchestrator"}
        assert terms and min(terms) > 1, terms
        assert member.stop() == 0


@pytest.mark.needs("etcd")
def test_the_end_is_told_by_the_next_process(stage: Any, tmp_path: Path) -> None:
    """The orchestrator warns that etcd is away, and is killed. etcd is back before the next one asks it for the first
    time."""
    with running(stage, tmp_path) as member:
        run_dir = stage.new_dir()
        with stage.up(MIXTURE, RANKS, run_dir, args=["--cluster", str(member.file)]) as run:
            trainers = run.start(pause=0.05)
            trainers.collect(until=3)
            pid, = (r["pid"] for r in status(stage, run)["roles"] if r["role"] == "orchestrator")
            member.kill()
            until("a warning", lambda: "warning: frozen: " in run.stderr(), run)
            with contextlib.suppress(ProcessLookupError):  # on a busy machine, it may have lost the lease by now
                os.kill(pid, signal.SIGSTOP)
                member.start()
                os.kill(pid, signal.SIGKILL)
            delivered = trainers.collect()
            assert delivered.ends == ["end"] * RANKS, delivered.ends
            assert run.wait(DEADLINE) == 0, run.stderr()
        told = [line for line in run_stderr(run).splitlines() if line.startswith(("warning: frozen", "over: frozen"))]
        assert told[-2:] == ["warning: " + told[-1][len("over: "):], told[-1]], told
        assert member.stop() == 0


def run_stderr(run: Run) -> str:
    return Path(f"{run.directory}.stderr").read_text(encoding="utf-8", errors="replace")


@pytest.mark.needs("etcd")
def test_one_of_two_runs_plans(stage: Any, tmp_path: Path) -> None:
    """Two `up` of one name, as when a job starts again on another host while the old one lives. The second says for
    whom it waits, and is ready when the first has ended."""
    with running(stage, tmp_path) as member:
        args = ["--cluster", str(member.file)]
        with stage.up(MIXTURE, RANKS, stage.new_dir(), args=args) as first:
            trainers = first.start(pause=0.05)
            trainers.collect(until=2)
            waiting, stderr = stage.new_dir(), tmp_path / "second.stderr"
            with open(stderr, "w") as out:
                second = subprocess.Popen(
                    [str(stage.binary), "up", str(stage.mixture(MIXTURE)), "--ranks", str(RANKS), "--run-dir",
                     str(waiting), *args],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, stderr=out,
                )
            try:
                over = time.monotonic() + DEADLINE
                while "has it, since term" not in stderr.read_text():
                    assert time.monotonic() < over and second.poll() is None, stderr.read_text()
                    time.sleep(0.1)
                third = subprocess.run(  # is stopped while it waits
                    ["timeout", "-s", "TERM", "2", str(stage.binary), "up", str(stage.mixture(MIXTURE)), "--ranks", "1",
                     "--run-dir", str(stage.new_dir()), *args],
                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE,
                )
                assert third.returncode == 124 and "has it, since term" in third.stderr, third.stderr
                assert trainers.collect().ends == ["end"] * RANKS
                assert second.stdout is not None
                assert not multiprocessing.connection.wait([second.stdout.fileno()], timeout=0)
                assert first.wait(DEADLINE) == 0
                assert multiprocessing.connection.wait([second.stdout.fileno()], timeout=DEADLINE), stderr.read_text()
                assert second.stdout.readline().startswith("ready")
            finally:
                second.send_signal(signal.SIGTERM)
                assert second.wait(DEADLINE) == 0, stderr.read_text()


@pytest.mark.needs("etcd")
def test_a_killed_orchestrator_takes_the_lease_again(stage: Any, tmp_path: Path) -> None:
    """After kill -9 of the orchestrator, the next one takes the lease at once, and the bytes are the same."""
    golden = stage.delivered(MIXTURE, RANKS)
    with running(stage, tmp_path) as member:
        with stage.up(MIXTURE, RANKS, stage.new_dir(), args=["--cluster", str(member.file)]) as run:
            trainers = run.start(pause=0.05)
            trainers.collect(until=3)

            def orchestrator() -> Tuple[int, int]:
                return next((r["pid"], r["term"]) for r in status(stage, run)["roles"] if r["role"] == "orchestrator")

            pid, term = orchestrator()
            os.kill(pid, signal.SIGKILL)
            killed = time.monotonic()
            until("a new term", lambda: orchestrator()[1] > term, run)
            assert time.monotonic() - killed < 4, "it waited for the end of the lease"
            delivered = trainers.collect()
            assert delivered.ends == ["end"] * RANKS, delivered.ends
            assert run.wait(DEADLINE) == 0
        assert delivered.bytes() == golden.bytes()


def test_a_host_stops_while_it_waits_for_etcd(stage: Any, tmp_path: Path) -> None:
    """SIGTERM is no error, also before the host is registered."""
    file = tmp_path / "cluster.yaml"
    file.write_text("name: a\netcd: ['http://127.0.0.1:1']\nlisten: '127.0.0.1:9400'\n")
    up = subprocess.Popen(
        [str(stage.binary), "up", str(stage.mixture(MIXTURE)), "--ranks", "1", "--world-size", "2", "--run-dir",
         str(tmp_path / "run"), "--cluster", str(file)],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )
    try:
        assert up.stderr is not None and "waiting to register" in up.stderr.readline()
        up.send_signal(signal.SIGTERM)
        assert up.wait(DEADLINE) == 0 and up.stderr.read() == ""
    finally:
        up.kill()


@pytest.mark.parametrize(
    "text, want",
    [
        ("etcd: ['http://127.0.0.1:1']\n", 'the key `name` is missing'),
        ("name: a\netcd: ['http://127.0.0.1:1']\nmembers: 3\n", "members"),
        ("name: a\netcd: ['http://127.0.0.1:1']\nlisten: 'host'\n", "write host:port"),
        ("name: a\netcd: ['http://10.1.1.1:1']\n", "is not encrypted"),
        ("name: a\netcd: ['https://10.1.1.1:1']\nuser: u\npassword_file: none.txt\n", "none.txt"),
    ],
)
def test_a_wrong_cluster_file_is_refused(stage: Any, tmp_path: Path, text: str, want: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    done = subprocess.run(
        [str(stage.binary), "up", str(stage.mixture(MIXTURE)), "--ranks", "1", "--run-dir", str(tmp_path / "run"),
         "--cluster", str(file)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE,
    )
    assert done.returncode == 2 and want in done.stderr and "cluster.yaml" in done.stderr, done.stderr
