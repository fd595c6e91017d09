"""Changing the mixture of a running run: a change holds from its step on, on every rank and in every resumed run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from conftest import cases, variant
from harness import DEADLINE, LOOK, Run, command, processes_of

STEPS = 40
LIVE = variant({"stop": {"steps": STEPS}, "global_batch_size": 8, "micro_batch_size": 2, "sequence_length": 192})
WEIGHTS = ("plain=0.1", "packed=0.1", "frames=0.1", "tables=0.1", "books=0.6")


def mix(stage: Any, run: Run, *args: str) -> Dict[str, Any]:
    return json.loads(command(stage.binary, "mix", args[0], str(run.directory), *args[1:], "--json"))


def tokens(segments: List[Any], source: str) -> float:
    """The share of a source in a step's tokens."""
    return sum(s[5] for s in segments if s[0] == source) / sum(s[5] for s in segments)


def changed(stage: Any, run: Run, trainers: Any, hold: Path) -> List[Dict[str, Any]]:
    """Changes a running run in three ways and lets it finish."""
    deadline = time.monotonic() + DEADLINE
    while not json.loads(command(stage.binary, "status", str(run.directory), "--json"))["planned"]:
        assert time.monotonic() < deadline, run.stderr()
        time.sleep(LOOK)
    done = [mix(stage, run, "set", *WEIGHTS, "--from-step", "20")]
    os.kill(
        next(
            r["pid"]
            for r in json.loads(command(stage.binary, "status", str(run.directory), "--json"))["roles"]
            if r["role"] == "orchestrator"
        ),
        signal.SIGKILL,
    )
    while True:  # the next orchestrator reads the journal
        try:
            done.append(mix(stage, run, "skip", "--from-step", "24", "--to-step", "26"))
            break
        except AssertionError:
            assert time.monotonic() < deadline, run.stderr()
            time.sleep(0.1)
    done.append(mix(stage, run, "remove-source", "tables", "--from-step", "30"))
    hold.unlink()
    return done


def test_changes_hold_everywhere(stage: Any) -> None:
    """Changes the mixture of a run, and kills its orchestrator. Resumes on other ranks, from states before and after
    the changes, have the same content. So has a new run."""
    directory = stage.new_dir()
    (hold := Path(f"{directory}.hold")).touch()
    with stage.up(LIVE, 2, directory) as run:
        trainers = run.start(pause=3.0, hold=str(hold), states=True)
        done = changed(stage, run, trainers, hold)
        first = trainers.collect()
        assert first.ends == ["end"] * 2 and run.wait() == 0, run.stderr()
    assert [d["at_step"] for d in done] == [20, 24, 30] and all(d["in_force"] for d in done)
    plain = stage.delivered(LIVE, 2)
    content = first.content()
    assert [content[s] for s in range(20)] == [plain.content()[s] for s in range(20)], "steps before the change moved"
    steps = first.steps()
    assert sum(tokens(steps[s], "books") for s in range(21, 30)) / 9 > 0.5
    # Segments that wait when their source is removed are still packed, those that have waited for five steps first.
    having = [s for s in range(STEPS) if tokens(steps[s], "tables") > 0]
    assert 29 <= having[-1] < 30 + 8, having

    stopped = json.loads(command(stage.binary, "status", str(directory), "--json"))
    assert [c["at_step"] for c in stopped["mixture"]["changes"]] == [20, 24, 30]
    planned = json.loads(command(stage.binary, "plan", str(directory), "--steps", "24..25", "--json"))
    assert "passed over" in planned["changes"][0]["text"] and planned["content_digest"] == content[24]
    held = json.loads(command(stage.binary, "ledger", str(directory), "--step", "20", "--json"))
    assert "books 0.6" in held["changes"][0]["text"]

    states = {b.step: json.loads(b.state) for b in first.ranks[0] if b.state and b.microbatch == b.num_microbatches - 1}
    for step, ranks in ((18, 4), (26, 1)):  # before all changes; after two changes
        with stage.up(LIVE, ranks) as other:
            second = other.train(state=states[step])
            assert second.ends == ["end"] * ranks and other.wait() == 0, other.stderr()
        assert second.content() == {s: d for s, d in content.items() if s > step}
    with stage.up(LIVE, 2, directory) as run:  # the state has no change, the journal has all changes
        again = run.train(state=states[2])
        assert again.ends == ["end"] * 2 and run.wait() == 0, run.stderr()
        assert again.content() == {s: d for s, d in content.items() if s > 2}
        assert "attempt 2: the mixture changes from step 20 on" in run.stderr()
    with stage.up(LIVE, 2, directory) as run:
        without = run.train(state=states[2], override=("mixture.changes",))
        assert without.ends == ["end"] * 2 and run.wait() == 0, run.stderr()
        assert without.content() == {s: d for s, d in plain.content().items() if s > 2}


