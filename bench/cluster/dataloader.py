"""The ranks of a host, each with a torch.utils.data.DataLoader over the same sources, in the environment of
requirements-torch.txt. It prints "ready" when every rank has batches, and ends with its input.

    python bench/cluster/dataloader.py --corpus DIR --vocabulary FILE --ranks 8 --workers 4

Every worker opens every source, and takes the documents of its own share. It tokenises with tiktoken, and packs batches
of tokens and labels [8, 2048]. With `--workers 0`, a rank has no DataLoader: it is the memory of a trainer alone.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from peers import Encode, pack  # noqa: E402


def documents(folder: pathlib.Path) -> Iterator[bytes]:
    """Yields the documents of a source for ever, as JSON lines."""
    import pyarrow.parquet
    import zstandard

    while True:
        for path in sorted(folder.iterdir()):
            if path.suffix == ".parquet":
                for some in pyarrow.parquet.ParquetFile(path, memory_map=True).iter_batches(64, columns=["text"]):
                    for text in some["text"]:
                        yield json.dumps({"text": text.as_py()}).encode()
            else:
                with open(path, "rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as text:
                    yield from io.BufferedReader(text)


def rank(a: argparse.Namespace) -> None:
    import torch

    class Sources(torch.utils.data.IterableDataset):
        """Draws a document from each source in turn."""

        def __init__(self) -> None:
            self.encode = Encode(a.vocabulary)
            self.encode([b'{"text": "x"}'])  # makes the tables before the workers fork, which share them

        def __iter__(self) -> Iterator[Any]:
            number = torch.utils.data.get_worker_info().id + a.rank * a.workers
            folders = [f for f in sorted(pathlib.Path(a.corpus).iterdir()) if f.is_dir()]
            shares = [itertools.islice(documents(f), number, None, a.ranks * a.workers) for f in folders]
            turns = (next(share) for share in itertools.cycle(shares))
            return pack(self.encode([raw]) for raw in turns)

    if a.workers:
        batches = iter(torch.utils.data.DataLoader(Sources(), batch_size=None, num_workers=a.workers))
        for _ in range(4 * a.workers):
            next(batches)["tokens"][:, 0].sum()
    print("ready", flush=True)
    while True:
        if a.workers:
            next(batches)["tokens"][:, 0].sum()
        time.sleep(a.pause)


def end_with_input() -> None:
    """Ends this rank and its workers at the end of its input. It holds no lock of sys.stdin, which workers inherit."""
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--corpus", required=True)
    p.add_argument("--vocabulary", required=True, help="gpt2's ranks, as tokenbench exports them")
    p.add_argument("--ranks", type=int, default=8)
    p.add_argument("--workers", type=int, default=1, help="of each rank")
    p.add_argument("--pause", type=float, default=1.0, help="seconds a step")
    p.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.rank is not None:
        threading.Thread(target=end_with_input, daemon=True).start()
        rank(a)
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv, "--rank", str(r)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         start_new_session=True)
        for r in range(a.ranks)
    ]
    for r in ranks:
        if not r.stdout.readline():
            raise SystemExit("a rank ended early")
    print("ready", flush=True)
    sys.stdin.read()
    for r in ranks:
        r.stdin.close()
        r.wait()


if __name__ == "__main__":
    main()
