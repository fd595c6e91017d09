"""The campaign: seeded faults against real processes over real files. The history checker compares each run with the
fault-free run.

    python chaos.py --faults 200 --seed 1 [--beside 3] [--record] [--keep]

A fault counts only if its victim's event record shows work in flight: work that was begun and not ended, or a failpoint
inside a stage of work. The table at the end has the number of hits of each point and each kind. The exit status is 1 if
a batch was lost, doubled, out of order or different. It is also 1 if a campaign of 3,000 faults has fewer than 20 hits
of a point.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import datetime
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import corpus
import faults
import oracle
from conftest import variant
from forks import processes
from harness import write_mixture
from history import Check, History
from ordeal import Ordeal, written

RANKS = 2
LEAST, LARGE = 20, 3000  # LEAST hits of each point in a campaign of LARGE faults
MOMENTS = 7  # faults at random moments in a run
SHADOWS = (1, 1, 1, 1, 1, 0, 2, 2)  # a run draws its number of shadows from these
PAUSE = 0.012  # seconds of training for each batch
BAD = (7, 23)  # records of the flawed source that cannot be decoded
PAGE = Path(__file__).resolve().parent.parent / "docs" / "campaigns.md"

RUN: Dict[str, Any] = {
    "loaders": 2,
    "global_batch_size": 8,
    "micro_batch_size": 2,
    "stop": {"steps": 36},
    "quarantine": {"budget": 0.9},
}
SOURCES: Dict[str, Any] = {
    "frames": {"path": "frames/*.jsonl.zst"},
    "tables": {"path": "tables/*.parquet", "text": "content.body"},
    "books": {"format": "megatron", "path": "books/corpus"},
    "flawed": {"path": "flawed.jsonl"},
    "hurt": {"path": "hurt.jsonl"},
}
HURT = range(120, 280, 8)  # records that are damaged after the length store has their lengths
HURT_TEXTS = corpus.synthetic_texts(78, 400, 120)
MANY = [f"many{n:03}" for n in range(300)]
SOURCES.update({name: {"path": f"many/{name}.jsonl{'.zst' * (n % 2)}"} for n, name in enumerate(MANY)})
CACHED = "cached"  # the mixture of runs with a token cache, which is damaged and emptied under them
BALLAST = "-" * 9000  # makes the file longer than its digest covers (1 MiB at each end)
MIXTURES: Dict[str, Dict[str, Any]] = {
    "tokens": {
        "mixture": {"schedule": [
            {"from_step": 0, "weights": {"frames": 4, "tables": 2, "books": 2, "flawed": 1}},
            {"from_step": 9, "weights": {"frames": 1, "tables": 2, "books": 3, "flawed": 3},
             "ramp": "linear", "over_steps": 12},
        ]},
        "sources": {name: SOURCES[name] for name in ("frames", "tables", "books", "flawed")},
        "stages": [
            {"from_step": 11, "sequence_length": 512, "global_batch_size": 4, "micro_batch_size": 1},
            {"from_step": 24, "sequence_length": 128, "global_batch_size": 16, "packing": "pad",
             "rampup_batch_size": {"start": 8, "increment": 4, "samples": 30}},
        ],
    },
    "samples": {
        "mixture": {"unit": "samples", "weights": {"frames": 3, "tables": 2, "flawed": 2}},
        "sources": {name: SOURCES[name] for name in ("frames", "tables", "flawed")},
        "shuffle": "blocks", "layout": "varlen", "token_dtype": "int32", "pad_multiple": 8, "balance": "dp",
    },
    "damaged": {
        "mixture": {"weights": {"hurt": 3, "frames": 2, "flawed": 1}},
        "sources": {name: SOURCES[name] for name in ("hurt", "frames", "flawed")},
        "verify": "off",  # otherwise a changed file ends the run
    },
    "bucketed": {
        "mixture": {"weights": {"frames": 3, "tables": 2, "books": 1, "flawed": 1}},
        "sources": {name: SOURCES[name] for name in ("frames", "tables", "books", "flawed")},
        "packing": "bucketed", "window": 3, "pad_multiple": 2, "micro_batch_size": 1,
        "stages": [{"from_step": 16, "packing": "best_fit"}, {"from_step": 26, "packing": "concat"}],
    },
    "sliced": {
        "mixture": {"weights": {"frames": 3, "tables": 2, "books": 1}},
        "sources": {name: SOURCES[name] for name in ("frames", "tables", "books")},
        "parallelism": {"cp": RANKS}, "pad_multiple": 2 * RANKS, "layout": "varlen", "cp_local": 100,
    },
    "many": {
        "mixture": {"weights": {name: 1 + n % 3 for n, name in enumerate(MANY)}},
        "sources": {name: SOURCES[name] for name in MANY},
        "global_batch_size": 64, "micro_batch_size": 8, "stop": {"steps": 8},
    },
    CACHED: {
        "mixture": {"weights": {"frames": 3, "tables": 2, "flawed": 2}},
        "sources": {name: SOURCES[name] for name in ("frames", "tables", "flawed")},
    },
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Fault:
    """One injected fault. `counts` is true if the victim's record shows work in flight."""

    what: str  # kill, eio …; at random moments also stop, term, memory, pair, cut, nap
    where: str  # the point, or the kind of process
    counts: bool