# For each key: the mixture of a state's run, the mixture with another value of the key, the names of the override, and
# the share of `books` afterwards.
TEXT = {"weight": 0.9, "weights": {"plain": 1, "packed": 1, "frames": 1, "tables": 1}}
GROUPS = {"text": TEXT, "ids": {"weight": 0.1, "weights": {"books": 1}}}
COUNTED = {name: source for name, source in LIVE["sources"].items() if name != "packed"}
FEWER = {**COUNTED, "plain": {**COUNTED["plain"], "path": "plain/part-[01].jsonl"}}
OVERRIDDEN: Dict[str, Any] = {
    "groups": (
        {"mixture": {"groups": GROUPS}},
        {"mixture": {"groups": {"text": {**TEXT, "weight": 0.8}, "ids": {**GROUPS["ids"], "weight": 0.2}}}},
        ("mixture.groups",),
        (0.15, 0.25),
    ),
    "floor": (
        {"mixture": {"groups": GROUPS}},
        {"mixture": {"groups": GROUPS, "floor": 0.2}},
        ("mixture.floor",),
        (0.15, 0.25),
    ),
    "sizes": (
        {"mixture": {"weights": {"from": "size"}}, "sources": COUNTED},
        {"mixture": {"weights": {"from": "size"}}, "sources": FEWER},
        ("mixture.sizes", "sources.plain"),
        (0.1, 0.4),
    ),
}


@pytest.mark.parametrize("key", cases(OVERRIDDEN, short=["sizes"]))
def test_overridden_mixture_drops_changes(stage: Any, key: str) -> None:
    """A resume that overrides any key of the mixture follows the file: it drops the `mix set` that the state
    carries."""
    before, after, override, (least, most) = OVERRIDDEN[key]
    for change in (before, after):
        command(stage.binary, "index", str(stage.mixture({**LIVE, **change})), "--lengths")
    directory = stage.new_dir()
    (hold := Path(f"{directory}.hold")).touch()
    with stage.up({**LIVE, **before}, 1, directory) as run:
        trainers = run.start(pause=3.0, hold=str(hold), states=True, leave_after=(23, 3))
        trainers.collect(until=0)
        weights = [f"{name}={0.6 if name == 'books' else 0.1}" for name in before.get("sources", LIVE["sources"])]
        assert mix(stage, run, "set", *weights, "--from-step", "20")["at_step"] == 20
        hold.unlink()
        state = json.loads(trainers.collect().ranks[0][-1].state or "")

    with stage.up({**LIVE, **before}, 1) as run:
        kept = run.train(state=state)
        assert kept.ends == ["end"] and run.wait() == 0, run.stderr()
    with stage.up({**LIVE, **after}, 1) as run:
        refused = run.train(state=state).ends[0]
        assert refused[1] == "StartError" and all(name in refused[2] for name in override), refused
        dropped = run.train(state=state, override=override)
        assert dropped.ends == ["end"] and run.wait() == 0, run.stderr()
    assert share(kept, "books") > 0.5, "the state alone keeps the change"
    assert least < share(dropped, "books") < most


def share(delivered: Any, source: str) -> float:
    return tokens(delivered.segments(), source)


def test_loss_spike_cure(stage: Any) -> None:
    """Rolls back to a state and skips the steps after it."""
    directory = stage.new_dir()
    with stage.up(LIVE, 2, directory) as run:
        first = run.train(states=True, leave_after=(12, 1))
        state = next(
            json.loads(b.state) for b in first.ranks[0] if (b.step, b.microbatch) == (8, b.num_microbatches - 1)
        )
        error = command_fails(stage, run, "skip", "--from-step", "10", "--to-step", "13")
        assert "--next-attempt" in error
        assert not mix(stage, run, "skip", "--from-step", "10", "--to-step", "13", "--next-attempt")["in_force"]
        second = run.train(state=state)
        assert second.ends == ["end"] * 2 and run.wait() == 0, run.stderr()
    assert second.content()[9] == first.content()[9]
    gone = {s[:6] for step in (10, 11, 12) for s in first.steps()[step]}
    assert not gone & {s[:6] for step in second.steps().values() for s in step}


