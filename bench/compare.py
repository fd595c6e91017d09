"""Runs Millrace and its peers in turns over the same files, and prints one table for each task (bench/peers.py).

    bench/peers.sh [--sections text,tokens,many,files] [--rounds 3] [--seconds 8]

A peer that cannot be imported or fails is named and left out. `text` runs on two cores and on one (--cores).
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import corpora  # noqa: E402
import scale  # noqa: E402

PEERS = pathlib.Path(__file__).resolve().parent / "peers.py"
TEXT = ("torchdata.nodes", "LitData", "SPDL", "Grain", "DataLoader")
TOKENS = ("Grain", "nanoGPT's get_batch")


class Peers:
    """The environment of the peers, and the peers that failed."""

    def __init__(self, a: argparse.Namespace, bench: scale.Bench) -> None:
        self.python, self.ranks, self.bench, self.cores = a.python, a.vocabulary, bench, a.cores
        self.failed: set[tuple[str, str]] = set()

    def run(
        self, task: str, peer: str, corpus: pathlib.Path, cpus: str, patience: float = 300
    ) -> dict[str, float] | None:
        if (task, peer) in self.failed:
            return None
        b = self.bench
        args = [self.python, str(PEERS), task, peer, "--corpus", str(corpus), "--ranks", str(self.ranks)]
        args += ["--threads", str(cpus.count(",") + 1), "--warm", str(2 * b.warm), "--seconds", str(b.seconds)]
        try:
            out = subprocess.run(["taskset", "-c", cpus, *args], capture_output=True, text=True, timeout=patience)
        except subprocess.TimeoutExpired:
            out = None
        if out is None or out.returncode:
            self.failed.add((task, peer))
            reason = "it was not through in time" if out is None else out.stderr.strip().splitlines()[-1]
            print(f"{peer} is left out of {task}: {reason}", file=sys.stderr)
            return None
        return json.loads(out.stdout.strip().splitlines()[-1])


def in_turns(rounds: int, sides: dict[str, object]) -> dict[str, list[dict[str, float]]]:
    rows = scale.in_turns(rounds, sides)
    return {name: [r for r in some if r] for name, some in rows.items() if any(some)}


def text(b: scale.Bench, peers: Peers) -> None:
    folder = corpora.texts(b.data / "text-1", 100, 1)
    mix = b.mixture("text", scale.text_sources(b, 1), shuffle="blocks", global_batch_size=256)
    cores = sorted(os.sched_getaffinity(0))[:2]
    for n in peers.cores:
        cpus = ",".join(map(str, cores[:n]))

        def ours(cpus: str = cpus) -> dict[str, float]:
            os.sched_setaffinity(0, map(int, cpus.split(",")))
            try:
                return b.throughput(mix, cpus=cpus)
            finally:
                os.sched_setaffinity(0, cores)

        sides = {"millrace": ours}
        sides |= {peer: lambda peer=peer, cpus=cpus: peers.run("text", peer, folder / "s0000", cpus) for peer in TEXT}
        rows = in_turns(b.rounds, sides)
        scale.table(f"raw zstd text to [8, 2048] int64, gpt2, {n} core(s)", rows)
        scale.ratios(rows, "millrace")


def tokens(b: scale.Bench, peers: Peers) -> None:
    folder = corpora.megatron(b.data / "megatron-1", 100_000_000, 1)
    source = {"a": {"format": "megatron", "path": str(folder / "s0000" / "0")}}
    mix = b.mixture("tokens", source, global_batch_size=256)
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
    sides = {"millrace": lambda: b.throughput(mix, cpus=cpus)}
    sides |= {peer: lambda peer=peer: peers.run("tokens", peer, folder / "s0000" / "0.bin", cpus) for peer in TOKENS}
    rows = in_turns(b.rounds, sides)
    scale.table("token files to [8, 2048] int64, 2 cores", rows)
    scale.ratios(rows, "millrace")


def many(b: scale.Bench, peers: Peers) -> None:
    folder = corpora.small_sources(b.data / "small-306", 306)
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
    rows = in_turns(1, {"DataLoader, 2 workers, one rank": lambda: peers.run("many", "DataLoader", folder, cpus)})
    if rows:
        scale.table("306 sources, memory of one rank (bench/scale.sh --sections memory has ours)", rows)


def files(b: scale.Bench, peers: Peers) -> None:
    folder = corpora.small_files(b.data / f"files-{b.files}", b.files)
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
    sides = {peer: lambda peer=peer: peers.run("files", peer, folder, cpus) for peer in ("open and read", "datasets")}
    if rows := in_turns(1, sides):
        scale.table(f"{b.files:,} small files to the first document (bench/scale.sh --sections shards has ours)", rows)


SECTIONS = {f.__name__: f for f in (text, tokens, many, files)}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--millrace", required=True)
    p.add_argument("--python", required=True, help="of the peers' environment")
    p.add_argument("--vocabulary", type=pathlib.Path, required=True, help="gpt2's ranks, as tokenbench exports them")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--cores", type=int, nargs="+", default=[2, 1], help="cores of the section text")
    p.add_argument("--warm", type=float, default=4)
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--files", type=int, default=1_000_000, help="files of the section files")
    p.add_argument("--sections", default=",".join(SECTIONS))
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="millrace-peers-") as folder:
        bench = scale.Bench(a, pathlib.Path(folder))
        bench.data.mkdir(parents=True, exist_ok=True)
        peers = Peers(a, bench)
        for section in filter(None, a.sections.split(",")):
            print(f"\n## {section}: load average {os.getloadavg()[0]:.1f}", flush=True)
            SECTIONS[section](bench, peers)


if __name__ == "__main__":
    main()
