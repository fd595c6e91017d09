"""The campaign of hosts and networks: seeded faults strike a run on three hosts with a network and an etcd cluster of
their own (net.py). Every rank must receive the bytes that it receives from one host without faults.

    python chaos_net.py --faults 50 --seed 1 [--each 3] [--only "host lost"] [--record] [--keep]

Each run takes as many faults as --each says, one after the other. The exit status is 1 if a batch was lost, doubled or
different, if a rank or an `up` failed, or if a run stood still for two minutes.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Dict, List, Tuple

import corpus
import net
from conftest import Stage, variant
from harness import Delivered
from test_cluster import program
from trainer import Orders

PAGE = Path(__file__).resolve().parent.parent / "docs" / "campaigns.md"
STANDSTILL = 120.0  # seconds without a batch after which a run counts as hung
PAUSE = 0.25  # seconds of training for each batch


def mixture(seed: int) -> Dict[str, Any]:
    return variant({
        "seed": seed, "global_batch_size": 6, "micro_batch_size": 1, "loaders": 1, "stop": {"steps": 400},
        "balance": random.Random(seed).choice(["fsdp", "dp"]),
    })


def compare(stage: Stage, plan: Dict[str, Any], delivered: Delivered) -> List[str]:
    """The batches that a run without faults on one host does not have, and the gaps in the order of the ranks."""
    last = max(b.step for rank in delivered.ranks for b in rank)
    golden = stage.delivered({**plan, "stop": {"steps": last + 1}}, len(delivered.ranks)).bytes()
    got = delivered.bytes()
    wrong = [f"slot {slot} differs or is none of the run" for slot in got if got[slot] != golden.get(slot)]
    for rank, batches in enumerate(delivered.ranks):
        slots = [(b.step, b.microbatch) for b in batches]
        want = [divmod(i, batches[0].num_microbatches) for i in range(len(slots))]
        if slots != want:
            wrong.append(f"rank {rank} received {slots[:3]} … {slots[-3:]}, out of order or with a gap")
    return wrong


def play(stage: Stage, seed: int, struck: List[str], keep: bool) -> Tuple[List[str], List[str]]:
    """Plays one run with some faults, and returns what the faults did and what went wrong."""
    rng, done, wrong = random.Random(seed), [], []
    directory = Path(tempfile.mkdtemp(prefix=f"chaos-net-{seed}-"))
    plan = mixture(seed)
    try:
        with net.running(stage, directory, program(), plan, seed=seed) as run:
            trainers = run.train(Orders(pause=PAUSE, patience=net.PATIENCE))
            trainers.collect(until=2, within=STANDSTILL)
            for name in struck:
                did = net.faults(plan)[name](run, rng)
                done.append(f"{name}: {did}")
                seen = max(b.step for rank in trainers.delivered.ranks for b in rank)
                trainers.collect(until=seen + rng.randint(6, 14), within=STANDSTILL)
            delivered = trainers.end()  # with the batches that the trainers had sent meanwhile
            for name, up in run.runs.items():
                if (code := up.stop()) != 0:
                    wrong.append(f"`up` of {name} ended with {code}\n{run.said()}")
        wrong += compare(stage, plan, delivered)
    except BaseException as e:
        if isinstance(e, KeyboardInterrupt):
            raise
        wrong.append(traceback.format_exc())
    if wrong and keep:
        print(f"seed {seed}: files in {directory}", file=sys.stderr)
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return done, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    names = [n for n in net.faults({}) if args.only in n]
    assert names, f"no fault has {args.only!r} in its name"
    counts: Dict[str, int] = collections.Counter()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="chaos-net-") as scratch:
        files = Path(scratch, "corpus")
        files.mkdir()
        corpus.write_all(files)
        stage = Stage(args.binary.resolve(), files, Path(scratch))
        order: List[str] = []
        for seed in range(args.seed, args.seed + -(-args.faults // args.each)):
            while len(order) < args.each:  # every fault comes once before any comes again
                order += random.Random(seed).sample(names, len(names))
            struck, order = order[: args.each], order[args.each:]
            began = time.monotonic()
            done, wrong = play(stage, seed, struck, args.keep)
            counts.update(d.split(":")[0] for d in done)
            failed += bool(wrong)
            print(f"seed {seed}: {'; '.join(done)}; {time.monotonic() - began:.0f} s"
                  + "".join(f"\nFAILED: {w}" for w in wrong), flush=True)
    total = sum(counts.values())
    print(f"{total} faults, {failed} runs failed: " + ", ".join(f"{n} {k}" for k, n in sorted(counts.items())))
    if args.record:
        record(total, failed, counts, args)
    return 1 if failed else 0


def record(total: int, failed: int, counts: Dict[str, int], args: argparse.Namespace) -> None:
    """Appends a row to the table of the page."""
    tree = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True).stdout.strip()
    row = f"| {datetime.date.today()} | {tree} | {args.seed} | {total} | {failed} | " + ", ".join(
        f"{k} {n}" for k, n in sorted(counts.items())) + " |\n"
    text = PAGE.read_text(encoding="utf-8")
    head = "| When | Tree | From seed | Faults | Runs failed | Faults by kind |\n" + "| --- " * 6 + "|\n"
    at = text.index(head) + len(head)
    while text[at] == "|":
        at = text.index("\n", at) + 1
    PAGE.write_text(text[:at] + row + text[at:], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
