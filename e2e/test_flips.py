"""Random bit flips in every format: small files, many in one check."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pyarrow
import pyarrow.parquet
import zstandard

import corpus
from damage import TEXTS, flip
from inputs import checked, mixture_of


def flipping(directory: Path) -> Iterator[Tuple[str, List[str], Dict[str, Any]]]:
    """A name, the files with flipped bytes, and the source. Every format that supports checksums has them."""
    texts = TEXTS[:60]
    corpus.write_jsonl(directory / "a.jsonl", texts, odd=False)
    yield "jsonl", ["a.jsonl"], {"path": "a.jsonl"}
    corpus.write_jsonl(directory / "b.jsonl.gz", texts, odd=False)
    yield "gzip", ["b.jsonl.gz"], {"path": "b.jsonl.gz"}
    raw = (directory / "a.jsonl").read_bytes()
    (directory / "c.jsonl.zst").write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(raw))
    yield "zstd", ["c.jsonl.zst"], {"path": "c.jsonl.zst"}
    lines = raw.splitlines(keepends=True)
    frame = zstandard.ZstdCompressor(write_checksum=True).compress
    (directory / "d.jsonl.zst").write_bytes(
        b"".join(frame(b"".join(lines[i : i + 7])) for i in range(0, len(lines), 7))
    )
    yield "frames", ["d.jsonl.zst"], {"path": "d.jsonl.zst"}
    table = pyarrow.table({"text": texts})
    for name, compression in (("e.parquet", "snappy"), ("f.parquet", "zstd"), ("g.parquet", "none")):
        pyarrow.parquet.write_table(
            table,
            directory / name,
            compression=compression,
            row_group_size=17,
            data_page_size=512,
            write_page_checksum=True,
        )
        yield name[0], [name], {"path": name}
    corpus.write_megatron(directory / "h", corpus.token_documents(3, 40, 100, 50000), "u2")
    yield "megatron", ["h.bin", "h.idx"], {"format": "megatron", "path": "h"}


FLIPS = 25  # of each of the 8 formats
CHECKED = {"gzip", "zstd", "frames", "e", "f", "g"}  # formats in which every byte of content is under a checksum


def test_flips(stage: Any, tmp_path: Path) -> None:
    """200 files with one flipped bit. Each is refused by name, quarantines records by name, or delivers the same
    documents."""
    rng = random.Random(7)
    originals = tmp_path / "whole"
    originals.mkdir()
    for kind, files, source in flipping(originals):
        sources = {"whole": {**source, "path": f"../whole/{source['path']}"}}
        where = tmp_path / kind
        for n in range(FLIPS):
            copy = where / f"flip{n}"
            copy.mkdir(parents=True)
            for name in files:
                shutil.copy(originals / name, copy / name)
            victim = copy / rng.choice(files)
            at = rng.randrange(victim.stat().st_size)
            flip(victim, at, 1 << rng.randrange(8))
            sources[f"s{n}"] = {**source, "path": f"flip{n}/{source['path']}"}
        # The budget allows every bad record, so that it hides no other error.
        mixture = mixture_of(sources, quarantine={"budget": 1})
        code, report, stderr = checked(stage, where, mixture)
        assert code in (0, 1), f"{kind}: exit {code}: {stderr}"
        refused = {p.get("source"): p["reason"] for p in report["problems"]}
        assert (code == 1) == bool(refused) and "whole" not in refused, f"{kind}: {refused}"
        found = {s["name"]: s for s in report["sources"]}
        bad = found["whole"]["records"]
        for n in range(FLIPS):
            name = f"s{n}"
            if name in refused:
                assert f"flip{n}/" in refused[name], f"{kind}: {refused[name]!r} does not name the file"
            elif kind in CHECKED and not found[name]["bad"]:
                assert (found[name]["records"], found[name]["tokens"]) == (bad, found["whole"]["tokens"]), (
                    f"{kind} {name}: {found[name]}"
                )
