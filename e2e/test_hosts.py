"""A run with ranks on several hosts. Each host has its own `millrace up`, and its own run directory."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

import pytest

from conftest import variant
from harness import DEADLINE, SOON, Delivered, Trainers, command
from test_cluster import frozen, running, status, until
from trainer import CLIENT, Orders

MIXTURE = variant({"global_batch_size": 8, "stop": {"steps": 40}})
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "cluster"
HOSTS, RANKS = 2, 2  # ranks of each host
WORLD = HOSTS * RANKS


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def on_loopback(etcd: str, directory: Path, hosts: int = HOSTS) -> List[Path]:
    """The cluster files of hosts that are all this machine. The kernel chooses the port of every second one."""
    out = []
    for host in range(hosts):
        out.append(directory / f"host-{host}.yaml")
        port = 0 if host % 2 else free_port()
        out[-1].write_text(f"name: run-1\netcd: ['{etcd}']\nlisten: '127.0.0.1:{port}'\n")
    return out


class Spread:
    """The `up` of each host, as one run."""

    def __init__(
        self, stage: Any, mixture: Dict[str, Any], files: Sequence[Path], launchers: Sequence[List[str]] = (),
        ranks: int = RANKS, more: Sequence[str] = (),
    ):
        self.world = ranks * len(files)
        shared = ["--world-size", str(self.world), *more]
        self.runs = [
            stage.up(
                mixture, ranks, first=host * ranks, launcher=launchers[host] if launchers else (),
                args=[*shared, "--first-rank", str(host * ranks), "--cluster", str(file)],
            )
            for host, file in enumerate(files)
        ]

    def sockets(self) -> List[str]:
        return [s for run in self.runs for s in run.sockets()]

    def start(self, orders: Any) -> Trainers:
        return Trainers(self.sockets(), [orders] * self.world)


@contextlib.contextmanager
def spread(*args: Any, **kwargs: Any) -> Iterator[Spread]:
    out = Spread(*args, **kwargs)
    with contextlib.ExitStack() as stack:
        for run in out.runs:
            stack.enter_context(run)
        yield out


def finished(of: Spread, delivered: Delivered) -> None:
    assert delivered.ends == ["end"] * of.world, (delivered.ends, [r.stderr() for r in of.runs])
    for run in of.runs:
        assert run.wait(DEADLINE) == 0, run.stderr()


@pytest.mark.needs("etcd")
def test_hosts_deliver_the_batches_of_one(stage: Any, tmp_path: Path) -> None:
    """Every rank receives the bytes that it receives from one host with all ranks. `status` on each host shows all."""
    golden = stage.delivered(MIXTURE, WORLD)
    with running(stage, tmp_path) as member:
        with spread(stage, MIXTURE, on_loopback(f"http://{member.address}", tmp_path)) as both:
            held = tmp_path / "held"  # the trainers are slow until every status has been seen
            held.touch()
            trainers = both.start(Orders(pause=1.0, hold=str(held)))
            trainers.collect(until=1)
            for run in both.runs:
                until("the status shows all hosts and processes", lambda: shows_all(status(stage, run)), run)
            held.unlink()
            delivered = trainers.collect()
            finished(both, delivered)
    assert delivered.bytes() == golden.bytes()


def shows_all(seen: Dict[str, Any]) -> bool:
    """Whether a status shows both hosts, one leader, progress, and the processes of both hosts."""
    hosts = [(h["state"], h["first_rank"], h["ranks"]) for h in seen["hosts"]]
    names = {r["name"] for r in seen["roles"]}
    return (
        hosts == [("running", 0, RANKS), ("running", RANKS, RANKS)]
        and sum(h["leads"] for h in seen["hosts"]) == 1
        and (seen["step"] or 0) > 0
        and {"sidecar-0", f"sidecar-{RANKS}", "loader-0-0", f"loader-{RANKS}-0"} <= names
    )


@pytest.mark.needs("etcd")
def test_a_host_with_another_mixture_is_refused(stage: Any, tmp_path: Path) -> None:
    other = variant({"global_batch_size": 8, "seed": 12, "stop": {"steps": 40}})
    with running(stage, tmp_path) as member:
        files = on_loopback(f"http://{member.address}", tmp_path)
        args = ["--world-size", str(WORLD), "--cluster"]
        with stage.up(MIXTURE, RANKS, args=[*args, str(files[0])]):
            for wrong, mixture, code, said in (
                (["--first-rank", str(RANKS)], other, 1, "copy one mixture file to all hosts"),
                (["--first-rank", str(RANKS), "--world-size", "6"], MIXTURE, 1, "--world-size is 6, not 4"),
                (["--first-rank", "3"], MIXTURE, 2, "to be at most --world-size"),
            ):
                done = subprocess.run(
                    [str(stage.binary), "up", str(stage.mixture(mixture)), "--ranks", str(RANKS), "--run-dir",
                     str(stage.new_dir()), *args, str(files[1]), *wrong],
                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE,
                )
                assert done.returncode == code and said in done.stderr, (done.returncode, done.stderr)


@pytest.mark.needs("etcd")
def test_a_failure_ends_every_host(stage: Any, tmp_path: Path) -> None:
    """A source file changes under the run. Every rank and every `up` gets the reason, wherever the run is planned."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.jsonl").write_text("".join(json.dumps({"text": f"{i} " * 50}) + "\n" for i in range(4000)))
    mixture = {
        "version": 1, "tokenizer": {"name": "gpt2"}, "sequence_length": 64, "global_batch_size": 8,
        "micro_batch_size": 1, "mixture": {"weights": {"a": 1}}, "sources": {"a": {"path": str(data / "a.jsonl")}},
        "limits": {"loader_memory": "64MiB", "sample_bytes": "1MiB", "runway_seconds": 1},
    }
    with running(stage, tmp_path) as member:
        with spread(stage, mixture, on_loopback(f"http://{member.address}", tmp_path)) as both:
            trainers = both.start(Orders(pause=0.02, patience=DEADLINE))
            trainers.collect(until=5)
            with open(data / "a.jsonl", "r+") as f:
                f.truncate(1000)
            delivered = trainers.collect()
            assert [end[1] for end in delivered.ends] == ["RunError"] * WORLD, delivered.ends
            assert all("a.jsonl" in reason for reason in delivered.reasons()), delivered.reasons()
            for run in both.runs:
                assert run.wait(DEADLINE) == 1, run.stderr()
                assert "a.jsonl" in run.stderr().splitlines()[-1], run.stderr()


