"""Makes a corpus of real files on this machine: the libraries of Go and Python, and their documentation.

A document of code is one top-level declaration of a file (a function, a class, a type). A document of prose is one
comment, docstring or page. The corpus has three sources in three formats: JSONL, JSONL in gzip blocks, and token ids.
"""

from __future__ import annotations

import gzip
import importlib
import json
import random
import re
import shutil
import struct
import subprocess
import sysconfig
import zlib
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Sequence

import numpy as np

SHORTEST, LONGEST = 80, 12_000  # characters of a document
SHARDS = 4

GO_DECLARATION = re.compile(r"^(?=func |type |(?:var|const) \()", re.M)
PYTHON_DECLARATION = re.compile(r"^(?=(?:async )?def |class |@)", re.M)
GO_COMMENT = re.compile(r"(?:^//(?: .*)?\n){4,}", re.M)
PYTHON_DOCSTRING = re.compile(r'^\s*[rR]?"""(.{200,}?)"""', re.M | re.S)


class CorpusError(Exception):
    """The corpus cannot be made; the message has the reason."""


def go_root() -> Path:
    """Returns the directory of Go's sources."""
    if shutil.which("go") is None:
        raise CorpusError("find Go's sources: `go` is not in PATH")
    root = Path(subprocess.run(["go", "env", "GOROOT"], capture_output=True, text=True, check=True).stdout.strip())
    if not (root / "src").is_dir():
        raise CorpusError(f"find Go's sources: {root} has no src directory (some packages of Go leave it out)")
    return root


def read_files(root: Path, ending: str, most: int, leave_out: Sequence[str]) -> Iterator[str]:
    """Returns about `most` bytes of files, taken evenly from the whole tree below root in name order."""
    paths = [
        p
        for p in root.rglob("*" + ending)
        if p.is_file() and not any(part in leave_out for part in p.relative_to(root).parts)
    ]
    sizes = {p: p.stat().st_size for p in paths}
    keep = min(1.0, most / max(1, sum(sizes.values())))
    owed = 0.0
    for path in sorted(paths):
        owed += keep * sizes[path]
        if owed < sizes[path]:
            continue
        owed -= sizes[path]
        try:
            yield path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # some tests of Python have other encodings


def pieces(texts: Iterable[str], boundary: "re.Pattern[str]") -> List[str]:
    """Returns the declarations of the texts. The first includes everything before it, such as imports."""
    out = []
    for text in texts:
        for piece in boundary.split(text):
            if SHORTEST <= len(piece) <= LONGEST:
                out.append(piece.rstrip() + "\n")
    return out


def prose(go: Sequence[str], python: Sequence[str], root: Path) -> List[str]:
    """Returns the comments, docstrings and pages of the texts."""
    out = [re.sub(r"^// ?", "", m.group(), flags=re.M) for text in go for m in GO_COMMENT.finditer(text)]
    out += [re.sub(r"\n[ \t]+", "\n", m.group(1)) for text in python for m in PYTHON_DOCSTRING.finditer(text)]
    out += importlib.import_module("pydoc_data.topics").topics.values()
    pages = sorted(root.glob("*.md")) + sorted(root.glob("doc/*.*")) + sorted(root.glob("src/**/README*"))
    licences = [
        root / "LICENSE",
        Path(sysconfig.get_path("stdlib"), "LICENSE.txt"),
        *sorted(Path("/usr/share/common-licenses").glob("*")),
    ]
    for path in pages + licences:
        if path.is_file() and not path.is_symlink():
            text = re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8", errors="replace"))
            out += re.split(r"(?<=\n\n)(?=.)", text) if len(text) > LONGEST else [text]
    return [t.strip() + "\n" for t in dict.fromkeys(out) if SHORTEST <= len(t) <= LONGEST]


def collect(most: int) -> Dict[str, List[str]]:
    """Returns the documents of each source. `most` is the largest number of bytes read of Go, and of Python."""
    root = go_root()
    stdlib = Path(sysconfig.get_path("stdlib"))
    go = list(read_files(root / "src", ".go", most, ("testdata", "vendor")))
    python = list(read_files(stdlib, ".py", most, ("site-packages", "dist-packages", "pydoc_data", "__pycache__")))
    documents = {
        "python": pieces(python, PYTHON_DECLARATION),
        "go": pieces(go, GO_DECLARATION),
        "docs": prose(go, python, root),
    }
    for name, texts in documents.items():
        if len(texts) < 100:
            raise CorpusError(
                f"collect {name}: only {len(texts)} documents on this machine (Go: {root}, Python: {stdlib})"
            )
    return documents


def sample(documents: Dict[str, List[str]], characters: int) -> Iterator[str]:
    """Returns `characters` of documents of every source, for the vocabulary."""
    for texts in documents.values():
        order = list(range(len(texts)))
        random.Random(0).shuffle(order)
        taken = 0
        for i in order:
            if taken >= characters:
                break
            taken += len(texts[i])
            yield texts[i]


def write_jsonl(texts: Sequence[str], directory: Path) -> None:
    """Writes SHARDS plain files with a line for each document."""
    directory.mkdir(parents=True)
    for shard in range(SHARDS):
        with open(directory / f"part-{shard}.jsonl", "w", encoding="utf-8") as f:
            for text in texts[shard::SHARDS]:
                f.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def write_jsonl_gzip(texts: Sequence[str], directory: Path) -> None:
    """As write_jsonl, in BGZF (SAM specification, section 4.1): small gzip members with their own length. gunzip reads
    the files as usual, and Millrace reads any record without the ones before it."""
    write_jsonl(texts, directory)
    for path in sorted(directory.glob("*.jsonl")):
        plain = path.read_bytes()
        with open(f"{path}.gz", "wb") as f:
            for at in range(0, len(plain) + 1, 60_000):
                f.write(_bgzf_member(plain[at : at + 60_000]))
            f.write(_bgzf_member(b""))  # marks the end of a complete file
        assert gzip.open(f"{path}.gz").read() == plain
        path.unlink()


def _bgzf_member(plain: bytes) -> bytes:
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = deflate.compress(plain) + deflate.flush()
    head = struct.pack("<4BIBBHBBHH", 31, 139, 8, 4, 0, 0, 255, 6, 66, 67, 2, len(body) + 25)
    return head + body + struct.pack("<II", zlib.crc32(plain), len(plain))


def write_megatron(documents: Sequence["np.ndarray"], prefix: Path) -> None:
    """Writes a Megatron dataset: token ids in PREFIX.bin, lengths and positions in PREFIX.idx."""
    prefix.parent.mkdir(parents=True)
    lengths = np.array([len(d) for d in documents], np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64)]) * 2
    with open(f"{prefix}.bin", "wb") as f:
        for d in documents:
            f.write(d.astype("<u2").tobytes())
    with open(f"{prefix}.idx", "wb") as f:
        f.write(
            b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1)
        )  # version 1; 8 is the code of unsigned 16-bit tokens
        f.write(
            lengths.astype("<i4").tobytes()
            + starts.astype("<i8").tobytes()
            + np.arange(len(lengths) + 1, dtype="<i8").tobytes()
        )
