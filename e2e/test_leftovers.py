"""After any end of `up`, only the journal is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from conftest import variant
from harness import DEADLINE, SOON, Run, command, processes_of

RANKS = 2


def mixture(**change: Any) -> Dict[str, Any]:
    return variant({"global_batch_size": 8, "micro_batch_size": 1, **change})


def named_memory(run: Run) -> List[str]:
    """The run's open or mapped named shared memory. Millrace uses unnamed memory, which cannot be left behind."""
    out = []
    for pid in [run.process.pid, *run.children()]:
        try:
            out += [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "/dev/shm/" in line]
            out += [
                link
                for link in (os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
                if link.startswith("/dev/shm/")
            ]
        except OSError:
            pass  # it has ended
    return out


def our_memfds() -> List[str]:
    """Every memfd of a millrace process that is not a trainer, by process."""
    out = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and Path("/proc", entry, "comm").read_text().strip() == "millrace":
                fds = Path("/proc", entry, "fd")
                out += [
                    f"{entry}: {os.readlink(fds / fd)}" for fd in os.listdir(fds) if "memfd:" in os.readlink(fds / fd)
                ]
        except OSError:
            pass  # it has ended
    return out


def check_clean(run: Run, failed: bool = False) -> None:
    """Checks that only the journal is left and, after a failure, the reason: no process, socket or runtime
    directory."""
    left = run.leftovers()
    assert not left
    assert sorted(p.name for p in run.directory.iterdir()) == ["journal", "outcome.json"][: 1 + failed], sorted(
        run.directory.rglob("*")
    )


def end_finished(run: Run) -> int:
    run.train()
    return run.wait()


def by_signal(number: int) -> Callable[[Run], int]:
    def end(run: Run) -> int:
        run.start(pause=0.005).collect(until=5)
        run.process.send_signal(number)
        return run.wait()

    return end


def end_unused(run: Run) -> int:
    """SIGTERM before any rank connected."""
    run.process.send_signal(signal.SIGTERM)
    return run.wait()


def end_two_signals(run: Run) -> int:
    """A second SIGINT while `up` is stopping."""
    run.start(pause=0.005).collect(until=3)
    run.process.send_signal(signal.SIGINT)
    run.process.send_signal(signal.SIGINT)
    return run.wait()


ENDS = {
    "finished": (end_finished, 0),
    "SIGINT": (by_signal(signal.SIGINT), 0),
    "SIGTERM": (by_signal(signal.SIGTERM), 0),
    "unused": (end_unused, 0),
    "two signals": (end_two_signals, 0),
}


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left(stage: Any, end: str) -> None:
    act, want = ENDS[end]
    with stage.up(mixture(), RANKS, stage.new_dir()) as run:
        sockets = sorted(p.name for p in run.directory.glob("*.sock"))
        assert sockets == [f"rank-{r}.sock" for r in range(RANKS)]
        for path in run.directory.glob("*.sock"):
            assert path.stat().st_mode & 0o777 == 0o600
        code = act(run)
        assert code == want, run.stderr()
        check_clean(run)


@pytest.mark.parametrize("busy", [False, True])
def test_nothing_is_left_after_kill(stage: Any, busy: bool) -> None:
    """kill -9 of `up`: its children notice, clean up and exit."""
    with stage.up(mixture(), RANKS, stage.new_dir()) as run:
        if busy:
            run.start(pause=0.005).collect(until=5)
        run.kill_up()
        began = time.monotonic()
        while processes_of(run.directory) and time.monotonic() - began < SOON:
            time.sleep(0.02)
        assert time.monotonic() - began < SOON
        check_clean(run)


def test_nothing_is_left_after_kill_of_all(stage: Any) -> None:
    """kill -9 of everything at once. Sockets stay, and the next `up` cleans up by itself."""
    directory = stage.new_dir()
    with stage.up(mixture(), RANKS, directory) as run:
        run.start(pause=0.005).collect(until=5)
        run.kill()
        time.sleep(0.1)
        assert not processes_of(directory)
    with stage.up(mixture(), RANKS, directory) as run:
        delivered = run.train(start="latest")
        assert delivered.ends == ["end"] * RANKS and run.wait() == 0
        check_clean(run)


def test_nothing_is_left_after_failure(stage: Any) -> None:
    broken = mixture()
    broken["sources"]["books"]["on_exhausted"] = "error"
    with stage.up(broken, RANKS, stage.new_dir()) as run:
        run.train()
        assert run.wait() == 1
        check_clean(run, failed=True)


def test_second_up_is_refused(stage: Any) -> None:
    """A second `up` on a directory reports the owner and disturbs nothing."""
    path, directory = stage.mixture(mixture()), stage.new_dir()
    golden = stage.delivered(mixture(), RANKS)
    with Run(stage.binary, path, directory, RANKS) as run:
        trainers = run.start(pause=0.005)
        trainers.collect(until=3)
        for _ in range(2):
            began = time.monotonic()
            second = subprocess.run(
                [stage.binary, "up", path, "--ranks", str(RANKS), "--run-dir", directory],
                capture_output=True,
                text=True,
                timeout=DEADLINE,
            )
            assert second.returncode == 1 and not second.stdout, second
            assert "in use" in second.stderr and str(run.process.pid) in second.stderr, second.stderr
            assert time.monotonic() - began < SOON
        delivered = trainers.collect()
        assert delivered.ends == ["end"] * RANKS and run.wait() == 0
        assert delivered.bytes() == golden.bytes()


def test_up_after_up(stage: Any) -> None:
    """A directory serves several runs in turn: stopped, continued, finished, and started again."""
    directory = stage.new_dir()
    golden = stage.delivered(mixture(), RANKS).bytes()
    with stage.up(mixture(), RANKS, directory) as run:
        run.start(pause=0.002).collect(until=6)
        assert run.stop() == 0
    with stage.up(mixture(), RANKS, directory) as run:
        refused = run.train()
        assert all(isinstance(end, tuple) and "start" in end[2] for end in refused.ends), refused.ends
        delivered = run.train(start="latest")
        assert delivered.ends == ["end"] * RANKS and run.wait() == 0
        assert delivered.bytes().items() <= golden.items() and max(golden) in delivered.bytes()
    with stage.up(mixture(), RANKS, directory) as run:
        delivered = run.train(start="fresh")
        assert delivered.ends == ["end"] * RANKS and run.wait() == 0
        assert delivered.bytes() == golden


def test_directories(stage: Any, tmp_path: Path) -> None:
    """An empty directory of any mode works, also with a long name. A file is refused."""
    long = tmp_path / ("long-" * 20) / ("name-" * 20)
    for directory, mode in (
        (tmp_path / "open", 0o777),
        (tmp_path / "closed", 0o700),
        (tmp_path / "with spaces, ümläute and *[stars]*", 0o755),
        (long, 0o755),
    ):
        directory.mkdir(parents=True)
        directory.chmod(mode)
        with stage.up(mixture(stop={"steps": 2}), 1, directory) as run:
            assert run.train().ends == ["end"] and run.wait() == 0
            check_clean(run)
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [stage.binary, "up", stage.mixture(mixture()), "--run-dir", tmp_path / "file"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode in (1, 2) and str(tmp_path / "file") in done.stderr and "goroutine" not in done.stderr


ROLES = {"loader", "shadow", "orchestrator", "sidecar"}
STATES = {"starting", "running", "stopping"}


def check_status(status: Dict[str, Any], running: bool = True) -> None:
    assert set(status) >= {"roles", "step", "sources", "quarantined"}, sorted(status)
    assert set(status["quarantined"]) >= {"count", "recent"} and isinstance(status["quarantined"]["recent"], list)
    for role in status["roles"]:
        assert set(role) >= {"role", "name", "pid", "state", "term"}, role
        assert role["role"] in ROLES and role["state"] in STATES and isinstance(role["pid"], int), role
    for source in status["sources"].values():
        assert set(source) >= {"tokens", "samples", "epoch", "share"}, source
    # Compares names, because a takeover may leave no process in the role of a shadow.
    assert {r["name"].partition("-")[0] for r in status["roles"]} == (ROLES if running else set())


def test_status(stage: Any) -> None:
    """`status --json` has the same shape before, during and after a run, and after the death of a child. `ps` shows the
    roles."""
    directory = stage.new_dir()
    with stage.up(mixture(), RANKS, directory) as run:
        check_status(json.loads(command(stage.binary, "status", str(directory), "--json")))
        (held := Path(f"{directory}.hold")).touch()
        trainers = run.start(pause=0.1, hold=str(held))
        trainers.collect(until=3)
        status = json.loads(command(stage.binary, "status", str(directory), "--json"))
        check_status(status)
        assert status["step"] >= 1 and set(status["sources"]) == set(mixture()["sources"])
        for role in status["roles"]:
            shown = subprocess.run(["ps", "-o", "args=", "-p", str(role["pid"])], capture_output=True, text=True)
            if shown.returncode == 0:
                assert shown.stdout.startswith(f"millrace role {role['role']} "), shown.stdout
            line = Path(f"/proc/{role['pid']}/cmdline").read_bytes()
            assert line.startswith(f"millrace\0role\0{role['role']}\0".encode()), line
            assert Path(f"/proc/{role['pid']}/comm").read_text().strip() == "millrace"
        for role in status["roles"]:
            os.kill(role["pid"], signal.SIGKILL)
            check_status(json.loads(command(stage.binary, "status", str(directory), "--json")))
        held.unlink()
        delivered = trainers.collect()
        assert delivered.ends == ["end"] * RANKS and run.wait() == 0
    check_status(json.loads(command(stage.binary, "status", str(directory), "--json")), False)


def test_status_of_nothing(stage: Any, tmp_path: Path) -> None:
    """A directory without a run, or a missing one, is an error."""
    for directory in (tmp_path, tmp_path / "none"):
        done = subprocess.run(
            [stage.binary, "status", directory, "--json"], capture_output=True, text=True, timeout=DEADLINE
        )
        assert done.returncode in (1, 2) and str(directory) in done.stderr, done


def test_no_memfd_outlives(stage: Any) -> None:
    """Without a run, no millrace process holds shared memory."""
    with stage.up(mixture(), RANKS, stage.new_dir()) as run:
        run.start(start="fresh").collect(until=2)
        mine = set(map(str, run.children()))
        assert not named_memory(run)
        assert [m for m in our_memfds() if m.split(":")[0] in mine], "the frames are memfds"
        run.stop()
        assert not [m for m in our_memfds() if m.split(":")[0] in mine]
