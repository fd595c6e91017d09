"""The documents of a mixture, read by libraries that Millrace does not use and tokenised offline by tiktoken."""

from __future__ import annotations

import base64
import fnmatch
import functools
import gzip
import io
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy as np
import pyarrow.parquet
import tiktoken
import zstandard

REPOSITORY = Path(__file__).resolve().parent.parent

# The published patterns, https://github.com/openai/tiktoken/blob/main/tiktoken_ext/openai_public.py.
R50K = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
CL100K = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
ENCODINGS = {
    "gpt2": ("r50k_base", R50K, 50256),
    "r50k_base": ("r50k_base", R50K, 50256),
    "cl100k_base": ("cl100k_base", CL100K, 100257),
}

Documents = Dict[str, "np.ndarray[Any, Any]"]  # tokens by id


@functools.lru_cache(maxsize=None)
def encoding(name: str) -> Tuple[tiktoken.Encoding, int]:
    """tiktoken's encoding and its end-of-text id, from the published ranks that a Go test module carries."""
    ranks_name, pattern, end = ENCODINGS[name]
    # `go mod download` prints the module's directory, and fetches a module that no build needed before.
    module = json.loads(
        subprocess.run(
            ["go", "mod", "download", "-json", "github.com/pkoukk/tiktoken-go-loader"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )["Dir"]
    ranks: Dict[bytes, int] = {}
    for line in Path(module, "assets", ranks_name + ".tiktoken").read_bytes().splitlines():
        token, _, rank = line.partition(b" ")
        ranks[base64.b64decode(token)] = int(rank)
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": end}), end


def documents(directory: Path, mixture: Mapping[str, Any]) -> Dict[str, Documents]:
    """The documents of every source by their ids and tokens (docs/bytes-on-disk.md).

    Paths are relative to the directory.
    """
    return {name: dict(_source(Path(directory), mixture, source)) for name, source in mixture["sources"].items()}


def piece_tokens(mixture: Mapping[str, Any], source: str) -> int:
    """The tokens of a piece if the source's ordinals are pieces of documents, else 0 (docs/mixing.md)."""
    of = mixture["sources"][source]
    how = of.get("long_documents", mixture.get("long_documents"))
    if how is None and of.get("format") == "megatron" and mixture.get("shuffle", "global") == "global":
        how = "shuffle"
    stages = [mixture, *mixture.get("stages", [])]
    return max(stage.get("sequence_length", 0) for stage in stages) if how == "shuffle" else 0


def ordinals(mixture: Mapping[str, Any], source: str, documents: Documents) -> int:
    """The ordinals of one pass over a source: its documents, or their pieces."""
    piece = piece_tokens(mixture, source)
    return sum(max(1, -(-len(tokens) // piece)) if piece else 1 for tokens in documents.values())


def _source(directory: Path, mixture: Mapping[str, Any], source: Mapping[str, Any]) -> Iterator[Tuple[str, Any]]:
    pattern = source["path"]
    if source.get("format") == "megatron":
        prefix = directory / pattern
        for n, tokens in enumerate(read_megatron(prefix)):
            yield f"{prefix.name}.bin#{n}", tokens
        return
    tokenizer = mixture["tokenizer"]
    bpe, end = encoding(tokenizer["name"])
    before = [end] if tokenizer.get("add_bos", False) else []
    after = [end] if tokenizer.get("add_eos", True) else []
    for path, name in _matches(directory, pattern):
        read = read_parquet if ".parquet" in path.name else read_jsonl
        for n, text in enumerate(read(path, source.get("text", "text"))):
            yield f"{name}#{n}", np.array(before + bpe.encode_ordinary(text) + after, dtype=np.int64)


def _matches(directory: Path, pattern: str) -> List[Tuple[Path, str]]:
    """The files of a pattern with one * in file names, each with its name below the pattern's root."""
    literal = re.split(r"[*?{\[]", pattern)[0]
    root = directory / (literal if (directory / literal).is_dir() else os.path.dirname(literal))
    found = [p for p in root.rglob("*") if p.is_file() and fnmatch.fnmatchcase(str(p.relative_to(directory)), pattern)]
    return sorted((p, str(p.relative_to(root))) for p in found)


def read_jsonl(path: Path, field: str) -> Iterator[str]:
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    elif path.suffix == ".zst":
        raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw), read_across_frames=True).read()
    for line in raw.split(b"\n"):
        if line.strip(b" \t\r"):
            value = json.loads(line)
            for part in field.split("."):
                value = value[part]
            yield value


def read_parquet(path: Path, column: str) -> Iterator[str]:
    outer, _, inner = column.partition(".")
    for value in pyarrow.parquet.read_table(path, columns=[outer]).column(outer).to_pylist():
        yield value[inner] if inner else value


def read_megatron(prefix: Path) -> Iterator["np.ndarray[Any, Any]"]:
    index = Path(f"{prefix}.idx").read_bytes()
    sequences, entries = (int(np.frombuffer(index, "<u8", 1, at)[0]) for at in (18, 26))
    dtype = {1: "<u1", 4: "<i4", 5: "<i8", 8: "<u2"}[index[17]]
    lengths = np.frombuffer(index, "<i4", sequences, 34)
    bounds = np.frombuffer(index, "<i8", entries, 34 + 12 * sequences)
    tokens = np.memmap(f"{prefix}.bin", dtype, "r")
    ends = np.concatenate([[0], np.cumsum(lengths)])
    for first, last in zip(bounds, bounds[1:]):
        yield np.array(tokens[ends[first] : ends[last]], dtype=np.int64)
