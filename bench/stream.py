"""Measures the whole way: raw zstd JSONL to packed [8, 2048] int64 batches in the trainer, start-up, idle CPU and
memory.

    bench/stream.sh [--megabytes 120] [--rounds 3] [--seconds 8] [--sections throughput,start,idle,memory]

The peer of the first table runs in the same rounds, over the same documents and ids. It is a thread pool of tiktoken's
encode_to_numpy with concat-then-split in NumPy, for tokens and labels alone. The fastest Python loader known to us has
this design on top of PyTorch. CPU is the user and system time of all processes of a side in the measured window. Tokens
are document tokens without padding.
"""

from __future__ import annotations

import argparse
import collections
import io
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "clients" / "python" / "src"), str(ROOT / "bench")]

import numpy as np  # noqa: E402
import tokenizer as vocabularies  # noqa: E402
import zstandard  # noqa: E402
from documents import corpus  # noqa: E402
from processes import Run, cpu_seconds, pss_mib, spread, window  # noqa: E402

import millrace  # noqa: E402

ROWS, LENGTH = 8, 2048


def make_corpus(folder: pathlib.Path, megabytes: int) -> None:
    """Writes documents of this machine as zstd JSONL shards of 16 MB of text."""
    if (folder / "done").exists():
        return
    documents, labels = corpus(megabytes * 1_000_000)
    shard, size, number = io.BytesIO(), 0, 0
    for i, text in enumerate(documents):
        shard.write(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
        size += len(text)
        if size > 16_000_000 or i == len(documents) - 1:
            (folder / f"part-{number:03}.jsonl.zst").write_bytes(
                zstandard.ZstdCompressor(level=3).compress(shard.getvalue())
            )
            shard, size, number = io.BytesIO(), 0, number + 1
    (folder / "done").write_text(f"{len(documents)} documents: {labels}\n")


def mixture(folder: pathlib.Path, corpus: pathlib.Path, name: str, **settings: object) -> pathlib.Path:
    keys = {
        "version": 1,
        "tokenizer": {"name": "gpt2"},
        "sequence_length": LENGTH,
        "global_batch_size": 256,
        "micro_batch_size": ROWS,
        "shuffle": "blocks",
        "mixture": {"weights": {"text": 1}},
        "index_dir": str(folder / "index"),
        "sources": {"text": {"path": str(corpus / "*.jsonl.zst")}},
    } | settings
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(keys))
    return path


def ours(
    binary: str, mix: pathlib.Path, folder: pathlib.Path, cpus: str, warm: float, seconds: float
) -> dict[str, float]:
    socket = str(folder / "rank-0.sock")
    with Run(binary, mix, folder, cpus=cpus) as run, millrace.connect(socket, tensors="numpy") as loader:
        batches = iter(loader)

        def one() -> int:
            batch = next(batches)
            batch["tokens"][:, 0].sum()
            return sum(s.length for s in batch.segments)

        out = window(one, warm, seconds, run.pids)
        roles = {
            json_role["name"]: cpu_seconds([json_role["pid"]])
            for json_role in json.loads((folder / "run" / "roles.json").read_text())
        }
        return out | {f"share {name}": spent / max(1e-9, sum(roles.values())) for name, spent in roles.items()}


def peer(encoding: object, corpus: pathlib.Path, threads: int, warm: float, seconds: float) -> dict[str, float]:
    with ThreadPoolExecutor(threads) as pool:
        batches = peer_batches(encoding, corpus, pool, threads)

        def one() -> int:
            tokens, _ = next(batches)
            tokens[:, 0].sum()
            return tokens.size

        return window(one, warm, seconds, lambda: [])