def struck(h: History) -> Iterator[Fault]:
    """Reads all faults of a run from its records."""
    by_pid = {(life.name, life.pid): life for life in h.lives}
    for _, r in h.each("failpoint"):
        point, _, action = r["key"].partition("=")
        yield Fault(action, point, True)
    for _, r in h.each("fault", "driver"):
        life = by_pid.get((r["name"], r["victim"]))
        kind = re.sub(r"-\d+$", "", r["name"])
        counts = life is not None and bool(life.until(r["boottime_ns"]).open())
        if life is not None and r["key"] == "memory":
            counts = counts and not life.named("exit")  # the process ended in order: no allocation failed
        yield Fault(r["key"], kind, counts)
    for life in h.of("trainer"):
        for event in ("cut", "nap"):
            for _ in life.named(event):
                yield Fault(event, "trainer", bool(life.named("batch")))


class Stage:
    """The files, the mixtures and the results of fault-free runs. Each is made when a run first needs it. `kept` is a
    directory for a finished stage, which later campaigns of other programs use again: it has all fault-free runs."""

    def __init__(self, binary: Path, scratch: Path, kept: Optional[Path] = None) -> None:
        self.binary, self.scratch, self.kept = binary, scratch, kept or scratch
        self.files = self.kept / "files"
        if not self.files.exists():
            corpus.write_all(self.files)
        for n, name in enumerate(MANY):
            corpus.write_jsonl(self.files / SOURCES[name]["path"], corpus.synthetic_texts(1000 + n, 12, 40), odd=False)
        texts = corpus.synthetic_texts(77, 300, 20)
        lines = [json.dumps({"text": 5 if n in BAD else text}) for n, text in enumerate(texts)]
        (self.files / "flawed.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.checks: Dict[str, Check] = {}
        self.sizes: Dict[str, int] = {}
        self.passes: Dict[str, Dict[Tuple[str, str], int]] = {}
        self._texts, self._making = texts, threading.Lock()
        self._hurt(self.files / "hurt.jsonl")
        for name in MIXTURES if kept else ():
            self.prepare(name)

    def prepare(self, name: str) -> None:
        """Makes the fault-free run of a mixture, unless it is there."""
        with self._making:
            if name not in self.passes:
                self._golden(name, self._texts)

    def _hurt(self, path: Path) -> None:
        """Damages a shard after the length store has recorded its lengths."""
        known = self.kept / "known.index"
        if known.exists():
            return
        lines = [json.dumps({"text": text, "ballast": BALLAST}) + "\n" for text in HURT_TEXTS]
        path.write_text("".join(lines), encoding="utf-8")
        mixture = write_mixture(
            self.files, variant({**RUN, **MIXTURES["damaged"], "index_dir": str(known)}), "known.yaml"
        )
        subprocess.run(
            [str(self.binary), "index", "--lengths", "--source", "hurt", str(mixture)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        path.write_text(
            "".join(line.replace('"text"', '"tezt"') if n in HURT else line for n, line in enumerate(lines)),
            encoding="utf-8",
        )

    def mixture(self, name: str, run: str, shadows: int = 1) -> Path:
        """Writes a mixture with an index of its own, so that indexing also happens under faults. The index holds the
        lengths of damaged shards."""
        own: Dict[str, Any] = {"index_dir": str(self.scratch / f"{run}.index"), "reliability": {"shadows": shadows}}
        if "hurt" in MIXTURES[name]["sources"]:
            shutil.copytree(self.kept / "known.index", own["index_dir"])
        if name == CACHED and not run.startswith("golden"):  # the fault-free run has no cache, and the same batches
            own["cache"] = {"tokens": "1MiB", "dir": str(self.scratch / f"{run}.tokens")}
        return write_mixture(self.files, variant({**RUN, **MIXTURES[name], **own}), f"{run}.yaml")

    def _golden(self, name: str, texts: List[str]) -> None:
        """Runs without faults. Every failpoint is armed with an empty pause, so the records count its passes."""
        counted = tuple(f"{p.name}=sleep:0s@0" for p in faults.points() if p.kind != "trainer")
        directory, wrong = self.kept / f"golden-{name}", []
        if not directory.exists():
            wrong = Ordeal(
                self.binary, self.mixture(name, f"golden-{name}"), directory, RANKS, faults.Plan(counted, (), (), ()),
                0, 0.0,
            ).run()
        events = Path(f"{directory}.events")
        h = History(events)
        self.checks[name] = Check(h, self._manifest(MIXTURES[name], texts))
        found = [*wrong, *self.checks[name].run(h)]
        assert not found, "\n".join(map(str, found))
        self.sizes[name] = written(events)
        self.passes[name] = collections.Counter(
            (life.kind, r["key"].partition("=")[0]) for life, r in h.each("failpoint")
        )

    def _manifest(self, mixture: Mapping[str, Any], texts: List[str]) -> Dict[str, Dict[str, int]]:
        """Reads the sources with other libraries. Each bad record must appear in a quarantine."""
        base = variant(mixture)
        good = {name: source for name, source in mixture["sources"].items() if name not in ("flawed", "hurt")}
        out = {
            name: {i: len(t) for i, t in d.items()}
            for name, d in oracle.documents(self.files, {**base, "sources": good}).items()
        }
        bpe, _ = oracle.encoding(base["tokenizer"]["name"])
        out["flawed"] = {
            f"flawed.jsonl#{n}": 1 if n in BAD else 1 + len(bpe.encode_ordinary(t)) for n, t in enumerate(texts)
        }
        out["hurt"] = {f"hurt.jsonl#{n}": 1 + len(bpe.encode_ordinary(t)) for n, t in enumerate(HURT_TEXTS)}
        return out

    def processes(self, name: str, shadows: int) -> List[str]:
        """The names of a run's processes: the golden run's roles and trainers, with this number of shadows."""
        others = {life.name for life in self.checks[name].golden.lives if life.kind not in ("driver", "shadow")}
        return sorted(others | {f"shadow-{i}" for i in range(shadows)})


@dataclasses.dataclass
class Outcome:
    seed: int
    faults: List[Fault]
    wrong: List[str]
    seconds: float
    directory: Path
    spec: str


@contextlib.contextmanager
def vandal(entries: Path, seed: int) -> Iterator[None]:
    """Flips bytes of a token cache, cuts its entries short and removes them, until the context ends."""
    ended, rnd = threading.Event(), random.Random(seed)

    def strike(path: Path) -> None:
        size = path.stat().st_size
        act = rnd.choice(("flip", "flip", "cut", "remove"))
        if act == "remove":
            path.unlink()
        elif act == "cut":
            os.truncate(path, rnd.randrange(size + 1))
        elif size:
            with open(path, "r+b") as f:
                at = f.seek(rnd.randrange(size))
                byte = f.read(1)[0]
                f.seek(at)
                f.write(bytes([byte ^ 1 << rnd.randrange(8)]))

    def work() -> None:
        while not ended.wait(0.02):
            for path in sorted(entries.glob("*.tokens")) if entries.exists() else ():
                if rnd.random() < 0.1:
                    with contextlib.suppress(OSError, IndexError):  # an entry may go at any time
                        strike(path)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def one(stage: Stage, seed: int) -> Outcome:
    """Plays the run of one seed."""
    name = list(MIXTURES)[seed % len(MIXTURES)]
    stage.prepare(name)
    shadows = random.Random(seed).choice(SHADOWS)
    plan = faults.draw(
        seed // len(MIXTURES), faults.kinds_of(stage.processes(name, shadows)), stage.passes[name], MOMENTS
    )
    run = f"run-{seed}"
    o = Ordeal(
        stage.binary, stage.mixture(name, run, shadows), stage.scratch / run, RANKS, plan, seed, PAUSE,
        stage.sizes[name],
    )
    began, wrong, found = time.monotonic(), [], []
    try:
        with vandal(stage.scratch / f"{run}.tokens", seed):
            wrong = o.run()
    except Exception:
        wrong = [traceback.format_exc()]
    h = History(o.events)
    try:
        found = [str(v) for v in dataclasses.replace(stage.checks[name], paused=o.paused).run(h)]
    except Exception:
        wrong = [*wrong, traceback.format_exc()]
    return Outcome(seed, list(struck(h)), wrong + found, time.monotonic() - began, o.directory, o.spec)


def clear(stage: Stage, outcome: Outcome) -> None:
    name = outcome.directory.name  # run-1 is a prefix of run-10
    for path in [*stage.scratch.glob(name), *stage.scratch.glob(f"{name}.*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


class Score:
    """Adds up a campaign."""

    def __init__(self) -> None:
        self.hits: Dict[Tuple[str, str], int] = collections.Counter()
        self.idle: Dict[Tuple[str, str], int] = collections.Counter()
        self.failed: List[Outcome] = []
        self.runs = 0

    def add(self, o: Outcome) -> None:
        self.runs += 1
        for f in o.faults:
            (self.hits if f.counts else self.idle)[f.where, f.what] += 1
        if o.wrong:
            self.failed.append(o)

    def total(self) -> int:
        return sum(self.hits.values())

    def at(self, point: str) -> int:
        return sum(n for (where, _), n in self.hits.items() if where == point)

    def rare(self) -> List[str]:
        return sorted(p.name for p in faults.points() if self.at(p.name) < LEAST)

    def table(self) -> str:
        lines = [f"{'where':34} {'what':8} {'in flight':>9} {'idle':>6}"]
        for where, what in sorted(self.hits.keys() | self.idle.keys()):
            lines.append(f"{where:34} {what:8} {self.hits[where, what]:9} {self.idle[where, what]:6}")
        missed = [p.name for p in faults.points() if not self.at(p.name)]
        return "\n".join([*lines, f"points never hit: {', '.join(missed) or 'none'}"])


def campaign(
    stage: Stage, wanted: int, first: int, beside: int, keep: bool, say: Any = print, stop: bool = False
) -> Tuple[Score, int]:
    """Plays consecutive seeds in parallel until enough faults counted. With `stop` it also ends at the first failed
    run. Returns the seed after the last one."""
    score, seed = Score(), first
    processes()  # it starts the process that forks, before there are threads
    with concurrent.futures.ThreadPoolExecutor(beside) as pool:
        under_way = set()

        def wants() -> bool:
            return score.total() < wanted and not (stop and score.failed)

        while under_way or wants():
            while wants() and len(under_way) < beside:
                under_way.add(pool.submit(one, stage, seed))
                seed += 1
            done, under_way = concurrent.futures.wait(under_way, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                o = future.result()
                score.add(o)
                counted = sum(f.counts for f in o.faults)
                wrong = f"\n  WRONG, {o.directory}, {o.spec}\n  " + "\n  ".join(o.wrong) if o.wrong else ""
                say(
                    f"seed {o.seed}: {counted} of {len(o.faults)} faults in flight, {o.seconds:.1f} s; "
                    f"{score.total()} in all{wrong}"
                )
                if not o.wrong and not keep:
                    clear(stage, o)
    return score, seed


def build(scratch: Path) -> Path:
    """The binary under test: $MILLRACE if set, else built from this tree."""
    if "MILLRACE" in os.environ:
        return Path(os.environ["MILLRACE"]).resolve()
    out = scratch / "millrace"
    subprocess.run(
        [shutil.which("go") or "/usr/local/go/bin/go", "build", "-o", str(out), "./cmd/millrace"],
        cwd=PAGE.parent.parent,
        check=True,
    )
    return out


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Injects faults into real processes and compares the runs with the fault-free run."
    )
    parser.add_argument("--faults", type=int, default=200, help="faults with work in flight")
    parser.add_argument("--seed", type=int, default=1, help="first seed; one seed is one run")
    parser.add_argument("--beside", type=int, default=3, help="runs in parallel")
    parser.add_argument("--keep", action="store_true", help="keep the directories of runs that passed")
    parser.add_argument("--stop", action="store_true", help="begin no run after a failed one")
    parser.add_argument("--stage", type=Path, help="directory of files and fault-free runs; made if it is missing")
    parser.add_argument("--record", action="store_true", help="append the totals to docs/campaigns.md")
    a = parser.parse_args(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="chaos-"))
    began = time.monotonic()
    stage = Stage(build(scratch), scratch, a.stage)
    score, after = campaign(stage, a.faults, a.seed, a.beside, a.keep, stop=a.stop)
    wall = time.monotonic() - began
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = usage.ru_utime + usage.ru_stime
    print(score.table())
    print(
        f"{score.total()} faults in {score.runs} runs, seeds {a.seed} to {after - 1}; {wall:.0f} s, "
        f"{60 * score.total() / wall:.0f} faults a minute, {score.total() / cpu:.2f} a CPU second"
    )
    rare = score.rare() if a.faults >= LARGE else []
    if rare:
        print(f"hit fewer than {LEAST} times: {', '.join(rare)}")
    for o in score.failed:
        print(f"failed: seed {o.seed}, {o.directory}")
    if not score.failed and not a.keep:
        shutil.rmtree(scratch)
    if a.record:
        record(score, a.seed, after - 1, cpu)
    return 1 if score.failed or rare else 0


def record(score: Score, first: int, last: int, cpu: float) -> None:
    """Appends a row to the totals in docs/campaigns.md."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=PAGE.parent, capture_output=True, text=True, check=True
    ).stdout.strip()
    result = f"failed: seeds {', '.join(str(o.seed) for o in score.failed)}" if score.failed else "all bytes equal"
    row = f"| {datetime.date.today()} | {commit} | {first}-{last} | {score.runs} | {score.total()} "
    row += f"| {cpu / 3600:.2f} | {result} |\n"
    before, heading, totals = PAGE.read_text(encoding="utf-8").partition("## Totals\n")
    rows = totals.splitlines(keepends=True)
    last = max(i for i, line in enumerate(rows) if line.startswith("| 2"))
    PAGE.write_text(before + heading + "".join([*rows[: last + 1], row, *rows[last + 1 :]]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
