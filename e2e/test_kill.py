"""kill -9 of every kind of child, of `up` and of a trainer, while a slot is in flight: the trainers wait, and get what they would have got."""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

from conftest import variant
from harness import DEADLINE, Delivered, Run, command, processes_of
from records import Life, killed

KINDS = ("loader", "orchestrator", "sidecar")
ENOUGH = 20  # kills of each kind in the everyday run, each proven by the victim's own record
RANKS = 2

# Where a role can be made to die, and between which of its lives' hits of that place: often enough, and not so often that it gets nowhere.
PLACES: Dict[str, List[Tuple[str, int, int]]] = {
    "loader": [
        ("loader/fetch/before", 18, 40),
        ("loader/reply/before", 18, 40),
        ("loader/reply/after", 18, 40),
        ("loader/fetch/after", 18, 40),
        ("loader/read/before", 18, 40),
        ("loader/decode/before", 80, 200),
        ("loader/offer/before", 5, 8),
        ("loader/offer/after", 5, 8),
    ],
    "orchestrator": [
        ("orchestrator/journal/before", 20, 32),
        ("orchestrator/journal/after", 20, 32),
        ("orchestrator/publish/before", 30, 55),
        ("orchestrator/publish/after", 30, 55),
    ],
    "sidecar": [
        ("sidecar/fetch/before", 8, 14),
        ("sidecar/fetch/after", 8, 14),
        ("sidecar/filling", 40, 70),
        ("sidecar/pushed", 40, 70),
        ("sidecar/commit/before", 12, 20),
        ("sidecar/committed", 12, 20),
    ],
}


def training() -> Dict[str, Any]:
    """The run that is killed: two loaders, every format, and about 70 steps so that there is time to die in."""
    return variant({"loaders": 2, "global_batch_size": 8, "micro_batch_size": 1})


class Killer(threading.Thread):
    """Kills children of a run at random moments; every kind as often as the others."""

    def __init__(self, run: Run, seed: int, kills: Dict[str, int], least: float, most: float) -> None:
        super().__init__(daemon=True)
        self.run_, self.random, self.left, self.least, self.most = run, random.Random(seed), dict(kills), least, most
        self.over = threading.Event()

    def run(self) -> None:
        while any(self.left.values()) and not self.over.wait(self.random.uniform(self.least, self.most)):
            kind = self.random.choice([k for k, n in self.left.items() for _ in range(n)])
            pid = self._victim(kind)
            if pid is None:
                continue
            try:
                os.kill(pid, signal.SIGKILL)
                self.left[kind] -= 1
            except ProcessLookupError:
                pass  # it was faster

    def _victim(self, kind: str) -> Optional[int]:
        try:
            roles = json.loads((self.run_.directory / "run" / "roles.json").read_text())
        except (OSError, ValueError):
            return None
        pids = [r["pid"] for r in roles if r["role"] == kind and r["pid"] and r["state"] == "running"]
        return self.random.choice(pids) if pids else None


def check_survived(run: Run, delivered: Delivered, golden: Delivered) -> None:
    """The trainers saw nothing of it, and `up` ended as if nothing had been."""
    assert delivered.ends == ["end"] * RANKS, f"{delivered.ends}\n{run.stderr()}"
    assert run.wait(20) == 0, run.stderr()
    assert delivered.bytes() == golden.bytes()
    said = run.stderr()
    assert "panic:" not in said and "goroutine " not in said, said


def die_at(seed: int, directory: Path) -> str:
    """A failpoint for each process, drawn by the seed: a life of it ends at the n-th hit, and so does the next. A death while reading
    comes once: a life that always died before it had read enough for one fetch would get nowhere."""
    rng = random.Random(seed)
    out = []
    for name, kind, stages in (("loader-0", "loader", ("fetch", "reply")), ("loader-1", "loader", ()), ("orchestrator", "orchestrator", ()), ("sidecar-0", "sidecar", ())):
        place, least, most = rng.choice([p for p in PLACES[kind] if not stages or p[0].split("/")[1] in stages])
        once = f":{directory}.{name}-died" if place.split("/")[1] in ("read", "decode") else ""
        out.append(f"{name}:{place}=kill{once}@{rng.randint(least, most)}")
    return ";".join(out)


