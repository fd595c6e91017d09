"""Measures how cost, memory and start-up grow with sources, shards, ranks and cores.

    bench/scale.sh [--sections tokens,sources,shadow,memory,start,shards,parquet] [--rounds 3] [--seconds 8]

Each section prints one table. CPU is the user and system time of all roles and of the trainer in the measured window.
Tokens are document tokens without padding. PSS counts shared memory once. Rounds of compared settings take turns, and
each table shows medians with the range in brackets, and the load average before the section.

    tokens    token files to batches, beside two gathers in the trainer's process
    sources   the same tokens as 1, 8, 306 and 1,000 sources, text and Megatron
    shadow    CPU with one shadow and without
    memory    PSS with 1 rank at full speed, with 306 sources and 8 ranks, and with GOMAXPROCS=64
    start     the time and CPU from `up` to the first batch with 1,000 sources
    shards    4,096 sources of 25 shards; one source of a million files; 10^10 records of `format: lengths`
    parquet   shuffle global beside blocks, and with a token cache
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "clients" / "python" / "src"), str(ROOT / "bench")]

import corpora  # noqa: E402
import numpy as np  # noqa: E402
from processes import Run, cpu_seconds, family, pss_mib, spread, window  # noqa: E402

import millrace  # noqa: E402

ROWS, LENGTH = 8, 2048
COUNTED = 16  # one batch of so many is counted exactly; the others are taken to be as full


class Bench:
    """The binary, the directories and the repetitions of all sections."""

    def __init__(self, a: argparse.Namespace, work: pathlib.Path) -> None:
        self.millrace, self.work = a.millrace, work
        self.data = ROOT / "build" / "bench-scale"
        self.rounds, self.warm, self.seconds, self.files = a.rounds, a.warm, a.seconds, a.files

    def mixture(self, name: str, sources: Mapping[str, object], **settings: object) -> pathlib.Path:
        keys = {
            "version": 1,
            "tokenizer": {"name": "gpt2"},
            "sequence_length": LENGTH,
            "global_batch_size": 128,
            "micro_batch_size": ROWS,
            "mixture": {"weights": {source: 1 for source in sources}},
            "index_dir": str(self.work / f"index-{name}"),
            "sources": sources,
        } | settings
        path = self.work / f"{name}.yaml"
        path.write_text(json.dumps(keys))
        return path

    def run(self, mix: pathlib.Path, ranks: int = 1, **settings: object) -> Run:
        return Run(self.millrace, mix, self.work / "run", ranks, **settings)

    def throughput(self, mix: pathlib.Path, **settings: object) -> dict[str, float]:
        run = self.run(mix, **settings)
        with run, millrace.connect(str(run.dir / "rank-0.sock"), tensors="numpy") as loader:
            peak = Peak(run)
            with peak:
                out = window(counter(iter(loader)), self.warm, self.seconds, run.pids)
            return out | {"PSS MiB": peak.mib}

    def first_batch(self, mix: pathlib.Path) -> dict[str, float]:
        with self.run(mix) as run, millrace.connect(str(run.dir / "rank-0.sock"), tensors="numpy") as loader:
            next(iter(loader))
            took = time.perf_counter() - run.began
            return {"s": took, "CPU s": cpu_seconds(run.pids())}


def counter(batches: Iterator[millrace.Batch]):
    """Returns a function that takes a batch and returns its tokens. It counts one batch of COUNTED."""
    n, tokens = 0, 0

    def one() -> int:
        nonlocal n, tokens
        batch = next(batches)
        batch["tokens"][:, 0].sum()
        if n % COUNTED == 0:
            tokens = sum(s.length for s in batch.segments)
        n += 1
        return tokens

    return one


class Peak(threading.Thread):
    """Measures the highest PSS of a run inside the context, twice a second."""

    def __init__(self, run: Run) -> None:
        super().__init__(daemon=True)
        self.run_, self.mib, self._over = run, 0.0, threading.Event()

    def __enter__(self) -> Peak:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.5):
            self.mib = max(self.mib, pss_mib(self.run_.pids()))


def table(title: str, rows: Mapping[str, list[dict[str, float]]]) -> None:
    keys = list(next(iter(rows.values()))[0])
    print(f"\n{title}\n\n| | {' | '.join(keys)} |\n|---|{'---|' * len(keys)}")
    for name, rounds in rows.items():
        print(
            f"| {name} | {' | '.join(spread([r[key] for r in rounds]) if key in rounds[0] else '' for key in keys)} |"
        )
    sys.stdout.flush()


def ratios(rows: Mapping[str, list[dict[str, float]]], ours: str) -> None:
    """Prints our tokens/s over those of each other side, in the same round."""
    for name, rounds in rows.items():
        if name != ours:
            pairs = [a["M tok/s"] / b["M tok/s"] for a, b in zip(rows[ours], rounds, strict=False)]
            print(f"{ours} over {name}: {spread(pairs)}", flush=True)


def in_turns(rounds: int, sides: Mapping[str, object]) -> dict[str, list[dict[str, float]]]:
    """Calls all sides in each round."""
    out: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            out[name].append(side())
    return out


def tokens(b: Bench) -> None:
    folder = corpora.megatron(b.data / "megatron-1", 100_000_000, 1)
    mix = b.mixture("tokens", {"a": {"format": "megatron", "path": str(folder / "s0000" / "0")}}, global_batch_size=256)
    data = np.memmap(folder / "s0000" / "0.bin", np.uint16, "r")
    sides = {
        "millrace": lambda: b.throughput(mix),
        "nanoGPT's get_batch, in NumPy": lambda: window(get_batch(data), 1, b.seconds, lambda: []) | {"PSS MiB": 0},
        "gather of np.memmap rows": lambda: window(gather(data), 1, b.seconds, lambda: []) | {"PSS MiB": 0},
    }
    table("token files to [8, 2048] int64 batches, all cores", in_turns(b.rounds, sides))


def get_batch(data: np.ndarray):
    """The batch maker of nanoGPT: random offsets, one array a row, then a stack."""
    rng = np.random.default_rng(1)

    def one() -> int:
        at = rng.integers(0, len(data) - LENGTH - 1, ROWS)
        x = np.stack([data[i : i + LENGTH].astype(np.int64) for i in at])
        y = np.stack([data[i + 1 : i + 1 + LENGTH].astype(np.int64) for i in at])
        batch = {"tokens": x, "labels": y}
        return batch["tokens"].size

    return one


def gather(data: np.ndarray):
    """Tokens and labels of rows of a permutation of the file, without documents, packing or masks."""
    rows = (len(data) - 1) // LENGTH
    x, y = (data[at : at + rows * LENGTH].reshape(-1, LENGTH) for at in (0, 1))
    rng = np.random.default_rng(1)
    order, at = rng.permutation(rows), 0

    def one() -> int:
        nonlocal at
        at = (at + ROWS) % (len(order) - ROWS)
        some = order[at : at + ROWS]
        batch = {"tokens": x[some].astype(np.int64), "labels": y[some].astype(np.int64)}
        return batch["tokens"].size

    return one


def text_sources(b: Bench, n: int) -> dict[str, object]:
    folder = corpora.texts(b.data / f"text-{n}", 100, n)
    return {f"s{s:04}": {"path": str(folder / f"s{s:04}" / "*.jsonl.zst")} for s in range(n)}


def megatron_sources(b: Bench, n: int) -> dict[str, object]:
    folder = corpora.megatron(b.data / f"megatron-{n}", 100_000_000, n)
    return {f"s{s:04}": {"format": "megatron", "path": str(folder / f"s{s:04}" / "0")} for s in range(n)}


def sources(b: Bench) -> None:
    for name, make in (("zstd text, blocks", text_sources), ("Megatron, global", megatron_sources)):
        shuffle = "blocks" if "text" in name else "global"
        sides = {}
        for n in (1, 8, 306, 1000):
            mix = b.mixture(f"{make.__name__}-{n}", make(b, n), shuffle=shuffle)
            sides[f"{n} sources"] = lambda mix=mix: b.throughput(mix)
        table(f"the same total of tokens, {name}", in_turns(b.rounds, sides))


def shadow(b: Bench) -> None:
    for shuffle in ("blocks", "global"):
        sides = {}
        for shadows in (1, 0):
            settings = {"shuffle": shuffle, "reliability": {"shadows": shadows}}
            mix = b.mixture(f"shadow-{shadows}", text_sources(b, 8), **settings)
            sides[f"shadows: {shadows}"] = lambda mix=mix: b.throughput(mix)
        table(f"a healthy shadow, 8 text sources, {shuffle}", in_turns(b.rounds, sides))


def readers(run: Run, ranks: int) -> list[subprocess.Popen]:
    return [
        subprocess.Popen([sys.executable, __file__, "--reader", str(run.dir / f"rank-{r}.sock")]) for r in range(ranks)
    ]


def memory(b: Bench) -> None:
    many = corpora.small_sources(b.data / "small-306", 306)
    sources = {f"s{s:04}": {"path": str(many / f"s{s:04}" / "*")} for s in range(306)}
    least = {"loader_memory": "64MiB", "sidecar_memory": "64MiB", "sample_bytes": "8MiB"}
    cases = {
        "1 text source, 1 rank, defaults": (text_sources(b, 1), 1, {"shuffle": "blocks"}, {}),
        "306 sources, 8 ranks, defaults": (sources, 8, {}, {}),
        "306 sources, 8 ranks, least limits": (sources, 8, {"limits": least, "loaders": 1}, {}),
        "306 sources, 8 ranks, GOMAXPROCS=64": (sources, 8, {}, {"GOMAXPROCS": "64"}),
    }
    rows = {}
    for name, (which, ranks, settings, env) in cases.items():
        mix = b.mixture("memory", which, **settings)
        rounds = []
        for _ in range(b.rounds):
            with b.run(mix, ranks, env=env) as run:
                trainers = readers(run, ranks)
                with Peak(run) as peak:
                    time.sleep(b.warm + b.seconds)
                threads = sum(len(os.listdir(f"/proc/{pid}/task")) for pid in run.pids())
                rounds.append({"peak PSS MiB": peak.mib, "processes": len(run.pids()), "threads": threads})
                if any(t.poll() is not None for t in trainers):
                    raise SystemExit(f"a reader of {name} ended early, so its run was idle")
                for t in trainers:
                    t.kill()
                    t.wait()
        rows[name] = rounds
    table("memory of all roles while every rank reads at full speed", rows)


def start(b: Bench) -> None:
    for name, make in (("zstd text, blocks", text_sources), ("Megatron, global", megatron_sources)):
        shuffle = "blocks" if "text" in name else "global"
        mix = b.mixture(f"start-{shuffle}", make(b, 1000), shuffle=shuffle)
        index, rows = b.work / f"index-start-{shuffle}", {"never seen before": [], "indexed": []}
        for _ in range(b.rounds):
            shutil.rmtree(index, ignore_errors=True)
            rows["never seen before"].append(b.first_batch(mix))
            rows["indexed"].append(b.first_batch(mix))
        table(f"from `up` to the first batch, 1,000 sources, {name}", rows)


def command(b: Bench, *args: str) -> dict[str, float]:
    """Runs a command of millrace to its end, and returns its time, CPU and largest resident set."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([b.millrace, *args], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"s": time.perf_counter() - began, "CPU s": spent, "largest RSS MiB, any so far": after.ru_maxrss / 1024}


