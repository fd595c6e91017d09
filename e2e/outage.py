"""A long loss of etcd's quorum under a run on three hosts (net.py).

    make outage [MINUTES=30] [RUNWAY=600] [RECORD=1]

Two of three members of etcd are killed for so many minutes. The ranks must train on for the runway, which is shorter,
and then wait without an error. When the members are back, the run must go on by itself. Every batch must be the one of
a run on one host without faults. The exit status is 1 if a batch was lost, doubled or different, if a rank or an `up`
failed, or if the alert `frozen` was missing at a look.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List

import corpus
import net
from chaos_net import PAGE, compare
from conftest import Stage, variant
from harness import DEADLINE
from test_cluster import program
from trainer import Orders

STEP = 1.0  # seconds of training for each step of two batches
AFTER = 60  # steps to train when etcd is back
LOOK = 30.0  # seconds between two looks at the alerts
HEAD = "| When | Tree | Minutes | Runway, s | Trained on, s | Steps in it | First step after, s | Steps | Result |\n"


@dataclasses.dataclass
class Course:
    """The times of a run, in seconds."""

    trained: float = 0.0  # from the loss until the last batch before the return
    steps: int = 0  # in that time
    first: float = 0.0  # from the return until the next batch
    total: int = 0
    wrong: List[str] = dataclasses.field(default_factory=list)


def say(what: str) -> None:
    print(f"{datetime.datetime.now():%H:%M:%S} {what}", flush=True)


def newest(trainers: Any) -> int:
    return max((b.step for rank in trainers.delivered.ranks for b in rank), default=-1)


def advance(trainers: Any, over: float) -> float:
    """Collects batches until a time, and returns the time of the last one."""
    last = 0.0
    while (now := time.monotonic()) < over:
        try:
            trainers.collect(until=0, within=min(5.0, over - now))
        except TimeoutError:
            continue
        last = time.monotonic()
        assert not any(trainers.delivered.ends), trainers.delivered.ends
    return last


def alerts(run: net.Net) -> List[str]:
    """The alerts of the host that planned last, or of any other while none plans."""
    out = set()
    for name in net.TRAINING:
        out.update(a["text"] for a in run.status(name)["alerts"])
    return sorted(out)


def play(run: net.Net, minutes: float, runway: float, course: Course) -> None:
    trainers = run.train(Orders(pause=STEP / 2, patience=net.PATIENCE))
    advance(trainers, time.monotonic() + 60)  # so that the pace is known and the runway is planned
    before = newest(trainers)
    say(f"step {before}; two members of etcd are killed")
    lost = time.monotonic()
    for name in net.MEMBERS[:2]:
        run.etcd.kill(name)
    last, over = lost, lost + 60 * minutes
    while time.monotonic() < over:
        last = advance(trainers, min(over, time.monotonic() + LOOK)) or last
        told = alerts(run)
        if not any("frozen: " in text for text in told):
            course.wrong.append(f"{time.monotonic() - lost:.0f} s after the loss no alert says frozen: {told}")
    course.trained, course.steps = last - lost, newest(trainers) - before
    say(f"step {newest(trainers)}; the ranks trained for {course.trained:.0f} s; the members are back")
    if course.trained < 0.8 * runway:
        course.wrong.append(f"the ranks trained for {course.trained:.0f} s, and the runway is {runway:.0f} s")
    back = time.monotonic()
    for name in net.MEMBERS[:2]:
        run.etcd.start(name)
    trainers.collect(until=newest(trainers) + 1, within=2 * DEADLINE)
    course.first = time.monotonic() - back
    say(f"step {newest(trainers)}, {course.first:.1f} s after the return")
    trainers.collect(until=newest(trainers) + AFTER, within=2 * DEADLINE)
    left = [text for text in alerts(run) if "frozen: " in text]
    if left or "over: frozen: " not in run.said():
        course.wrong.append(f"the alerts after the return: {left}\n{run.said()}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--runway", type=int, default=600)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    mixture: Dict[str, Any] = variant({
        "global_batch_size": 6, "micro_batch_size": 1, "loaders": 1, "stop": {"steps": 100_000},
        "limits": {"runway_seconds": args.runway},
    })
    course = Course()
    with tempfile.TemporaryDirectory(prefix="outage-") as scratch:
        files = Path(scratch, "corpus")
        files.mkdir()
        corpus.write_all(files)
        stage = Stage(args.binary.resolve(), files, Path(scratch))
        with net.running(stage, Path(scratch), program(), mixture) as run:
            try:
                play(run, args.minutes, args.runway, course)
            except (AssertionError, TimeoutError) as e:
                course.wrong.append(f"{e}\n{run.said()}")
            assert run.trainers is not None
            delivered = run.trainers.end()
            for name, up in run.runs.items():
                say(f"{name}: `up` printed {len(up.stderr().splitlines())} lines")
                if (code := up.stop()) != 0:
                    course.wrong.append(f"`up` of {name} ended with {code}\n{run.said()}")
        course.total = newest(run.trainers) + 1
        course.wrong += compare(stage, mixture, delivered)
    for wrong in course.wrong:
        say(f"FAILED: {wrong}")
    row = (f"| {datetime.date.today()} | {tree()} | {args.minutes:.0f} | {args.runway} | {course.trained:.0f} | "
           f"{course.steps} | {course.first:.1f} | {course.total} | "
           f"{'failed' if course.wrong else 'all bytes equal'} |\n")
    say(row)
    if args.record:
        text = PAGE.read_text(encoding="utf-8")
        at = text.index(HEAD) + len(HEAD)
        while text[at] == "|":
            at = text.index("\n", at) + 1
        PAGE.write_text(text[:at] + row + text[at:], encoding="utf-8")
    return 1 if course.wrong else 0


def tree() -> str:
    return subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