class Score:
    """The kills of a campaign: how many, and how many of these with something in flight."""

    def __init__(self) -> None:
        self.kills: Dict[str, int] = collections.Counter()
        self.proven: Dict[str, int] = collections.Counter()

    def count(self, dead: List[Life]) -> None:
        for life in dead:
            self.kills[life.kind] += 1
            self.proven[life.kind] += bool(life.open())

    def enough(self, n: int) -> bool:
        return all(self.proven[kind] >= n for kind in KINDS)

    def __str__(self) -> str:
        return ", ".join(f"{kind}: {self.proven[kind]} of {self.kills[kind]} in flight" for kind in KINDS)


def round_of_kills(stage: Any, golden: Delivered, seed: int, score: Score) -> str:
    """One run with deaths: seeds by turns at named places and at random moments."""
    named = seed % 2 == 0
    directory = stage.new_dir()
    events = Path(f"{directory}.events")
    env = {"MILLRACE_FAILPOINTS": die_at(seed, directory)} if named else {}
    with stage.up(training(), RANKS, directory, env=env, args=["--events", str(events)]) as run:
        killer = Killer(run, seed, {} if named else {kind: 8 for kind in KINDS}, 0.01, 0.15)
        killer.start()
        try:
            delivered = run.train(pause=0.0 if named else 0.012)
        finally:
            killer.over.set()
            killer.join()
        check_survived(run, delivered, golden)
        dead = killed(events, run.stderr())
    score.count(dead)
    return f"seed {seed}: {env.get('MILLRACE_FAILPOINTS', 'random moments')}: {dict(collections.Counter(life.name for life in dead))}"


@pytest.fixture(scope="module")
def golden(stage: Any) -> Delivered:
    return stage.delivered(training(), RANKS)


def test_children(stage: Any, golden: Delivered) -> None:
    """Every kind of child is killed, 20 times with something in flight by its own record, and the bytes are those of the quiet run."""
    score, seed, told = Score(), 0, []
    while not score.enough(ENOUGH):
        assert seed < 40, f"too few kills hit anything: {score}\n" + "\n".join(told)
        told.append(round_of_kills(stage, golden, seed, score))
        seed += 1
    print(f"\n{seed} runs; {score}\n" + "\n".join(told))


@pytest.mark.long
def test_campaign(stage: Any, golden: Delivered) -> None:
    """CAMPAIGN_KILLS proven kills of each kind, from CAMPAIGN_SEED on; the totals go into docs/campaigns.md by hand."""
    wanted, first = int(os.environ.get("CAMPAIGN_KILLS", "200")), int(os.environ.get("CAMPAIGN_SEED", "1000"))
    score, seed = Score(), first
    while not score.enough(wanted):
        print(round_of_kills(stage, golden, seed, score), "|", score, flush=True)
        seed += 1
    print(f"{seed - first} runs, seeds {first} to {seed - 1}; {score}")


def test_every_place(stage: Any, golden: Delivered) -> None:
    """One run with one death at each named place there is."""
    directory = stage.new_dir()
    points, marks = [], []
    for kind, places in PLACES.items():
        names = {"loader": ["loader-0", "loader-1"], "orchestrator": ["orchestrator"], "sidecar": ["sidecar-0"]}[kind]
        for i, (place, _, _) in enumerate(places):
            marks.append(Path(f"{directory}.killed-{place.replace('/', '-')}"))
            hit = {"offer": 2, "decode": 30, "filling": 9, "pushed": 11, "publish": 9}.get(place.split("/")[1], 4)
            points.append(f"{names[i % len(names)]}:{place}=kill:{marks[-1]}@{hit}")
    with stage.up(training(), RANKS, directory, env={"MILLRACE_FAILPOINTS": ";".join(points)}) as run:
        delivered = run.train()
        check_survived(run, delivered, golden)
    assert not [m.name for m in marks if not m.exists()], "nobody came by there often enough"


