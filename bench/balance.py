"""Measures the wall time that balance saves.

    python bench/balance.py --millrace ./millrace [--ranks 4] [--microbatches 4] [--steps 8] [--rounds 2]
                            [--mean-ms 150] [--lengths longctx]

The same documents go to trainers with `balance: none` and with `balance: fsdp`. The baseline is `packing: concat`
without balance. The documents are in a Megatron file, with lengths from a histogram of bench/plan. Every rank is a
process with the real client. It takes a microbatch, sleeps as long as an 8B model would compute, and waits for all
other ranks, as FSDP does. The cost of a document of s tokens is s·61000 + s², scaled so that the mean microbatch takes
--mean-ms.

The table also has the time that the costs of these microbatches predict, the prediction for the same sequences in
random order, and the time of a perfect plan. The runs with `none` and `fsdp` must hold the same documents in every
step. `none` does not ignore costs completely: the planner opens bins with the longest document first, and `none` keeps
that order.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "clients" / "python" / "src"))

import numpy as np  # noqa: E402

import millrace  # noqa: E402

RATIO = 61_000  # tokens at which attention costs as much as all linear work: an 8B model
SLACK = 1.15


def write_corpus(path: Path, histogram: Path, tokens: int) -> None:
    """Writes a .bin and .idx of random tokens, in documents with lengths from the histogram."""
    counts = np.loadtxt(histogram, delimiter=",", skiprows=1, dtype=np.int64)
    rng = np.random.default_rng(1)
    lengths: List[int] = []
    while sum(lengths) < tokens:
        lengths += [int(n) for n in rng.choice(counts[:, 0], 1000, p=counts[:, 1] / counts[:, 1].sum())]
    sizes = np.asarray(lengths, np.int32)
    rng.integers(0, 50_000, int(sizes.sum()), dtype=np.uint16).tofile(path.with_suffix(".bin"))
    starts = (np.cumsum(sizes, dtype=np.int64) - sizes) * 2
    with path.with_suffix(".idx").open("wb") as f:
        # 8 is the code of unsigned 16-bit tokens
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(sizes), len(sizes) + 1))
        f.write(sizes.tobytes() + starts.tobytes() + np.arange(len(sizes) + 1, dtype=np.int64).tobytes())


def cost(lengths: Sequence[int]) -> float:
    return float(sum(n * (RATIO + n) for n in lengths))


Taken = List[Tuple[int, int, List[int], List[Any]]]  # step, microbatch, lengths, documents


def train(rank: int, socket: str, steps: int, unit: float, barrier: Any, told: Any) -> None:
    """Runs one rank. Puts its segments, and the seconds from its first to its last barrier, into `told`."""
    try:
        taken: Taken = []
        begin = 0.0
        for batch in millrace.connect(socket, tensors="numpy"):
            if batch.step == steps:
                break
            if not taken:
                barrier.wait(120)  # the start does not count
                begin = time.perf_counter()
            segments = batch.segments
            lengths = [s.length for s in segments]
            time.sleep(cost(lengths) * unit)
            barrier.wait(120)
            taken.append(
                (batch.step, batch.microbatch, lengths, [(s.source, s.id, s.offset, s.length) for s in segments])
            )
        told.put((rank, time.perf_counter() - begin, taken))
    except Exception as e:
        barrier.abort()
        told.put((rank, -1.0, repr(e)))


class Side:
    """The runs with one packing and one balance, and their times."""

    def __init__(self, a: argparse.Namespace, folder: Path, balance: str, packing: str = "best_fit") -> None:
        self.a, self.name, self.folder = a, f"{packing}-{balance}", folder
        self.mixture = folder / f"{self.name}.yaml"
        keys = {
            "version": 1,
            "seed": 1,
            "sequence_length": a.sequence_length,
            "global_batch_size": a.ranks * a.microbatches,
            "micro_batch_size": 1,
            "layout": "varlen",
            "cap_slack": SLACK,
            "packing": packing,
            "balance": balance,
            "cost": {"linear": RATIO, "quadratic": 1},
            "shuffle": "global",
            "mixture": {"weights": {"files": 1}},
            "sources": {"files": {"format": "megatron", "path": str(folder / "corpus")}},
            "index_dir": str(folder / "index"),
        }
        self.mixture.write_text(json.dumps(keys))
        self.walls: List[float] = []
        self.taken: Dict[int, Taken] = {}

    def play(self, unit: float) -> None:
        run = self.folder / f"run-{self.name}"
        shutil.rmtree(run, ignore_errors=True)
        args = [self.a.millrace, "up", str(self.mixture), "--ranks", str(self.a.ranks), "--run-dir", str(run)]
        up = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
        try:
            assert up.stdout is not None
            if not up.stdout.readline().startswith("ready"):
                raise SystemExit("millrace up did not become ready; see above")
            context = mp.get_context("spawn")
            barrier, told = context.Barrier(self.a.ranks), context.Queue()
            ranks = [
                context.Process(
                    target=train, args=(r, str(run / f"rank-{r}.sock"), self.a.steps, unit, barrier, told), daemon=True
                )
                for r in range(self.a.ranks)
            ]
            for r in ranks:
                r.start()
            answers = sorted(told.get(timeout=300) for _ in ranks)
            for r in ranks:
                r.join(30)
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(30)
        for rank, wall, taken in answers:
            if wall < 0:
                raise SystemExit(f"rank {rank}: {taken}")
            self.taken[rank] = taken
        self.walls.append(max(wall for _, wall, _ in answers))

    def microbatches(self) -> List[List[float]]:
        """Returns the costs of each column. Ranks wait for each other after every column."""
        return [[cost(column[2]) for column in row] for row in zip(*(self.taken[r] for r in sorted(self.taken)))]

    def tokens(self) -> int:
        return sum(sum(lengths) for taken in self.taken.values() for _, _, lengths, _ in taken)

    def steps(self) -> Dict[int, List[Any]]:
        held: Dict[int, List[Any]] = {}
        for taken in self.taken.values():
            for step, _, _, documents in taken:
                held.setdefault(step, []).extend(documents)
        return {step: sorted(documents) for step, documents in held.items()}


def waited(columns: Sequence[Sequence[float]]) -> float:
    return sum(max(column) for column in columns)


def at_random(columns: List[List[float]], a: argparse.Namespace) -> float:
    """Returns the mean time of the same microbatches in random order inside each step."""
    rng, total, rounds = random.Random(1), 0.0, 50
    for _ in range(rounds):
        for at in range(0, len(columns), a.microbatches):
            step = [c for column in columns[at : at + a.microbatches] for c in column]
            rng.shuffle(step)
            total += waited([step[i : i + a.ranks] for i in range(0, len(step), a.ranks)])
    return total / rounds


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--millrace", required=True)
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--microbatches", type=int, default=4)
    p.add_argument("--sequence-length", type=int, default=131072)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--mean-ms", type=float, default=150)
    p.add_argument("--lengths", default="longctx", help="a histogram of bench/plan/workload/testdata, or a CSV file")
    a = p.parse_args()
    histogram = Path(a.lengths)
    if not histogram.exists():
        histogram = ROOT / "bench" / "plan" / "workload" / "testdata" / f"{a.lengths}.csv"
    a.millrace = str(Path(a.millrace).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokens = a.ranks * a.microbatches * a.sequence_length
        write_corpus(folder / "corpus", histogram, tokens * (a.steps + 2))
        sides = [Side(a, folder, "none"), Side(a, folder, "fsdp"), Side(a, folder, "none", "concat")]
        # A run without sleep finds the cost of the mean microbatch.
        probe = Side(a, folder, "none")
        probe.play(0)
        columns = probe.microbatches()
        mean = statistics.fmean(c for column in columns for c in column)
        unit = a.mean_ms / 1e3 / mean
        for _ in range(a.rounds):
            for side in sides:
                side.play(unit)
        report(a, sides, mean, probe.walls[0])


def report(a: argparse.Namespace, sides: List[Side], mean: float, bare: float) -> None:
    none, fsdp, concat = sides
    if none.steps() != fsdp.steps():
        raise SystemExit("the two runs do not hold the same documents in the same steps")
    seconds = a.mean_ms / 1e3 / mean
    print(
        f"\n{a.ranks} ranks × {a.microbatches} microbatches of {a.sequence_length} tokens, {a.steps} steps, "
        f"lengths of {a.lengths}, 8B, varlen {SLACK}, {a.rounds} rounds in turns; "
        f"without any computing the steps take {bare:.2f} s"
    )
    print("\n| | wall time | simulated | over its mean | M tokens | simulated seconds a M tokens |")
    print("|---|---|---|---|---|---|")

    def line(name: str, wall: str, side: Side, took: float) -> None:
        ideal = sum(sum(column) for column in side.microbatches()) / a.ranks
        millions = side.tokens() / 1e6
        over = 100 * (took / ideal - 1)
        took *= seconds
        print(f"| {name} | {wall} | {took:.2f} s | {over:.1f} % | {millions:.2f} | {took / millions:.4f} |")

    for name, side in (
        ("best_fit, balance: fsdp", fsdp),
        ("best_fit, balance: none", none),
        ("concat, balance: none", concat),
    ):
        line(
            name,
            f"{statistics.median(side.walls):.2f} s ({min(side.walls):.2f}–{max(side.walls):.2f})",
            side,
            waited(side.microbatches()),
        )
    chance = at_random(none.microbatches(), a)
    line("the sequences of best_fit in random order", "", none, chance)
    line("a perfect plan", "", none, sum(sum(column) for column in none.microbatches()) / a.ranks)

    def speed(name: str, side: Side) -> None:
        wall = statistics.median(side.walls) / side.tokens() / (statistics.median(fsdp.walls) / fsdp.tokens())
        said = waited(side.microbatches()) / side.tokens() / (waited(fsdp.microbatches()) / fsdp.tokens())
        print(f"fsdp against {name}, by the token: {wall:.3f} × by the wall clock, {said:.3f} × simulated")

    print()
    speed("balance: none", none)
    speed("concat, balance: none", concat)
    print(f"fsdp against random order: {chance / waited(fsdp.microbatches()):.3f} × simulated")


if __name__ == "__main__":
    main()