@pytest.mark.needs("etcd")
def test_another_number_of_hosts_resumes(stage: Any, tmp_path: Path) -> None:
    """A state of two hosts goes on on one host with another number of ranks, and the other way round. Commands that
    ask the orchestrator work on the host that does not plan."""
    golden = stage.delivered(MIXTURE, WORLD)
    with running(stage, tmp_path) as member:
        files = on_loopback(f"http://{member.address}", tmp_path)
        with spread(stage, MIXTURE, files) as both:
            first = both.start(Orders(states=True, leave_after=(9, 0))).collect()
            assert first.ends == ["left"] * WORLD, first.ends
            for run in both.runs:
                told = command(stage.binary, "ledger", str(run.directory), "--step", "3", "--json")
                assert json.loads(told.splitlines()[0])["step"] == 3, told
        state = json.loads(next(b.state for b in first.ranks[0] if b.step == 9))
        with stage.up(MIXTURE, 2) as alone:
            second = alone.train(state=state)
            assert second.ends == ["end"] * 2, second.ends
        content = {**first.content(), **second.content()}
        assert content == golden.content()
        for file in files:
            file.write_text(file.read_text().replace("run-1", "run-2"))
        with spread(stage, MIXTURE, files) as again:
            third = again.start(Orders(state=state)).collect()
            finished(again, third)
        assert third.bytes() == {slot: d for slot, d in golden.bytes().items() if slot[0] > 9}


TRAINER = """
import sys
sys.path.insert(0, sys.argv[1])
import millrace
print(sum(1 for _ in millrace.connect(tensors="numpy", patience=60)), flush=True)
"""