def test_between_journal_and_publish(stage: Any, golden: Delivered) -> None:
    """A plan that was journaled and not published is published by the next life, the same: each step has one sealed plan."""
    directory = stage.new_dir()
    events = Path(f"{directory}.events")
    with stage.up(training(), RANKS, directory, env={"MILLRACE_FAILPOINTS": "orchestrator/journal/after=kill@14"}, args=["--events", str(events)]) as run:
        delivered = run.train()
        check_survived(run, delivered, golden)
        dead = [life for life in killed(events, run.stderr()) if life.kind == "orchestrator"]
    cut = [life for life in dead if life.records[-1]["event"] == "journal" and life.records[-1]["key"] == "Sealed"]
    assert cut, f"no life ended between a plan's journal and its publication: {[life.records[-1] for life in dead]}"
    plans: Dict[Tuple[int, int], str] = {}
    for path in events.glob("sidecar-*.jsonl"):
        for r in map(json.loads, path.read_text().splitlines()):
            if r["event"] == "plan":
                assert plans.setdefault((r["attempt"], r["step"]), r["digest"]) == r["digest"], f"two plans of step {r['step']}"
    for life in cut:
        step = life.records[-1]["step"]
        assert plans[1, step] == golden.content()[step] == delivered.content()[step]


@pytest.mark.parametrize("seed", range(3))
def test_up_killed(stage: Any, golden: Delivered, seed: int) -> None:
    """kill -9 of `up`: its children are gone within 2 s, the trainers hear of it, and a new `up` goes on exactly with `latest`."""
    rng = random.Random(seed)
    directory = stage.new_dir()
    with stage.up(training(), RANKS, directory) as run:
        trainers = run.start(pause=0.005)
        trainers.collect(until=rng.randint(2, 25))
        run.kill_up()
        died = time.monotonic()
        while processes_of(directory) and time.monotonic() - died < 5:
            time.sleep(0.02)
        took = time.monotonic() - died
        assert not processes_of(directory) and took < 2, f"children outlived `up` by {took:.1f} s: {processes_of(directory)}"
        assert not list(directory.glob("*.sock")) and not (directory / "run").exists(), "the children left files behind"
        first = trainers.collect()
        for end in first.ends:
            assert isinstance(end, tuple) and end[1] == "RunError", end
    with stage.up(training(), RANKS, directory) as run:
        second = run.train(start="latest")
        check_goes_on(run, first, second, golden)


@pytest.mark.parametrize("seed", range(3))
def test_up_started_again(stage: Any, golden: Delivered, seed: int) -> None:
    """kill -9 of `up`, and at once a new one on the same run directory: the ranks that were connected go on by themselves, in the same
    attempt, and take each batch once."""
    rng = random.Random(200 + seed)
    directory = stage.new_dir()
    with stage.up(training(), RANKS, directory) as first:
        trainers = first.start(pause=0.005, patience=DEADLINE, states=True)
        trainers.collect(until=rng.randint(2, 40))
        first.kill_up()
        with stage.up(training(), RANKS, directory) as run:
            delivered = trainers.collect()
            check_survived(run, delivered, golden)
        for batches in delivered.ranks:
            assert [(b.step, b.microbatch) for b in batches] == sorted({(b.step, b.microbatch) for b in batches})
            assert max(json.loads(b.state)["attempt"] for b in batches) == 1


def test_sidecar_leaves(stage: Any, golden: Delivered) -> None:
    """SIGTERM of the sidecar, again and again, as a rolling restart does it: the trainers see nothing of it."""
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