def shards(b: Bench) -> None:
    folder = corpora.small_files(b.data / f"files-{b.files}", b.files)
    mix = b.mixture("files", {"a": {"path": str(folder / "*" / "*.jsonl")}}, shuffle="global")
    shutil.rmtree(b.work / "index-files", ignore_errors=True)
    table(
        f"one source of {b.files:,} files, `millrace index`",
        {
            "never seen before": [command(b, "index", str(mix))],
            "indexed": [command(b, "index", str(mix))],
        },
    )
    run_and_weigh(b, f"one source of {b.files:,} files, `up`, indexed", mix)
    many = corpora.megatron(b.data / "megatron-4096x25", 4096 * 25 * 700, 4096, 25)
    sources = {f"s{s:04}": {"format": "megatron", "path": str(many / f"s{s:04}" / "*.bin")} for s in range(4096)}
    run_and_weigh(b, "4,096 sources of 25 shards, `up`", b.mixture("many", sources))
    lengths = b.data / "lengths.csv"
    lengths.write_text("tokens,count\n" + "".join(f"{64 + n},10000000\n" for n in range(1000)))
    mix = b.mixture("lengths", {"a": {"format": "lengths", "path": str(lengths)}})
    table(
        "10^10 records of `format: lengths`, `millrace plan` of 5 steps",
        {"": [command(b, "plan", "--steps", "0..5", "--json", str(mix))]},
    )