@pytest.mark.needs("etcd")
def test_the_script_of_a_host(stage: Any, tmp_path: Path) -> None:
    """examples/cluster/node.sh, as Slurm and systemd run it, with a trainer that finds its socket by RANK."""
    script = EXAMPLE / "node.sh"
    file = tmp_path / "cluster.yaml"
    (tmp_path / "train.py").write_text(TRAINER)
    with running(stage, tmp_path) as member:
        file.write_text(f"name: run-1\netcd: ['http://{member.address}']\nlisten: 'replaced:1'\n")
        env = {
            **os.environ, "MIXTURE": str(stage.mixture(MIXTURE)), "CLUSTER": str(file), "RANKS": "1", "HOSTS": "2",
            "MILLRACE": str(stage.binary), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0",
        }
        nodes = [
            subprocess.Popen(
                [str(script), sys.executable, str(tmp_path / "train.py"), str(CLIENT)], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**env, "HOST": str(host), "RANK": str(host), "RUN_DIR": str(stage.new_dir()),
                     "LISTEN": f"127.0.0.1:{free_port()}"},
            )
            for host in range(2)
        ]
        for node in nodes:
            out, err = node.communicate(timeout=DEADLINE)
            assert node.returncode == 0, err
            assert out.splitlines()[0].startswith("ready: 1 ranks") and int(out.splitlines()[-1]) == 40 * 2, (out, err)


@pytest.mark.needs("systemd-analyze")
def test_the_systemd_unit(binary: Path, tmp_path: Path) -> None:
    """systemd finds no mistake in the unit of examples/cluster. Its program is the one of this test."""
    text = (EXAMPLE / "millrace@.service").read_text()
    assert "/usr/local/bin/millrace " in text
    unit = tmp_path / "millrace@run-17.service"
    unit.write_text(text.replace("/usr/local/bin/millrace ", f"{binary} "))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=DEADLINE)
    about = [line for line in done.stderr.splitlines() if unit.name in line]  # other units may have mistakes
    assert done.returncode == 0 and not about, done.stderr


@pytest.mark.needs("etcd")
def test_hosts_train_while_etcd_is_away(stage: Any, tmp_path: Path) -> None:
    """etcd dies in the middle. Every rank uses the planned steps, `status` on the host that plans says frozen, and the
    run goes on when etcd is back."""
    golden = stage.delivered(MIXTURE, WORLD)
    hold = tmp_path / "hold"
    hold.touch()
    with running(stage, tmp_path) as member:
        with spread(stage, MIXTURE, on_loopback(f"http://{member.address}", tmp_path)) as both:
            trainers = both.start(Orders(pause=0.2, hold=str(hold), patience=DEADLINE))
            trainers.collect(until=3)
            member.kill()
            until("frozen", lambda: any(frozen(stage, run) for run in both.runs), both.runs[0])
            seen = max(b.step for b in trainers.delivered.ranks[0])
            trainers.collect(until=seen + 2)  # planned before
            member.start()
            hold.unlink()
            delivered = trainers.collect()
            finished(both, delivered)
    assert delivered.bytes() == golden.bytes()


@pytest.mark.needs("etcd")
@pytest.mark.parametrize("leads", [True, False])
def test_a_host_that_stops_holds_nobody_up(stage: Any, tmp_path: Path, leads: bool) -> None:
    """`up` of one host is stopped early in the run. The ranks of the other host use the runway at their own pace. Then
    the host comes back, and all ranks start again at the step of the slowest."""
    mixture = variant({"global_batch_size": 8, "stop": {"steps": 90}})
    golden = stage.delivered(mixture, WORLD)
    with running(stage, tmp_path) as member:
        files = on_loopback(f"http://{member.address}", tmp_path)
        with spread(stage, mixture, files) as both:
            trainers = both.start(Orders(pause=0.1, patience=DEADLINE))
            trainers.collect(until=3)
            hosts = status(stage, both.runs[0])["hosts"]
            stopped = next(i for i, h in enumerate(hosts) if h["leads"] == leads)
            seen = max(b.step for rank in trainers.delivered.ranks for b in rank)
            began = time.monotonic()
            assert both.runs[stopped].stop() == 0, both.runs[stopped].stderr()
            trainers.collect(until=seen + 40)
            took = time.monotonic() - began
            assert took < 40 * 0.1 + SOON / 2, f"40 steps of 0.1 s took {took:.1f} s\n{both.runs[1 - stopped].stderr()}"
            back = stage.up(mixture, RANKS, both.runs[stopped].directory, first=stopped * RANKS, args=[
                "--world-size", str(WORLD), "--first-rank", str(stopped * RANKS), "--cluster", str(files[stopped])])
            first = trainers.end()
            with back:
                both.runs[stopped] = back
                later = both.start(Orders(start="latest", patience=DEADLINE)).collect()
                finished(both, later)
    assert {**first.bytes(), **later.bytes()} == golden.bytes()
    assert all(later.bytes().get(slot, digest) == digest for slot, digest in first.bytes().items())