def peer_batches(
    encoding: object, corpus: pathlib.Path, pool: ThreadPoolExecutor, threads: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    def lines() -> Iterator[bytes]:
        while True:
            for shard in sorted(corpus.glob("*.zst")):
                yield from zstandard.ZstdDecompressor().decompress(shard.read_bytes(), 1 << 28).splitlines()

    def encode(group: list[bytes]) -> np.ndarray:
        return np.concatenate(
            [
                np.append(encoding.encode_to_numpy(json.loads(raw)["text"], disallowed_special=()), encoding.eot_token)
                for raw in group
            ]
        )

    source = lines()
    ahead = collections.deque(pool.submit(encode, [next(source) for _ in range(32)]) for _ in range(4 * threads))
    rest = np.empty(0, np.uint32)
    need = ROWS * LENGTH + 1
    while True:
        while rest.size < need:
            rest = np.concatenate([rest, ahead.popleft().result()])
            ahead.append(pool.submit(encode, [next(source) for _ in range(32)]))
        block = rest[:need].astype(np.int64)
        rest = rest[need - 1 :]
        yield block[:-1].reshape(ROWS, LENGTH), block[1:].reshape(ROWS, LENGTH)


def throughput(a: argparse.Namespace, work: pathlib.Path, corpus: pathlib.Path) -> None:
    encoding = vocabularies.tiktoken_encoding("gpt2", vocabularies.exported(a.tokenbench, "gpt2"))
    mix = mixture(work, corpus, "throughput")
    every = sorted(os.sched_getaffinity(0))[:2]
    for cores in (2, 1):
        cpus = ",".join(map(str, every[:cores]))
        os.sched_setaffinity(0, every[:cores])
        rounds = [
            (
                ours(a.millrace, mix, work / "run", cpus, a.warm, a.seconds),
                peer(encoding, corpus, cores, a.warm, a.seconds),
            )
            for _ in range(a.rounds)
        ]
        os.sched_setaffinity(0, every)
        print(f"\nraw zstd JSONL to [{ROWS}, {LENGTH}] int64, {cores} core(s), median of {a.rounds} (min-max)")
        for name, side in (("millrace", 0), ("tiktoken, threads, concat", 1)):
            print(
                f"  {name:28}"
                + "  ".join(
                    f"{key} {spread([r[side][key] for r in rounds])}"
                    for key in rounds[0][side]
                    if not key.startswith("share")
                )
            )
        print(
            f"  {'ratio':28}tokens/s {spread([o['M tok/s'] / p['M tok/s'] for o, p in rounds])}  "
            f"CPU/token {spread([o['CPU s/M tok'] / p['CPU s/M tok'] for o, p in rounds])}"
        )
        print(
            f"  {'CPU time by role':28}"
            + "  ".join(
                f"{k[6:]} {statistics.median(o[k] for o, _ in rounds):.0%}"
                for k in rounds[0][0]
                if k.startswith("share")
            )
        )


def start(a: argparse.Namespace, work: pathlib.Path, corpus: pathlib.Path) -> None:
    print(f"\nfrom `up` to the first batch, seconds, median of {a.rounds}")
    for name, shuffle, files in (("blocks, zstd", "blocks", corpus), ("global, JSONL", "global", plain(work, corpus))):
        pattern = str(files / ("*.zst" if shuffle == "blocks" else "*.jsonl"))
        mix = mixture(work, corpus, "start", shuffle=shuffle, sources={"text": {"path": pattern}}, global_batch_size=64)
        cold, warm = [], []
        for _ in range(a.rounds):
            shutil.rmtree(work / "index", ignore_errors=True)
            cold.append(first_batch(a.millrace, mix, work / "run"))
            warm.append(first_batch(a.millrace, mix, work / "run"))
        print(f"  {name:20}nothing known {spread(cold)}  indexed {spread(warm)}")


def plain(work: pathlib.Path, corpus: pathlib.Path) -> pathlib.Path:
    folder = work / "plain"
    folder.mkdir(exist_ok=True)
    for shard in corpus.glob("*.zst"):
        (folder / shard.name.removesuffix(".zst")).write_bytes(
            zstandard.ZstdDecompressor().decompress(shard.read_bytes(), 1 << 28)
        )
    return folder


def first_batch(binary: str, mix: pathlib.Path, folder: pathlib.Path) -> float:
    with Run(binary, mix, folder) as run, millrace.connect(str(folder / "rank-0.sock"), tensors="numpy") as loader:
        next(iter(loader))
        return time.perf_counter() - run.began


def idle(a: argparse.Namespace, work: pathlib.Path, corpus: pathlib.Path) -> None:
    with (
        Run(a.millrace, mixture(work, corpus, "idle"), work / "run") as run,
        millrace.connect(str(work / "run" / "rank-0.sock"), tensors="numpy") as loader,
    ):
        next(iter(loader))
        time.sleep(5)
        pids, before = run.pids(), cpu_seconds(run.pids())
        time.sleep(a.seconds)
        idle = (cpu_seconds(pids) - before) / a.seconds
        print(f"\nidle CPU of all roles while the trainer computes: {idle:.2%} of a core")


def memory(a: argparse.Namespace, work: pathlib.Path, corpus: pathlib.Path) -> None:
    print("\nmemory of all roles, PSS with shared memory, while ranks read at full speed")
    for ranks in (2, 8):
        with Run(a.millrace, mixture(work, corpus, "memory"), work / "run", ranks) as run:
            readers = [
                subprocess.Popen([sys.executable, __file__, "--reader", str(work / "run" / f"rank-{r}.sock")])
                for r in range(ranks)
            ]
            time.sleep(a.warm + a.seconds)
            print(
                f"  {ranks} ranks: {pss_mib(run.pids()):.0f} MiB in {len(run.pids())} processes; "
                f"a trainer with NumPy and the client adds {pss_mib([readers[0].pid]):.0f} MiB"
            )
            for r in readers:
                r.kill()
                r.wait()


def read_for_ever(socket: str) -> None:
    for batch in millrace.connect(socket, tensors="numpy"):
        batch["tokens"][:, 0].sum()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--millrace", default=str(ROOT / "millrace"))
    p.add_argument("--tokenbench", default="")
    p.add_argument("--megabytes", type=int, default=120, help="text of the corpus")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--warm", type=float, default=4)
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--sections", default="throughput,start,idle,memory")
    p.add_argument("--reader", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.reader:
        return read_for_ever(a.reader)
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        corpus = ROOT / "build" / f"bench-corpus-{a.megabytes}"
        corpus.mkdir(parents=True, exist_ok=True)
        make_corpus(corpus, a.megabytes)
        print((corpus / "done").read_text().strip())
        for section in a.sections.split(","):
            {"throughput": throughput, "start": start, "idle": idle, "memory": memory}[section](
                a, pathlib.Path(folder), corpus
            )


if __name__ == "__main__":
    main()
