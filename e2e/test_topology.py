"""Another topology at a step boundary, while `up`, the orchestrator and the loaders live on."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Set

from conftest import variant
from harness import DEADLINE, Trainers, command
from test_cluster import running
from test_hosts import finished, on_loopback, spread
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
