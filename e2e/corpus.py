"""Corpora with fixed seeds, in every format, written by libraries that Millrace does not use. The text is real (the
sources of Go's and Python's libraries) with synthetic edge cases."""

from __future__ import annotations

import gzip
import json
import random
import struct
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, Dict, List, Sequence

import numpy as np
import pyarrow
import pyarrow.parquet
import zstandard

ODD = [
    "", " ", "\n", "a",
    "\u00e4\u00f6\u00fc \u00df \u4e2d\u6587\u5b57\u7b26 \u0440\u0443\u0441\u0441\u043a\u0438\u0439 "
    "\u05e2\u05d1\u05e8\u05d9\u05ea \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301",
    "<|endoftext|> is text here, and so is <|fim_prefix|>", "1234567890 3.14159 0xdeadbeef 1,000,000",
    "   leading, trailing   \t\t\n\n\n  \r\n and between   ", "don't we'll I'M THEY'VE it's",
    "\x00\x01\x7f\u0080\u2028\ufeff\ufffd", "=" * 300 + "\n" + " " * 300 + "\n" + "ab" * 300,
]


def real_files(endings: Sequence[str] = (".go", ".py")) -> List[Path]:
    """The library sources of the machine's Go and Python, in a fixed order."""
    goroot = subprocess.run(["go", "env", "GOROOT"], capture_output=True, text=True, check=True).stdout.strip()
    places = [
        Path(goroot, "src", "strings"),
        Path(goroot, "src", "encoding"),
        Path(sysconfig.get_path("stdlib"), "json"),
        Path(sysconfig.get_path("stdlib"), "email"),
    ]
    return sorted(p for place in places for p in place.rglob("*") if p.suffix in endings and p.is_file())


def real_texts(seed: int, count: int, longest: int) -> List[str]:
    """Pieces of real files, of 1 to `longest` lines, short ones more often."""
    rng = random.Random(seed)
    files = real_files()
    rng.shuffle(files)
    texts: List[str] = []
    while len(texts) < count:
        for path in files:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
            at = 0
            while at < len(lines) and len(texts) < count and len(texts) % 7 != 6:
                take = 1 + int(longest * rng.random() ** 3)
                texts.append("".join(lines[at : at + take]))
                at += take
            if len(texts) % 7 == 6 and len(texts) < count:
                texts.append("".join(lines[:1]))
    return texts


def synthetic_texts(seed: int, count: int, longest: int) -> List[str]:
    """Random words from a 64-bit LCG, equal on every machine and in every library version."""
    state = seed
    texts: List[str] = []

    def draw(n: int) -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (state >> 33) % n

    syllables = ["mil", "la", "re", "ta", "on", "\u00e9", "wheel", "ing", "stone", "\u6c34", "7", "42"]
    for _ in range(count):
        words = draw(longest) * draw(longest) // longest
        texts.append(" ".join("".join(syllables[draw(12)] for _ in range(1 + draw(3))) for _ in range(words)))
    return texts


def mixed_texts(seed: int, count: int, longest: int) -> List[str]:
    """Real pieces with edge cases spread among them."""
    texts = real_texts(seed, count - len(ODD), longest)
    for i, odd in enumerate(ODD):
        texts.insert((i * 7919 + seed) % len(texts), odd)
    return texts


def write_jsonl(path: Path, texts: Sequence[str], field: str = "text", odd: bool = True) -> None:
    """JSON lines, compressed as the name says. `odd` adds blank lines, CRLF, escapes and other fields before and
    after."""
    lines: List[bytes] = []
    for i, text in enumerate(texts):
        record: Dict[str, Any] = {}
        inner = record
        for part in field.split(".")[:-1]:
            inner = inner.setdefault(part, {"other": [1, {"text": "not this"}]})
        if odd and i % 3 == 0:
            record = {"n": i, "nested": {"text": "nor this", "deep": [[], {}]}, **record}
            inner = record
            for part in field.split(".")[:-1]:
                inner = inner[part]
        inner[field.split(".")[-1]] = text
        if odd and i % 4 == 1:
            record["score"] = -1.5e-7
        lines.append(json.dumps(record, ensure_ascii=i % 2 == 0).encode() + (b"\r\n" if odd and i % 5 == 2 else b"\n"))
        if odd and i % 6 == 5:
            lines.append([b"\n", b"  \t\r\n", b"\r\n"][i % 3])
    whole = b"".join(lines)
    if odd:
        whole = whole.rstrip(b"\r\n")  # no newline at the end
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(whole, mtime=0))
    elif path.suffix == ".zst":
        path.write_bytes(zstandard.ZstdCompressor(level=3).compress(whole))
    else:
        path.write_bytes(whole)