def check_goes_on(run: Run, first: Delivered, second: Delivered, golden: Delivered) -> None:
    """The second part begins at a step that not all ranks had finished, or the one after, and both are parts of the whole."""
    assert second.ends == ["end"] * RANKS, f"{second.ends}\n{run.stderr()}"
    assert run.wait(20) == 0, run.stderr()
    whole, a, b = golden.bytes(), first.bytes(), second.bytes()
    start = min(step for step, _, _ in b)
    assert {slot: whole[slot] for slot in a} == a
    assert b == {slot: digest for slot, digest in whole.items() if slot[0] >= start}
    finished = min(max((x.step for x in batches if x.microbatch == x.num_microbatches - 1), default=-1) for batches in first.ranks)
    assert start <= finished + 1, f"went on at step {start}, but a rank had only finished step {finished}"
    assert start >= finished - 1, f"went on at step {start}, though every rank had finished step {finished}"


@pytest.mark.parametrize("seed", range(2))
def test_trainer_killed(stage: Any, golden: Delivered, seed: int) -> None:
    """kill -9 of the trainers holding batches: `up` serves on, takes its memory back, and the ranks go on from a state of either."""
    rng = random.Random(100 + seed)
    cut = rng.randint(2, 20)
    with stage.up(training(), RANKS, stage.new_dir()) as run:
        trainers = run.start(states=True, pause=0.003)
        trainers.collect(until=cut)
        trainers.end()  # SIGKILL
        first = trainers.delivered
        last = {(b.step, rank): b for rank, batches in enumerate(first.ranks) for b in batches if b.microbatch == b.num_microbatches - 1}
        step, rank = rng.choice(sorted(last))
        state = json.loads(last[step, rank].state)
        second = run.train(state=state)
        assert second.ends == ["end"] * RANKS, f"{second.ends}\n{run.stderr()}"
        assert run.wait(20) == 0, run.stderr()
    whole = golden.bytes()
    assert first.bytes() == {slot: whole[slot] for slot in first.bytes()}
    assert second.bytes() == {slot: digest for slot, digest in whole.items() if slot[0] > step}


def test_one_trainer_killed(stage: Any, golden: Delivered) -> None:
    """A rank that dies alone may say where it goes on; a step that others have passed is served to it again only by a new attempt."""
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
    """A trainer that is killed holding frames leaves no ring behind in the sidecar."""
    with stage.up(training(), RANKS, stage.new_dir()) as run:
        sidecar = next(r["pid"] for r in json.loads((run.directory / "run" / "roles.json").read_text()) if r["role"] == "sidecar")
        for _ in range(3):
            trainers = run.start(start="fresh", leave_after=(1, 0), stay=True)
            trainers.collect(until=1)
            assert memfds(sidecar) >= RANKS
            trainers.end()
            deadline = time.monotonic() + 5
            while memfds(sidecar) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert memfds(sidecar) == 0, "the rings of dead trainers are still there"


def memfds(pid: int) -> int:
    """The memfds that a process has open."""
    out = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            out += "memfd:" in os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            pass  # closed meanwhile
    return out


def test_crash_is_named(stage: Any) -> None:
    """A loader that crashes again and again ends the run with its name; the stack goes to a file, not to the user's screen."""
    with stage.up(training(), 1, stage.new_dir(), env={"MILLRACE_FAILPOINTS": "loader-0:loader/fetch/before=panic"}) as run:
        delivered = run.train()
        assert run.wait(DEADLINE) == 1
        said = run.stderr()
        crashes = sorted(p.name for p in run.directory.glob("crash-loader-0-*.log"))
    reason = said.strip().splitlines()[-1]
    assert "loader-0" in reason and "times within" in reason and "crash-loader-0-" in reason, reason
    assert not any(line.startswith(("panic:", "goroutine ")) for line in said.splitlines()), said
    assert crashes
    assert delivered.reasons() == [reason]
