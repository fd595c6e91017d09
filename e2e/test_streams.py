"""Further streams of a run: an evaluation in the middle of training changes no byte of it, also after failures."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import millrace
import pytest

from conftest import cases, variant
from harness import DEADLINE, LOOK, SOON, Run, command

RANKS = 2
EVERY = 10
EVAL = {
    "mixture": {"weights": {"plain": 1, "books": 1}},
    "sources": {
        "plain": variant({})["sources"]["plain"],
        "books": variant({})["sources"]["books"],
    },
    "global_batch_size": 8,
    "micro_batch_size": 4,
    "sequence_length": 64,
    "stop": {"steps": 3},
}


def training(**change: Any) -> Dict[str, Any]:
    """About 70 steps, by two loaders."""
    return variant({"loaders": 2, "global_batch_size": 8, "micro_batch_size": 1, **change})


@dataclasses.dataclass
class Told:
    """The lines of one rank's trainer."""

    train: List[Any]
    evals: List[List[str]]
    state: Optional[str]


class Ranks:
    """Trainers of all ranks, each a process with evaluating.py."""

    def __init__(self, run: Any, **orders: Any) -> None:
        script = str(Path(__file__).parent / "evaluating.py")
        client = str(Path(__file__).resolve().parent.parent / "clients" / "python" / "src")
        self.children = [
            subprocess.Popen(
                [sys.executable, script, json.dumps({"socket": socket, **orders})],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "PYTHONPATH": client},
            )
            for socket in run.sockets()
        ]  # fmt: skip
        self.lines: List[List[Dict[str, Any]]] = [[] for _ in self.children]

    def until_paused(self) -> None:
        for child, lines in zip(self.children, self.lines):
            assert child.stdout is not None
            while not lines or "paused" not in lines[-1]:
                line = child.stdout.readline()
                assert line, f"the trainer ended: {child.stderr.read() if child.stderr else ''}"
                lines.append(json.loads(line))

    def proceed(self) -> None:
        for child in self.children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()

    def end(self) -> List[Told]:
        out = []
        for child, lines in zip(self.children, self.lines):
            rest, errors = child.communicate(timeout=DEADLINE)
            assert child.returncode == 0, errors
            lines += map(json.loads, rest.splitlines())
            out.append(
                Told(
                    [x["train"] for x in lines if "train" in x],
                    [x["eval"] for x in lines if "eval" in x],
                    next((x["state"] for x in lines if "state" in x), None),
                )
            )
        return out


def trained(told: List[Told]) -> List[Any]:
    return [(t.train, t.state) for t in told]


def plans(stage: Any, directory: Path) -> List[Any]:
    """The digests of all steps in the ledger of a stopped run."""
    steps = json.loads(command(stage.binary, "status", str(directory), "--json"))["step"]
    text = command(stage.binary, "plan", str(directory), "--steps", f"0..{steps}", "--json")
    return [(p["step"], p["content_digest"], p["placement_digest"]) for p in map(json.loads, text.splitlines())]


@dataclasses.dataclass
class Golden:
    trained: List[Any]
    plans: List[Any]
    evals: List[List[str]]  # of each rank


@pytest.fixture(scope="module")
def golden(stage: Any) -> Golden:
    """A run without streams, and the evaluation set as a run of its own."""
    with stage.up(training(), RANKS) as run:
        alone = Ranks(run).end()
        assert run.wait() == 0, run.stderr()
    assert not (run.directory / "streams").exists()
    with stage.up(training(streams={"eval": EVAL}), RANKS) as beside:
        evals = [told.evals for told in Ranks(beside, every=EVERY, steps=EVERY + 1).end()]
        assert all(len(of_rank) == 1 for of_rank in evals)
    return Golden(trained(alone), plans(stage, run.directory), [of_rank[0] for of_rank in evals])


def same(told: List[Told], golden: Golden, at_least: int = 3) -> None:
    """Checks every byte of training and of all evaluations."""
    assert trained(told) == golden.trained
    for rank, t in enumerate(told):
        assert len(t.evals) >= at_least
        assert all(e == golden.evals[rank] for e in t.evals), f"rank {rank}: evaluations differ"


def check(stage: Any, run: Run, told: List[Told], golden: Golden, at_least: int = 3) -> None:
    """Checks that the run ended by itself, and every byte."""
    assert run.wait() == 0, run.stderr()
    same(told, golden, at_least)
    assert plans(stage, run.directory) == golden.plans
    assert "panic:" not in run.stderr()


