"""Another topology at a step boundary, while `up`, the orchestrator and the loaders live on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Set

import pytest

from conftest import cases, variant
from harness import DEADLINE, Trainers, command
from test_cluster import running
from test_hosts import finished, on_loopback, spread
from test_streams import EVAL, pid_of, training
from trainer import Orders

MIXTURE = variant({"global_batch_size": 8, "micro_batch_size": 1, "pad_multiple": 4, "stop": {"steps": 30}})


def asked_to_leave(run: Any) -> Set[str]:
    """The roles of a host that were replaced, without those that a busy machine starved."""
    said = run.stderr()
    asked = {line.split()[0] for line in said.splitlines() if "was asked to leave" in line}
    return {name for name in asked if f"{name}: it is silent" not in said}


def reshape(stage: Any, run: Any, ranks: int, *more: str) -> None:
    told = command(stage.binary, "topology", str(run.directory), "--ranks", str(ranks), *more)
    assert told.startswith("ready: "), told


def sockets(run: Any, first: int, ranks: int) -> List[str]:
    return [str(run.directory / f"rank-{r}.sock") for r in range(first, first + ranks)]


def state_of(delivered: Any) -> Dict[str, Any]:
    states = {batches[-1].state for batches in delivered.ranks}
    assert len(states) == 1, "ranks differ at a step's end"
    return json.loads(states.pop())


def test_four_two_and_four_ranks_of_one_up(stage: Any) -> None:
    """4 ranks, then 2 with context parallelism, then 4. Each part has the bytes of a run with its topology, and all
    parts together the content of one run. No process but the sidecar is another one."""
    golden = stage.delivered(MIXTURE, 4)
    sliced = {**MIXTURE, "parallelism": {"tp": 1, "cp": 2, "pp": 1}}
    with stage.up(MIXTURE, 4) as up:
        first = up.train(states=True, leave_after=(9, 1))
        reshape(stage, up, 2, "--cp", "2")
        second = Trainers(sockets(up, 0, 2), [Orders(state=state_of(first), states=True, leave_after=(19, 7))] * 2)
        second = second.collect()
        assert second.ends == ["left"] * 2, (second.ends, up.stderr())
        assert sorted(p.name for p in up.directory.glob("rank-*.sock")) == ["rank-0.sock", "rank-1.sock"]
        reshape(stage, up, 4)
        assert asked_to_leave(up) == {"sidecar-0"}, up.stderr()
        third = Trainers(sockets(up, 0, 4), [Orders(state=state_of(second))] * 4).collect()
        assert third.ends == ["end"] * 4, (third.ends, up.stderr())
        assert up.wait(DEADLINE) == 0, up.stderr()
    of_two = stage.delivered(sliced, 2)
    assert first.bytes() == {slot: d for slot, d in golden.bytes().items() if slot[0] <= 9}
    assert second.bytes() == {slot: d for slot, d in of_two.bytes().items() if 9 < slot[0] <= 19}
    assert third.bytes() == {slot: d for slot, d in golden.bytes().items() if slot[0] > 19}
    assert {**first.content(), **second.along(1, 2, 1).content(), **third.content()} == golden.content()


@pytest.mark.needs("etcd")
def test_hosts_take_another_topology(stage: Any, tmp_path: Path) -> None:
    """Two hosts of 2 ranks, then of 1 pipeline stage, then of 2 ranks again. A host with a trainer is refused. No
    process but the sidecars is another one."""
    golden = stage.delivered(MIXTURE, 4)
    with running(stage, tmp_path) as member:
        with spread(stage, MIXTURE, on_loopback(f"http://{member.address}", tmp_path)) as both:
            first = both.start(Orders(states=True, leave_after=(9, 1))).collect()
            assert first.ends == ["left"] * 4, first.ends
            for host, run in enumerate(both.runs):
                reshape(stage, run, 1, "--world-size", "2", "--first-rank", str(host), "--pp", "2")
            one_each = [s for host, run in enumerate(both.runs) for s in sockets(run, host, 1)]
            stays = Orders(state=state_of(first), states=True, stay=True, leave_after=(19, 7))
            trainers = Trainers(one_each, [stays] * 2)
            second = trainers.collect()
            busy = subprocess.run(
                [str(stage.binary), "topology", str(both.runs[0].directory), "--ranks", "4", "--timeout", "0.5s"],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE,
            )
            assert busy.returncode == 1 and "rank 0 of this host is connected" in busy.stderr, busy
            trainers.end()
            for host, run in enumerate(both.runs):
                reshape(stage, run, 2, "--world-size", "4", "--first-rank", str(2 * host))
            assert [asked_to_leave(run) for run in both.runs] == [{"sidecar-0"}, {"sidecar-2"}]
            third = both.start(Orders(state=state_of(second))).collect()
            finished(both, third)
    content = second.along(1, 1, 2).content()
    assert first.bytes() == {slot: d for slot, d in golden.bytes().items() if slot[0] <= 9}
    assert third.bytes() == {slot: d for slot, d in golden.bytes().items() if slot[0] > 19}
    assert {**first.content(), **content, **third.content()} == golden.content()


def told(stage: Any, run: Any, *args: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(stage.binary), "topology", str(run.directory), *args], stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=DEADLINE,
    )


def test_impossible_topologies_are_refused(stage: Any, tmp_path: Path) -> None:
    """Each with the cure, and the run goes on as it was."""
    small = {**MIXTURE, "limits": {"sidecar_memory": "64MiB"}, "sequence_length": 2048}
    golden = stage.delivered(small, 2)
    with stage.up(small, 2) as up:
        first = up.train(states=True, leave_after=(9, 3))
        for args, code, said in (
            (["--ranks", "0"], 2, "--ranks 0: want the number of this host's ranks, at least 1"),
            (["--ranks", "4", "--world-size", "0"], 2, "--world-size 0: want the ranks of all hosts, at least 1"),
            (["--ranks", "4", "--world-size", "2"], 2, "want --first-rank + --ranks to be at most --world-size"),
            (["--ranks", "4", "--tp", "-1"], 2, "want 1 or more each, or leave them out"),
            (["--ranks", "3"], 1, "with 3 ranks and this micro_batch_size"),
            (["--ranks", "4", "--tp", "3"], 1, "give another number of ranks"),
            (["--ranks", "4", "--cp", "4"], 1, "choose a cp that divides it"),
            (["--ranks", "1024", "--tp", "128"], 1, "limits.sidecar_memory 64MiB is too little for 1024 ranks"),
            (["--ranks", "2", "--world-size", "4"], 1, "start the run with --cluster"),
        ):
            done = told(stage, up, *args)
            assert done.returncode == code and said in done.stderr, (args, done.returncode, done.stderr)
        waits = subprocess.Popen(
            [str(stage.binary), "topology", str(up.directory), "--ranks", "4"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        waits.kill()
        waits.communicate()
        second = up.train(state=state_of(first))
        assert second.ends == ["end"] * 2, (second.ends, up.stderr())
        assert up.wait(DEADLINE) == 0, up.stderr()
        done = told(stage, up, "--ranks", "4")
        assert done.returncode == 1 and "no `millrace up` runs on" in done.stderr, done
    assert {**first.bytes(), **second.bytes()} == golden.bytes()


# Kills in the middle of a change, by failpoint. The file sees to it that each strikes once over all processes.
KILLED = {
    "the orchestrator has turned": "orchestrator:orchestrator/turn/after=kill:{file}",
    "the attempt is decided": "orchestrator:orchestrator/attempt/before=kill:{file}@2",
    "the attempt is journaled": "orchestrator:orchestrator/attempt/after=kill:{file}@2",
    "a rank of the next topology joins": "orchestrator:orchestrator/join/before=kill:{file}@6",
    "a loader reads for the next ranks": "loader-0:loader/fetch/before=kill:{file}@12",
}


def changed(stage: Any, up: Any, ranks: int, golden: Any, first: Any) -> None:
    """The run goes on with so many ranks. Nothing is lost, doubled or different."""
    second = Trainers(sockets(up, 0, ranks), [Orders(state=state_of(first), patience=DEADLINE)] * ranks)
    judged(stage, up, second.collect(), golden, first)


def judged(stage: Any, up: Any, second: Any, golden: Any, first: Any) -> None:
    ranks = len(second.ranks)
    assert second.ends == ["end"] * ranks, (second.ends, up.stderr())
    assert up.wait(DEADLINE) == 0, up.stderr()
    assert {**first.content(), **second.content()} == golden.content()
    assert min(second.steps()) == max(first.steps()) + 1
    of_two = stage.delivered(MIXTURE, ranks)
    assert second.bytes() == {slot: d for slot, d in of_two.bytes().items() if slot[0] > 9}


@pytest.mark.parametrize("moment", KILLED)
def test_a_process_is_killed_in_the_middle_of_a_change(stage: Any, tmp_path: Path, moment: str) -> None:
    """kill -9 of a process while 4 ranks become 2. The run goes on with 2 by itself."""
    once = tmp_path / "killed"
    env = {"MILLRACE_FAILPOINTS": KILLED[moment].format(file=once)}
    with stage.up(MIXTURE, 4, env=env) as up:
        first = up.train(states=True, leave_after=(9, 1))
        reshape(stage, up, 2)
        changed(stage, up, 2, stage.delivered(MIXTURE, 4), first)
    assert once.exists(), "nothing was killed"


def test_the_next_sidecar_is_killed_while_ranks_join(stage: Any, tmp_path: Path) -> None:
    """kill -9 of the sidecar with the next ranks, in the middle of their joins. They join the next one."""
    hold = tmp_path / "hold"
    env = {"MILLRACE_FAILPOINTS": f"sidecar-0:sidecar/joined=slow:1s:{hold}"}
    with stage.up(MIXTURE, 4, env=env) as up:
        first = up.train(states=True, leave_after=(9, 1))
        hold.touch()
        reshape(stage, up, 2)
        orders = Orders(state=state_of(first), patience=DEADLINE)
        second = Trainers(sockets(up, 0, 2), [orders] * 2)
        time.sleep(0.5)
        os.kill(pid_of(up, "sidecar-0"), signal.SIGKILL)
        hold.unlink()
        judged(stage, up, second.collect(), stage.delivered(MIXTURE, 4), first)
        assert "sidecar-0 died (SIGKILL)" in up.stderr(), up.stderr()


@pytest.mark.parametrize("moment", cases(["before", "after"], short=["after"]))
def test_up_is_killed_in_the_middle_of_a_change(stage: Any, tmp_path: Path, moment: str) -> None:
    """kill -9 of the `up` that replaces its sidecar. The command says that it has ended. The next `up` has the ranks of
    its own flags: no request of the earlier one is left."""
    env = {"MILLRACE_FAILPOINTS": f"up:supervisor/change/{moment}=kill:{tmp_path / 'killed'}"}
    directory = stage.new_dir()
    with stage.up(MIXTURE, 4, directory, env=env) as up:
        first = up.train(states=True, leave_after=(9, 1))
        done = told(stage, up, "--ranks", "2")
        assert done.returncode == 1 and "has ended: start it again" in done.stderr, done
        up.kill()
    with stage.up(MIXTURE, 2, directory) as up:
        changed(stage, up, 2, stage.delivered(MIXTURE, 4), first)


@pytest.mark.needs("etcd")
@pytest.mark.parametrize("moment", ["turn/after=kill:{file}", "attempt/after=kill:{file}@2"])
def test_the_leading_orchestrator_is_killed_in_a_change_of_two_hosts(stage: Any, tmp_path: Path, moment: str) -> None:
    """kill -9 of the leader of two hosts of 2 ranks that become hosts of 1: when it has turned, and when the attempt is
    in the journal. The next leader learns the topology from the ranks, or reads it."""
    golden, once = stage.delivered(MIXTURE, 4), tmp_path / "killed"
    env = f"MILLRACE_FAILPOINTS=orchestrator:orchestrator/{moment.format(file=once)}"
    with running(stage, tmp_path) as member:
        files = on_loopback(f"http://{member.address}", tmp_path)
        with spread(stage, MIXTURE, files, [["env", env]] * 2) as both:
            first = both.start(Orders(states=True, leave_after=(9, 1))).collect()
            assert first.ends == ["left"] * 4, first.ends
            for host, run in enumerate(both.runs):
                reshape(stage, run, 1, "--world-size", "2", "--first-rank", str(host))
            one_each = [s for host, run in enumerate(both.runs) for s in sockets(run, host, 1)]
            orders = Orders(state=state_of(first), patience=DEADLINE)
            second = Trainers(one_each, [orders] * 2).collect()
            assert second.ends == ["end"] * 2, (second.ends, [run.stderr() for run in both.runs])
            for run in both.runs:
                assert run.wait(DEADLINE) == 0, run.stderr()
    assert once.exists(), "nothing was killed"
    assert {**first.content(), **second.content()} == golden.content()
    assert second.bytes() == {slot: d for slot, d in stage.delivered(MIXTURE, 2).bytes().items() if slot[0] > 9}


@pytest.mark.needs("etcd")
def test_up_of_one_host_is_killed_before_its_change(stage: Any, tmp_path: Path) -> None:
    """One host of two has its next ranks, and the `up` of the other is killed -9 while it replaces its sidecar. The
    next `up` there has the ranks of the next world. While etcd is away, a change is refused with the cure."""
    golden = stage.delivered(MIXTURE, 4)
    env = f"MILLRACE_FAILPOINTS=up:supervisor/change/before=kill:{tmp_path / 'killed'}"
    with running(stage, tmp_path) as member:
        files = on_loopback(f"http://{member.address}", tmp_path)
        with spread(stage, MIXTURE, files, [[], ["env", env]]) as both:
            first = both.start(Orders(states=True, leave_after=(9, 1))).collect()
            reshape(stage, both.runs[0], 1, "--world-size", "2", "--first-rank", "0")
            done = told(stage, both.runs[1], "--ranks", "1", "--world-size", "2", "--first-rank", "1")
            assert done.returncode == 1 and "has ended: start it again" in done.stderr, done
            both.runs[1].kill()
            args = ["--world-size", "2", "--first-rank", "1", "--cluster", str(files[1])]
            with stage.up(MIXTURE, 1, both.runs[1].directory, first=1, args=args) as again:
                one_each = [*sockets(both.runs[0], 0, 1), *again.sockets()]
                second = Trainers(one_each, [Orders(state=state_of(first), patience=DEADLINE)] * 2).collect()
                assert second.ends == ["end"] * 2, (second.ends, both.runs[0].stderr(), again.stderr())
                for run in (both.runs[0], again):
                    assert run.wait(DEADLINE) == 0, run.stderr()
    assert {**first.content(), **second.content()} == golden.content()


@pytest.mark.needs("etcd")
def test_etcd_is_away(stage: Any, tmp_path: Path) -> None:
    """A host cannot agree with the others then. The command says so, with the cure."""
    with running(stage, tmp_path) as member:
        with spread(stage, MIXTURE, on_loopback(f"http://{member.address}", tmp_path)) as both:
            member.stop()
            change = ["--ranks", "1", "--world-size", "2", "--first-rank", "0", "--timeout", "1s"]
            done = told(stage, both.runs[0], *change)
            assert done.returncode == 1 and "etcd" in done.stderr and "call this again" in done.stderr, done


STREAMS = training(loaders=1, stop={"steps": 16}, streams={"eval": {**EVAL, "micro_batch_size": 1}})


def of_stream(sockets: List[str]) -> List[str]:
    return [str(Path(s).parent / "streams" / "eval" / Path(s).name) for s in sockets]


@pytest.mark.parametrize("hosts", [
    pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.needs("etcd")),
])  # fmt: skip
def test_streams_take_another_topology(stage: Any, tmp_path: Path, hosts: int) -> None:
    """Training and evaluation with 4 ranks, then with 2. A trainer of the evaluation holds the change up."""
    golden = stage.delivered(training(loaders=1, stop={"steps": 16}), 4)
    with contextlib.ExitStack() as stack:
        if hosts == 1:
            runs = [stack.enter_context(stage.up(STREAMS, 4))]
        else:
            member = stack.enter_context(running(stage, tmp_path))
            files = on_loopback(f"http://{member.address}", tmp_path)
            runs = stack.enter_context(spread(stage, STREAMS, files)).runs
        four = [s for run in runs for s in run.sockets()]
        first = Trainers(four, [Orders(states=True, leave_after=(9, 1))] * 4).collect()
        assert first.ends == ["left"] * 4, first.ends
        evaluating = Trainers(of_stream(four), [Orders(stay=True, leave_after=(0, 1))] * 4)
        evaluating.collect()
        change = [["--ranks", str(2 // hosts), "--first-rank", str(host), "--world-size", "2"]
                  for host in range(hosts)]
        busy = told(stage, runs[0], *change[0], "--timeout", "0.5s")
        assert busy.returncode == 1 and "is connected to stream eval" in busy.stderr, busy
        evaluating.end()
        before = Trainers(of_stream(four), [Orders()] * 4).collect()
        for run, args in zip(runs, change):
            done = told(stage, run, *args)
            assert done.returncode == 0, done
        for run in runs:
            waits = json.loads(command(stage.binary, "status", str(run.directory), "--json"))["waiting"]
            assert "waiting for the ranks of another topology, 2 ranks" in waits, waits
        two = [s for host, run in enumerate(runs) for s in sockets(run, host, 2 // hosts)]
        after = Trainers(of_stream(two), [Orders(start="fresh", patience=DEADLINE)] * 2).collect()
        second = Trainers(two, [Orders(state=state_of(first), patience=DEADLINE)] * 2).collect()
        assert (before.ends, after.ends, second.ends) == (["end"] * 4, ["end"] * 2, ["end"] * 2)
        for run in runs:
            assert run.wait(DEADLINE) == 0, run.stderr()
    assert {**first.content(), **second.content()} == golden.content()
    assert before.content() == after.content() and len(after.content()) > 1
