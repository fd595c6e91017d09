"""Writes the corpora of the benchmarks: the same documents as one source or as many, and many small files.

Each maker leaves a directory alone that it finished before.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import struct
from collections.abc import Callable

import numpy as np
import pyarrow
import pyarrow.parquet
import zstandard
from documents import corpus

VOCABULARY = 50_257
MEGATRON_UINT16 = 8  # the dtype code of the index


def once(folder: pathlib.Path, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Calls `make` for a new directory. A directory that was not finished is made again."""
    if not (folder / ".done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        (folder / ".done").touch()
    return folder


def texts(folder: pathlib.Path, megabytes: int, sources: int) -> pathlib.Path:
    """Deals real documents of this machine to `sources` sources of one zstd JSONL shard each: s0000/0.jsonl.zst."""

    def make(folder: pathlib.Path) -> None:
        documents, _ = corpus(megabytes * 1_000_000)
        for s in range(sources):
            (folder / f"s{s:04}").mkdir()
            lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in documents[s::sources])
            packed = zstandard.ZstdCompressor(level=3).compress(lines.encode())
            (folder / f"s{s:04}" / "0.jsonl.zst").write_bytes(packed)

    return once(folder, make)


def parquet(folder: pathlib.Path, megabytes: int, rows: int = 10_000) -> pathlib.Path:
    """Writes real documents repeatedly, in another order each time, as snappy Parquet files with row groups of `rows`
    rows, until the text has `megabytes`."""

    def make(folder: pathlib.Path) -> None:
        documents, _ = corpus(min(megabytes, 120) * 1_000_000)
        rng, written, shard = np.random.default_rng(7), 0, 0
        while written < megabytes * 1_000_000:
            some = [documents[i] for i in rng.permutation(len(documents))[:rows]]
            written += sum(map(len, some))
            pyarrow.parquet.write_table(
                pyarrow.table({"text": some}), folder / f"{shard:04}.parquet", row_group_size=rows
            )
            shard += 1

    return once(folder, make)


def small_sources(folder: pathlib.Path, sources: int, shards: int = 2, documents_each: int = 40) -> pathlib.Path:
    """Writes sources of shards of documents. Half of them are zstd JSONL, the other half Parquet."""

    def make(folder: pathlib.Path) -> None:
        documents, _ = corpus(40_000_000)
        rng = np.random.default_rng(3)
        for s in range(sources):
            (folder / f"s{s:04}").mkdir()
            for shard in range(shards):
                some = [documents[i] for i in rng.integers(0, len(documents), documents_each)]
                path = folder / f"s{s:04}" / f"{shard}"
                if s % 2:
                    pyarrow.parquet.write_table(pyarrow.table({"text": some}), path.with_suffix(".parquet"))
                    continue
                lines = "".join(json.dumps({"text": text}) + "\n" for text in some).encode()
                path.with_suffix(".jsonl.zst").write_bytes(zstandard.ZstdCompressor(level=3).compress(lines))

    return once(folder, make)


def megatron(folder: pathlib.Path, tokens: int, sources: int, shards: int = 1) -> pathlib.Path:
    """Deals random documents (log-normal lengths, uint16) to sources of `shards` Megatron pairs: s0000/0.bin, 0.idx."""

    def make(folder: pathlib.Path) -> None:
        rng = np.random.default_rng(3)
        for s in range(sources):
            (folder / f"s{s:04}").mkdir()
            for shard in range(shards):
                write_megatron(folder / f"s{s:04}" / str(shard), rng, tokens // sources // shards)

    return once(folder, make)


def write_megatron(prefix: pathlib.Path, rng: np.random.Generator, tokens: int) -> None:
    """Writes a Megatron pair of about so many tokens (the layout of MMapIndexedDataset, version 1)."""
    lengths = np.clip(rng.lognormal(6, 1.2, max(tokens // 700, 1)), 2, 60_000).astype(np.int32)
    count = int(lengths.sum())
    rng.integers(0, VOCABULARY, count, dtype=np.uint16).tofile(prefix.with_suffix(".bin"))
    pointers = np.concatenate([[0], np.cumsum(lengths.astype(np.int64) * 2)[:-1]]).astype(np.int64)
    with open(prefix.with_suffix(".idx"), "wb") as out:
        out.write(b"MMIDIDX\x00\x00" + struct.pack("<QB", 1, MEGATRON_UINT16))
        out.write(struct.pack("<QQ", len(lengths), len(lengths) + 1))
        out.write(lengths.tobytes() + pointers.tobytes() + np.arange(len(lengths) + 1, dtype=np.int64).tobytes())


def small_files(folder: pathlib.Path, files: int) -> pathlib.Path:
    """Writes JSONL files of about 280 bytes, a thousand in a directory."""

    def make(folder: pathlib.Path) -> None:
        for n in range(files):
            if n % 1000 == 0:
                (folder / f"d{n // 1000:04}").mkdir()
            line = json.dumps({"text": f"small file {n} " + "lorem ipsum dolor sit amet " * 9})
            (folder / f"d{n // 1000:04}" / f"{n:07}.jsonl").write_text(line + "\n")

    return once(folder, make)