def test_an_evaluation_changes_no_byte(stage: Any, golden: Golden) -> None:
    """Training and its plans are equal with and without evaluations, all evaluations are equal, and one may follow the
    last step."""
    assert len(golden.evals[0]) == 3 and golden.evals[0] != golden.evals[1]
    with stage.up(training(streams={"eval": EVAL, "unused": {}}), RANKS) as run:
        told = Ranks(run, every=EVERY, final=True).end()
        check(stage, run, told, golden, 4)


def pid_of(run: Run, name: str) -> int:
    roles = json.loads((run.directory / "run" / "roles.json").read_text())
    return int(next(r["pid"] for r in roles if r["name"] == name))


VICTIMS = ("loader-0", "loader-1", "shadow-0", "orchestrator", "sidecar-0")


@pytest.mark.parametrize("victim", cases(VICTIMS, short=[v for v in VICTIMS if v != "loader-1"]))
def test_a_kill_in_the_middle_of_an_evaluation(stage: Any, golden: Golden, victim: str) -> None:
    with stage.up(training(streams={"eval": EVAL}), RANKS) as run:
        ranks = Ranks(run, every=EVERY, pause=1)
        ranks.until_paused()
        os.kill(pid_of(run, victim), signal.SIGKILL)
        ranks.proceed()
        check(stage, run, ranks.end(), golden)


def test_restart_in_the_middle_of_an_evaluation(stage: Any, golden: Golden) -> None:
    """`millrace restart` replaces every process, and the evaluation and training go on."""
    with stage.up(training(streams={"eval": EVAL}), RANKS) as run:
        ranks = Ranks(run, every=EVERY, pause=1)
        ranks.until_paused()
        command(stage.binary, "restart", str(run.directory))
        ranks.proceed()
        check(stage, run, ranks.end(), golden)


def test_a_stream_added_at_a_resume(stage: Any, golden: Golden) -> None:
    """A run that began without streams goes on with one, and the other way round."""
    directory = stage.new_dir()
    with stage.up(training(), RANKS, directory) as run:
        first = Ranks(run, steps=20).end()
    with stage.up(training(streams={"eval": EVAL}), RANKS, directory) as run:
        second = Ranks(run, every=EVERY, start="latest", steps=40).end()
    assert all(e == golden.evals[rank] for rank, t in enumerate(second) for e in t.evals) and second[0].evals
    with stage.up(training(), RANKS, directory) as run:
        third = Ranks(run, start="latest").end()
        assert run.wait() == 0, run.stderr()
    for rank, (whole, state) in enumerate(golden.trained):
        slots = {tuple(b[:2]): b[2] for t in (first, second, third) for b in t[rank].train}
        assert slots == {tuple(b[:2]): b[2] for b in whole}
        assert third[rank].state is not None


def test_a_failed_stream_ends_no_training(stage: Any, golden: Golden) -> None:
    """A stream without documents fails its own clients. Nothing reads it before, and training goes on."""
    empty = stage.corpus / "empty.jsonl"
    empty.write_text("")
    bad = {"mixture": {"weights": {"bad": 1}}, "sources": {"bad": {"path": "empty.jsonl"}}}
    with stage.up(training(streams={"eval": EVAL, "bad": bad}), RANKS) as run:
        evaluation = Ranks(run, stream="bad", every=EVERY)
        for child in evaluation.children:
            _, errors = child.communicate(timeout=DEADLINE)
            assert child.returncode != 0 and "no records" in errors, errors
        assert "stream bad: the stream has failed" in run.stderr(), run.stderr()
        told = Ranks(run, every=EVERY, start="fresh").end()
        check_trained(run, told, golden)


def check_trained(run: Run, told: List[Told], golden: Golden) -> None:
    assert run.wait() == 0, run.stderr()
    for (train, _), t in zip(golden.trained, told):
        assert t.train == train
    assert all(e == golden.evals[rank] for rank, t in enumerate(told) for e in t.evals)


def test_an_unused_stream_reads_nothing(stage: Any, golden: Golden) -> None:
    """A stream whose files are missing harms nobody before a trainer connects to it."""
    away = {"mixture": {"weights": {"x": 1}}, "sources": {"x": {"path": "missing/*.jsonl"}}}
    with stage.up(training(streams={"eval": EVAL, "away": away}), RANKS) as run:
        check(stage, run, Ranks(run, every=EVERY).end(), golden)
        assert "away" not in run.stderr(), run.stderr()


def test_an_unknown_stream(stage: Any) -> None:
    import millrace

    with stage.up(training(streams={"eval": EVAL})) as run:
        began = time.monotonic()
        with pytest.raises(millrace.StartError, match="no stream 'evil'.*train, eval"):
            next(millrace.connect(run.sockets()[0], stream="evil"))
        assert time.monotonic() - began < SOON
        with pytest.raises(ValueError, match="stream="):
            millrace.connect(run.sockets()[0], stream="../eval")


