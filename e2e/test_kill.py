"""kill -9 at failpoints with a particular promise. test_chaos.py tests the promises that hold at every failpoint."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

from conftest import cases, variant
from harness import DEADLINE, SOON, Delivered, Run, processes_of
from records import killed

RANKS = 2


def training() -> Dict[str, Any]:
    """The run under test: two loaders, every format, and about 70 steps."""
    return variant({"loaders": 2, "global_batch_size": 8, "micro_batch_size": 1})


def check_survived(run: Run, delivered: Delivered, golden: Delivered) -> None:
    """Checks that the trainers saw no error and that `up` ended normally."""
    assert delivered.ends == ["end"] * RANKS, f"{delivered.ends}\n{run.stderr()}"
    assert run.wait() == 0, run.stderr()
    assert delivered.bytes() == golden.bytes()
    said = run.stderr()
    assert "panic:" not in said and "goroutine " not in said, said


@pytest.fixture(scope="module")
def golden(stage: Any) -> Delivered:
    return stage.delivered(training(), RANKS)


def test_between_journal_and_publish(stage: Any, golden: Delivered) -> None:
    """The next orchestrator publishes a journaled, unpublished plan unchanged. Each step has one sealed plan."""
    directory = stage.new_dir()
    events = Path(f"{directory}.events")
    with stage.up(
        training(),
        RANKS,
        directory,
        env={"MILLRACE_FAILPOINTS": "orchestrator/journal/after=kill@14"},
        args=["--events", str(events)],
    ) as run:
        delivered = run.train()
        check_survived(run, delivered, golden)
        dead = [life for life in killed(events, run.stderr()) if life.kind == "orchestrator"]
    last = [next(r for r in reversed(life.records) if r["event"] != "failpoint") for life in dead]
    cut = [r for r in last if r["event"] == "journal" and r["key"] == "Sealed"]
    assert cut, f"no life ended between a plan's journal and its publication: {last}"
    plans: Dict[Tuple[int, int], str] = {}
    for path in events.glob("sidecar-*.jsonl"):
        for r in map(json.loads, path.read_text().splitlines()):
            if r["event"] == "plan":
                assert plans.setdefault((r["attempt"], r["step"]), r["digest"]) == r["digest"], (
                    f"two plans of step {r['step']}"
                )
    for step in (r["step"] for r in cut):
        assert plans[1, step] == golden.content()[step] == delivered.content()[step]


def salvaged(stage: Any, golden: Delivered, point: str) -> List[int]:
    """Plays a run whose loader dies at its ninth passage of a point. Returns the numbers of rows that the sidecar took
    from the memory that the loader wrote to."""
    directory = stage.new_dir()
    events, once = Path(f"{directory}.events"), Path(f"{directory}.once")
    with stage.up(
        {**training(), "reliability": {"shadows": 1}},
        RANKS,
        directory,
        env={"MILLRACE_FAILPOINTS": f"{point}:{once}@9"},
        args=["--events", str(events)],
    ) as run:
        delivered = run.train()
        check_survived(run, delivered, golden)
        assert once.exists() and "died (SIGKILL)" in run.stderr(), run.stderr()
    return [
        int(r["key"].split()[-1])
        for path in events.glob("sidecar-*.jsonl")
        for r in map(json.loads, path.read_text().splitlines())
        if r["event"] == "salvaged"
    ]


def test_loader_killed_before_a_report(stage: Any, golden: Delivered) -> None:
    """A loader dies before it reports rows that it wrote to shared memory. The sidecar takes them. On a busy machine it
    may have asked the shadow for them before, so several runs are played."""
    used = any(salvaged(stage, golden, "loader/reply/before=kill") for _ in range(4))
    assert used, "the dead loader's rows were not used"


def test_loader_killed_in_a_row(stage: Any, golden: Delivered) -> None:
    """A loader dies in the middle of a row in shared memory. The sidecar takes the whole rows, and no other."""
    salvaged(stage, golden, "loader/arena=torn")


@pytest.mark.parametrize("seed", cases(range(3), short=[0]))
def test_up_killed(stage: Any, golden: Delivered, seed: int) -> None:
    """kill -9 of `up`: its children exit soon, the trainers get an error, and a new `up` continues exactly with
    `latest`."""
    rng = random.Random(seed)
    directory = stage.new_dir()
    with stage.up(training(), RANKS, directory) as run:
        trainers = run.start(pause=0.02)
        trainers.collect(until=rng.randint(2, 25))
        run.kill_up()
        died = time.monotonic()
        while processes_of(directory) and time.monotonic() - died < SOON:
            time.sleep(0.02)
        took = time.monotonic() - died
        assert not processes_of(directory) and took < SOON, (
            f"children outlived `up` by {took:.1f} s: {processes_of(directory)}"
        )
        assert not list(directory.glob("*.sock")) and not (directory / "run").exists(), "the children left files behind"
        first = trainers.collect()
        for end in first.ends:
            assert isinstance(end, tuple) and end[1] == "RunError", end
    with stage.up(training(), RANKS, directory) as run:
        second = run.train(start="latest")
        # The kill may lose what the orchestrator has not written of the last finished steps, which take 20 ms each.
        check_goes_on(run, first, second, golden, behind=8)


@pytest.mark.parametrize("seed", cases(range(3), short=[0]))
def test_up_started_again(stage: Any, golden: Delivered, seed: int) -> None:
    """kill -9 of `up`, and at once a new one on the same run directory. Connected ranks continue by themselves in the
    same attempt and take each batch once."""
    rng = random.Random(200 + seed)
    directory = stage.new_dir()
    (hold := Path(f"{directory}.hold")).touch()
    with stage.up(training(), RANKS, directory) as first:
        trainers = first.start(pause=0.02, hold=str(hold), patience=DEADLINE, states=True)
        trainers.collect(until=rng.randint(2, 40))
        first.kill_up()
        with stage.up(training(), RANKS, directory) as run:
            hold.unlink()
            delivered = trainers.collect()
            check_survived(run, delivered, golden)
        for batches in delivered.ranks:
            assert [(b.step, b.microbatch) for b in batches] == sorted({(b.step, b.microbatch) for b in batches})
            assert max(json.loads(b.state)["attempt"] for b in batches) == 1


def test_sidecar_leaves(stage: Any, golden: Delivered) -> None:
    """Repeated SIGTERM of the sidecar, as in a rolling restart. The trainers see no error."""
    with stage.up(training(), RANKS, stage.new_dir()) as run:
        trainers = run.start(pause=0.012)
        gone: set[int] = set()
        for step in (3, 12, 25, 38):
            trainers.collect(until=step)
            roles = json.loads((run.directory / "run" / "roles.json").read_text())
            pids = [r["pid"] for r in roles if r["role"] == "sidecar" and r["pid"] and r["state"] == "running"]
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
            gone.update(pids)
        check_survived(run, trainers.collect(), golden)
    assert len(gone) >= 3, f"only {gone} were asked to leave"


def check_goes_on(run: Run, first: Delivered, second: Delivered, golden: Delivered, behind: int = 1) -> None:
    """The second part begins at an unfinished step, the one after, or at most so many steps behind. Both parts belong
    to one run."""
    assert second.ends == ["end"] * RANKS, f"{second.ends}\n{run.stderr()}"
    assert run.wait() == 0, run.stderr()
    whole, a, b = golden.bytes(), first.bytes(), second.bytes()
    start = min(step for step, _, _ in b)
    assert {slot: whole[slot] for slot in a} == a
    assert b == {slot: digest for slot, digest in whole.items() if slot[0] >= start}
    finished = min(
        max((x.step for x in batches if x.microbatch == x.num_microbatches - 1), default=-1) for batches in first.ranks
    )
    assert start <= finished + 1, f"continued at step {start}, but a rank had only finished step {finished}"
    assert start >= finished - behind, f"continued at step {start}, though every rank had finished step {finished}"


@pytest.mark.parametrize("seed", cases(range(2), short=[0]))
def test_trainer_killed(stage: Any, golden: Delivered, seed: int) -> None:
    """kill -9 of trainers that hold batches. `up` continues to serve and frees the memory. The ranks continue from
    either state."""
    rng = random.Random(100 + seed)
    cut = rng.randint(2, 20)
    with stage.up(training(), RANKS, stage.new_dir()) as run:
        trainers = run.start(states=True, pause=0.003)
        trainers.collect(until=cut)
        trainers.end()  # SIGKILL
        first = trainers.delivered
        last = {
            (b.step, rank): b
            for rank, batches in enumerate(first.ranks)
            for b in batches
            if b.microbatch == b.num_microbatches - 1
        }
        step, rank = rng.choice(sorted(last))
        state = json.loads(last[step, rank].state)
        second = run.train(state=state)
        assert second.ends == ["end"] * RANKS, f"{second.ends}\n{run.stderr()}"
        assert run.wait() == 0, run.stderr()
    whole = golden.bytes()
    assert first.bytes() == {slot: whole[slot] for slot in first.bytes()}
    assert second.bytes() == {slot: digest for slot, digest in whole.items() if slot[0] > step}


def test_one_trainer_killed(stage: Any, golden: Delivered) -> None:
    """A rank that dies alone declares its start. A step that other ranks have passed needs a new attempt."""
    with stage.up(training(), RANKS, stage.new_dir()) as run:
        trainers = run.start(pause=0.003)
        trainers.collect(until=5)
        trainers.children[0].kill()
        trainers.children[0].join()
        time.sleep(0.3)
        trainers.end()
        second = run.train(start="latest")
        check_goes_on(run, trainers.delivered, second, golden)


def test_memory_comes_back(stage: Any) -> None:
    """A trainer killed while it holds frames leaves no ring in the sidecar."""
    with stage.up(training(), RANKS, stage.new_dir()) as run:
        sidecar = next(
            r["pid"] for r in json.loads((run.directory / "run" / "roles.json").read_text()) if r["role"] == "sidecar"
        )
        for _ in range(3):
            trainers = run.start(start="fresh", leave_after=(1, 0), stay=True)
            trainers.collect(until=1)
            assert comes(lambda: rings(sidecar) >= RANKS), "a trainer has no ring"
            trainers.end()
            assert comes(lambda: rings(sidecar) == 0), "the rings of dead trainers are still there"


def comes(true: Callable[[], bool]) -> bool:
    """Polls a condition and returns whether it became true soon."""
    deadline = time.monotonic() + SOON
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


def rings(pid: int) -> int:
    """The rings that a process has open."""
    out = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            out += "memfd:millrace-ring" in os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            pass  # the descriptor was closed
    return out


def test_crash_is_named(stage: Any) -> None:
    """A document that crashes every reader ends the run. The error names the document. The stack goes to a file, not to
    stderr."""
    names = ["loader-0", "loader-1", "shadow-0"]
    with stage.up(
        training(),
        1,
        stage.new_dir(),
        env={"MILLRACE_FAILPOINTS": ";".join(f"{name}:loader/fetch/before=panic" for name in names)},
    ) as run:
        delivered = run.train()
        assert run.wait(DEADLINE) == 1
        said = run.stderr()
        crashes = sorted(p.name for p in run.directory.glob("crash-*.log"))
    reason = said.strip().splitlines()[-1]
    assert "times within" in reason and any(name in reason and f"crash-{name}-" in reason for name in names), reason
    assert not any(line.startswith(("panic:", "goroutine ")) for line in said.splitlines()), said
    assert [name for name in crashes if name in reason], (crashes, reason)
    assert delivered.reasons() == [reason]