def command_fails(stage: Any, run: Run, *args: str) -> str:
    done = subprocess.run(
        [str(stage.binary), "mix", args[0], str(run.directory), *args[1:]],
        capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip
    assert done.returncode == 2, (done.returncode, done.stderr)
    return done.stderr


@pytest.mark.parametrize(("point", "held"), [("before", 0), ("after", 1)])
def test_killed_while_it_changes(stage: Any, point: str, held: int) -> None:
    """The orchestrator dies during a request. The run has the whole change or no part of it, and continues."""
    directory = stage.new_dir()
    (hold := Path(f"{directory}.hold")).touch()
    with stage.up(LIVE, 1, directory, env={"MILLRACE_FAILPOINTS": f"orchestrator/mix/{point}=kill@1"}) as run:
        trainers = run.start(pause=2.0, hold=str(hold))
        done = subprocess.run(
            [str(stage.binary), "mix", "set", str(run.directory), *WEIGHTS],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        assert done.returncode == 1 and "change the mixture" in done.stderr
        hold.unlink()
        delivered = trainers.collect()
        assert delivered.ends == ["end"] and run.wait() == 0, run.stderr()
    changes = json.loads(command(stage.binary, "status", str(directory), "--json"))["mixture"]["changes"]
    assert len(changes) == held
    assert (delivered.content() == stage.delivered(LIVE, 2).content()) == (held == 0)


def test_changes_that_cannot_be(stage: Any) -> None:
    schedule = stage.scratch / "back.yaml"
    schedule.write_text("- {from_step: 0, weights: {plain: 1, packed: 1, frames: 1, tables: 1, books: 1}}\n")
    with stage.up(LIVE, 1) as run:
        run.train(leave_after=(3, 0))
        for args, want in [
            (
                ("set", "plain=nan", "packed=1", "frames=1", "tables=1", "books=1"),
                "a weight is a finite decimal number",
            ),
            (("set", "plain=-1", "packed=1", "frames=1", "tables=1", "books=1"), "a weight cannot be negative"),
            (("set", "plain=0", "packed=0", "frames=0", "tables=0", "books=0"), "every weight is 0"),
            (("set", "plain=1"), 'source "books" has no weight: add books=0'),
            (("set", "other=1"), 'this run has no source "other"'),
            (("set", *WEIGHTS, "--from-step", "1"), "step 1 is in the past"),
            (("schedule", str(schedule)), "the schedule goes back"),
            (("schedule", str(schedule) + "x"), "no such file"),
            (("skip",), "skip needs --from-step and --to-step"),
            (("add-source", "plain=1"), "change it with `mix set`"),
            (("add-source", "other=1"), "cannot join while the run goes on"),
            (("remove-source", "other"), 'this run has no source "other"'),
            (("turn",), "unknown verb"),
        ]:
            assert want in command_fails(stage, run, *args), args
    assert (
        "no `millrace up` runs on"
        in subprocess.run([str(stage.binary), "mix", "show", str(run.directory)], capture_output=True, text=True).stderr
    )
    assert not processes_of(run.directory)


def test_losses_become_weights(stage: Any) -> None:
    """A policy draws more from sources with higher loss. After a rollback, its journaled decisions hold, even with
    other reports."""
    # Without carry, microbatches have different numbers of tokens. Times of full ones fit any costs equally well.
    adaptive = {"policy": "odm", "every": 2, "warmup": 2, "floor": 0.02, "smoothing": 0.5}
    mixture = dict(LIVE, carry=0, adaptive=adaptive)
    means = dict.fromkeys(mixture["sources"], 1.0)
    directory = stage.new_dir()
    with stage.up(mixture, 2, directory) as run:
        first = run.train(losses={**means, "books": 6.0}, states=True, leave_after=(32, 1), pause=0.02)
        shown = mix(stage, run, "show")
        fit = mix(stage, run, "costs", "--refit")
    assert {c["by"] for c in shown["changes"]} == {"odm"} and len(shown["changes"]) >= 4
    assert shown["weights"]["books"] > 0.3 and min(shown["weights"].values()) >= 0.019
    assert shown["fit"]["reports"] > 32 and shown["fit"]["best_r2"] > 0.99 > shown["fit"]["r2"]
    linear, quadratic = shown["fit"]["best"]["linear"], shown["fit"]["best"]["quadratic"]
    assert 45 < linear / quadratic < 55 and "costs linear" in fit["text"]
    state = next(json.loads(b.state) for b in first.ranks[0] if (b.step, b.microbatch) == (5, b.num_microbatches - 1))
    with stage.up(mixture, 2, directory) as run:
        again = run.train(state=state, losses={**means, "plain": 9.0})
        assert again.ends == ["end"] * 2 and run.wait() == 0, run.stderr()
    assert {s: d for s, d in again.content().items() if s <= 32} == {s: d for s, d in first.content().items() if s > 5}
