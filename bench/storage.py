"""Measures files of an object store that answers after 50 ms beside local ones.

    bench/storage.sh [--megabytes 60] [--rounds 3] [--seconds 10] [--sections reads,runs] [--only ids]

Section `reads` reads 24 MiB in order, without a decoder: one range after the other, read ahead, with 5 % of errors,
from a filled cache, and from a local file. Section `runs` measures whole runs (`millrace bench`) over the same files:
local, from a filled cache of files, and from the store without a cache. Ratios are of one round, so load of other
processes that lasts longer than a round has no effect on them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from documents import corpus  # noqa: E402
from processes import spread  # noqa: E402

CASES = {  # name: the files of the source, and its keys
    "gzip JSONL, blocks": ("gz/*.jsonl.gz", {"shuffle": "blocks"}),
    "JSONL, global": ("plain/*.jsonl", {"shuffle": "global"}),
    "token ids, global": ("ids/*.bin", {"shuffle": "global"}),
}
END = 50256  # the id behind each document


def make_files(folder: pathlib.Path, megabytes: int) -> None:
    """Writes documents of this machine as JSONL, plain and packed, and random ids as files of uint16."""
    done = folder / "done"
    if done.exists() and done.read_text() == str(megabytes):
        return
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("gz", "plain", "ids"):
        (folder / name).mkdir(parents=True)
    documents, _ = corpus(megabytes * 1_000_000)
    for shard in range(4):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in documents[shard::4]).encode()
        (folder / "plain" / f"part-{shard}.jsonl").write_bytes(lines)
        (folder / "gz" / f"part-{shard}.jsonl.gz").write_bytes(gzip.compress(lines, 6))
        ids = b"".join(os.urandom(1000) + END.to_bytes(2, "little") for _ in range(megabytes * 250))
        (folder / "ids" / f"part-{shard}.bin").write_bytes(ids)
    done.write_text(str(megabytes))


def reads(a: argparse.Namespace) -> None:
    """Prints the reads of one file."""
    out = subprocess.run(
        [a.tools / "remote.test", "-test.run=^$", "-test.bench=InOrder", "-test.benchtime=10x"]
        + [f"-test.count={a.rounds}"],
        cwd=pathlib.Path(__file__).resolve().parent.parent / "sources" / "store" / "remote",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    speeds: dict[str, list[float]] = {}
    loads: dict[str, list[float]] = {}
    line = r"^BenchmarkInOrder/(\S+?)(?:-\d+)?\s.*?([\d.]+) MB/s\s+([\d.]+) load"
    for name, speed, load in re.findall(line, out, re.M):
        speeds.setdefault(name, []).append(float(speed))
        loads.setdefault(name, []).append(float(load))
    print(f"\n24 MiB in order, the store answers after 50 ms, median of {a.rounds} (min-max)")
    first = statistics.median(next(iter(speeds.values())))
    for name, values in speeds.items():
        ratio = statistics.median(values) / first
        print(f"  {name.replace('_', ' '):24} MB/s {spread(values):24} {ratio:8.2f} x   load {max(loads[name]):.2f}")


def measure(a: argparse.Namespace, path: str, keys: dict[str, object], storage: dict[str, object]) -> dict[str, float]:
    """Runs `millrace bench` over a source."""
    mixture = {
        "version": 1,
        "tokenizer": {"name": "gpt2"},
        "sequence_length": 2048,
        "global_batch_size": 64,
        "mixture": {"weights": {"web": 1}},
        "index_dir": "index-remote" if storage else "index-local",
        "sources": {"web": {"path": path} | storage},
    } | keys
    if path.endswith(".bin"):
        mixture["sources"]["web"] |= {"format": "tokens", "dtype": "uint16", "eos": END}
        del mixture["tokenizer"]
    at = a.data / "mixture.yaml"
    at.write_text(json.dumps(mixture))
    command = [a.tools / "millrace", "bench", at, "--ranks", "1", "--seconds", str(a.seconds), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"millrace bench failed for {path}")
    return dict(json.loads(done.stdout))


def runs(a: argparse.Namespace) -> None:
    """Prints whole runs."""
    files = a.data / "files"
    make_files(files, a.megabytes)
    command = [a.tools / "storetest", "--dir", files]
    store = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = store.stdout.readline().strip()
        urllib.request.urlopen(f"{url}/_faults?latency=50ms").close()
        place = {"storage": {"endpoint": url, "region": "us-east-1", "anonymous": True}}
        print(f"\nwhole runs, [1, 2048], median of {a.rounds} (min-max)")
        for name, (pattern, keys) in CASES.items():
            if a.only in name:
                case(a, name, pattern, keys, place)
    finally:
        store.kill()
        store.wait()


def case(a: argparse.Namespace, name: str, pattern: str, keys: dict[str, object], place: dict[str, object]) -> None:
    """Prints one source, local and remote."""
    cached = keys | {"cache": {"files": "8GiB", "dir": "cache"}}
    shutil.rmtree(a.data / "cache", ignore_errors=True)
    local: list[dict[str, float]] = []
    warm: list[dict[str, float]] = []
    far: list[dict[str, float]] = []
    measure(a, f"files/{pattern}", keys, {})  # makes the index
    measure(a, f"s3://data/{pattern}", cached, place)  # fills the cache
    for _ in range(a.rounds):
        local.append(measure(a, f"files/{pattern}", keys, {}))
        warm.append(measure(a, f"s3://data/{pattern}", cached, place))
        far.append(measure(a, f"s3://data/{pattern}", keys, place))
    print(f"  {name}")
    for side, found in (("local", local), ("filled cache", warm), ("store, 50 ms", far)):
        speed = [f["tokens_per_second"] / 1e6 for f in found]
        cpu = [f["cpu_per_million_tokens"] for f in found]
        ratio = [f["tokens_per_second"] / l["tokens_per_second"] for f, l in zip(found, local)]
        print(f"    {side:14} M tok/s {spread(speed):24} CPU s/M tok {spread(cpu):26} of local {spread(ratio)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--megabytes", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--sections", default="reads,runs")
    parser.add_argument("--only", default="", help="a part of the name of a run")
    a = parser.parse_args()
    a.data.mkdir(parents=True, exist_ok=True)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs")
    for section in a.sections.split(","):
        {"reads": reads, "runs": runs}[section](a)
    print(f"\nload average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