def run_and_weigh(b: Bench, title: str, mix: pathlib.Path) -> None:
    with b.run(mix) as run, millrace.connect(str(run.dir / "rank-0.sock"), tensors="numpy") as loader:
        ready = time.perf_counter() - run.began
        with Peak(run) as peak:
            batches = iter(loader)
            next(batches)
            first, spent = time.perf_counter() - run.began, cpu_seconds(run.pids())
            out = window(counter(batches), b.warm, b.seconds, run.pids)
        pids = family(run.up.pid)
        row = {
            "ready s": ready,
            "first batch s": first,
            "CPU s until then": spent,
            "M tok/s": out["M tok/s"],
            "CPU s/M tok": out["CPU s/M tok"],
            "peak PSS MiB": peak.mib,
            "descriptors": max(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
            "mappings": max(len(pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()) for pid in pids),
        }
    table(title, {"": [row]})


def parquet(b: Bench) -> None:
    folder = corpora.parquet(b.data / "parquet", 2000)
    source = {"a": {"path": str(folder / "*.parquet")}}
    cache = {"tokens": "20GiB", "dir": str(b.work / "cache")}
    mixes = {
        "blocks": b.mixture("blocks", source, shuffle="blocks"),
        "global": b.mixture("global", source, shuffle="global"),
        "global, token cache": b.mixture("cached", source, shuffle="global", cache=cache),
        "Megatron files, global": b.mixture("bin", megatron_sources(b, 1), shuffle="global"),
    }
    print()
    table(
        "2 GB of Parquet, `millrace index --tokens`",
        {"": [command(b, "index", "--tokens", str(mixes["global, token cache"]))]},
    )
    sides = {name: (lambda mix=mix: b.throughput(mix)) for name, mix in mixes.items()}
    table("2 GB of Parquet to batches, loader_memory 512MiB", in_turns(b.rounds, sides))


SECTIONS = {f.__name__: f for f in (tokens, sources, shadow, memory, start, shards, parquet)}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--millrace", default=str(ROOT / "millrace"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--warm", type=float, default=4)
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--files", type=int, default=1_000_000, help="files of the section shards")
    p.add_argument("--sections", default=",".join(SECTIONS))
    p.add_argument("--reader", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.reader:
        for batch in millrace.connect(a.reader, tensors="numpy"):
            batch["tokens"][:, 0].sum()
        return
    with tempfile.TemporaryDirectory(prefix="millrace-scale-", dir=os.environ.get("TMPDIR")) as folder:
        bench = Bench(a, pathlib.Path(folder))
        bench.data.mkdir(parents=True, exist_ok=True)
        for section in filter(None, a.sections.split(",")):
            print(f"\n## {section}: load average {os.getloadavg()[0]:.1f}", flush=True)
            SECTIONS[section](bench)


if __name__ == "__main__":
    main()