def write_zstd_frames(path: Path, texts: Sequence[str], records: int) -> None:
    """JSON lines in independent zstd frames of a fixed number of records, which allow random access."""
    frames = []
    for at in range(0, len(texts), records):
        whole = b"".join(json.dumps({"text": t}).encode() + b"\n" for t in texts[at : at + records])
        frames.append(zstandard.ZstdCompressor(level=3).compress(whole))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(frames))


def write_parquet(path: Path, texts: Sequence[str], column: str, compression: str, group: int) -> None:
    """A Parquet file of several row groups. The text is in a column between others. A nested column is a.b."""
    table: Dict[str, Any] = {"n": list(range(len(texts)))}
    outer, _, inner = column.partition(".")
    table[outer] = [{"x": 1, inner: t} for t in texts] if inner else list(texts)
    table["z"] = ["other"] * len(texts)
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(
        pyarrow.table(table), path, compression=compression, row_group_size=group, data_page_size=4096
    )


def write_megatron(prefix: Path, documents: Sequence[Sequence[int]], dtype: str, pieces: int = 1) -> None:
    """Megatron's .bin and .idx; a document is stored as up to `pieces` sequences."""
    codes = {"u1": 1, "i4": 4, "i8": 5, "u2": 8}
    lengths: List[int] = []
    index = [0]
    body = bytearray()
    for n, document in enumerate(documents):
        cuts = [len(document) * k // (1 + n % pieces) for k in range(2 + n % pieces)]
        for a, b in zip(cuts, cuts[1:]):
            if b > a:
                lengths.append(b - a)
                body += np.asarray(document[a:b], dtype="<" + dtype).tobytes()
        index.append(len(lengths))
    size = np.dtype(dtype).itemsize
    pointers = np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64) * size)[:-1]]) if lengths else np.zeros(0)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{prefix}.bin").write_bytes(bytes(body))
    Path(f"{prefix}.idx").write_bytes(
        b"MMIDIDX\0\0"
        + struct.pack("<QBQQ", 1, codes[dtype], len(lengths), len(index))
        + np.asarray(lengths, "<i4").tobytes()
        + pointers.astype("<i8").tobytes()
        + np.asarray(index, "<i8").tobytes()
    )


def token_documents(seed: int, count: int, longest: int, vocabulary: int) -> List[List[int]]:
    """Documents of tokens. Some have none."""
    rng = random.Random(seed)
    return [
        [] if n % 13 == 4 else [rng.randrange(vocabulary) for _ in range(1 + int(longest * rng.random() ** 2))]
        for n in range(count)
    ]


def write_all(at: Path) -> None:
    """A small file or two of every format: the sources of conftest's BASE."""
    for i in range(3):
        write_jsonl(at / "plain" / f"part-{i}.jsonl", mixed_texts(i, 60, 60), "meta.body")
    write_jsonl(at / "packed" / "part-0.jsonl.gz", mixed_texts(10, 50, 40))
    write_jsonl(at / "packed" / "part-1.jsonl.zst", mixed_texts(11, 50, 40))
    write_zstd_frames(at / "frames" / "a.jsonl.zst", mixed_texts(20, 80, 40), 7)
    for i, compression in enumerate(["snappy", "zstd", "gzip", "none"]):
        write_parquet(at / "tables" / f"t{i}.parquet", mixed_texts(30 + i, 30, 50), "content.body", compression, 11)
    write_megatron(at / "books" / "corpus", token_documents(40, 60, 700, 50000), "u2", pieces=3)