def test_a_killed_run_goes_on_with_its_streams(stage: Any, golden: Golden) -> None:
    """After a kill -9 of everything in the middle of an evaluation, the next `up` continues training, and evaluations
    begin anew."""
    directory = stage.new_dir()
    with stage.up(training(streams={"eval": EVAL}), RANKS, directory) as run:
        first = Ranks(run, every=EVERY, pause=0)
        first.until_paused()
        run.kill()
        for child in first.children:
            child.kill()
            child.communicate()
    with stage.up(training(streams={"eval": EVAL}), RANKS, directory) as run:
        told = Ranks(run, every=EVERY, start="latest").end()
        assert run.wait() == 0, run.stderr()
    for rank, (whole, _) in enumerate(golden.trained):
        slots = {tuple(b[:2]): b[2] for b in [x["train"] for x in first.lines[rank] if "train" in x] + told[rank].train}
        assert slots == {tuple(b[:2]): b[2] for b in whole}
        assert told[rank].evals and all(e == golden.evals[rank] for e in told[rank].evals)


def test_the_tools_know_streams(stage: Any) -> None:
    """check checks every stream; status, plan, preview, ledger and mix take --stream, also while the run goes on."""

    def told(*args: str, code: int = 0) -> Any:
        return json.loads(command(stage.binary, *args, "--json", code=code).splitlines()[0])

    mixture = training(streams={"eval": EVAL})
    path = str(stage.mixture(mixture))
    report = told("check", path, "--ranks", str(RANKS))
    assert [s["name"] for s in report["streams"]["eval"]["sources"]] == ["books", "plain"] and report["ok"]
    planned = told("plan", path, "--steps", "1..2", "--ranks", str(RANKS), "--stream", "eval")
    assert told("preview", path, "--step", "1", "--stream", "eval")["content_digest"] == planned["content_digest"]
    command(stage.binary, "plan", path, "--steps", "0..1", "--stream", "evil", code=2)
    with stage.up(mixture, RANKS) as run:
        directory = str(run.directory)
        ranks = Ranks(run, every=EVERY, pause=0, steps=EVERY + 2)
        ranks.until_paused()
        until = time.monotonic() + DEADLINE
        while (status := told("status", directory))["step"] < EVERY - 1:  # the last batches are acknowledged later
            assert time.monotonic() < until, status
            time.sleep(LOOK)
        assert status["step"] == EVERY - 1 and status["streams"]["eval"]["attempt"] == 1
        assert told("status", directory, "--stream", "eval")["running"]
        step = told("ledger", directory, "--step", "1", "--stream", "eval")
        assert step["content_digest"] == planned["content_digest"]
        assert set(told("mix", "show", directory, "--stream", "eval")["weights"]) == {"books", "plain"}
        command(stage.binary, "status", directory, "--stream", "evil", code=1)
        ranks.proceed()
        ranks.end()
    stored = told("plan", directory, "--steps", "1..2", "--stream", "eval")
    assert stored["placement_digest"] == planned["placement_digest"]


def test_a_stream_for_rank_0_alone(stage: Any) -> None:
    """Rank 0 evaluates in the middle of training, and no other rank has to connect to the stream. Another rank is
    refused with the cure."""
    setting = training(loaders=1, stop={"steps": 12})
    golden = stage.delivered(setting, RANKS)
    evaluation = {**EVAL, "ranks": 1}
    with stage.up({**setting, "streams": {"eval": evaluation}}, RANKS, stage.new_dir()) as run:
        trainers = run.start(pause=0.2)
        trainers.collect(until=3)
        began = time.monotonic()
        with millrace.connect(run.sockets()[0], stream="eval", tensors="numpy") as loader:
            alone = [(b.step, b.microbatch, b.digest) for b in loader]
        assert time.monotonic() - began < DEADLINE
        began = time.monotonic()
        with pytest.raises(millrace.StartError, match="rank 1: stream eval is for rank 0 alone: raise `ranks`"):
            next(millrace.connect(run.sockets()[1], stream="eval", tensors="numpy"))
        assert time.monotonic() - began < SOON
        delivered = trainers.collect()
        assert run.wait() == 0, run.stderr()
    assert delivered.bytes() == golden.bytes()
    assert len(alone) == 3 * EVAL["global_batch_size"] // EVAL["micro_batch_size"]
    with stage.up({**setting, "streams": {"eval": EVAL}}, 1, stage.new_dir()) as run:
        with millrace.connect(run.sockets()[0], stream="eval", tensors="numpy") as loader:
            assert [(b.step, b.microbatch, b.digest) for b in loader] == alone
