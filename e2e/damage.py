"""Files that cannot be read as a whole, with the source that reads them and the expected words of the error."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List

import pyarrow
import pyarrow.parquet

import corpus

TEXTS = corpus.synthetic_texts(5, 400, 90)

# Writes unreadable files into a directory and returns the source that reads them.
Damage = Callable[[Path], Dict[str, Any]]


def whole(directory: Path, name: str) -> Path:
    path = directory / name
    corpus.write_jsonl(path, TEXTS, odd=False)
    return path


def cut(path: Path, share: float) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])


def truncated_gzip(d: Path) -> Dict[str, Any]:
    cut(whole(d, "a.jsonl.gz"), 0.6)
    return {"path": "a.jsonl.gz"}


def truncated_zstd(d: Path) -> Dict[str, Any]:
    cut(whole(d, "a.jsonl.zst"), 0.6)
    return {"path": "a.jsonl.zst"}


def truncated_frames(d: Path) -> Dict[str, Any]:
    corpus.write_zstd_frames(d / "a.jsonl.zst", TEXTS, 9)
    cut(d / "a.jsonl.zst", 0.97)
    return {"path": "a.jsonl.zst"}


def gzip_then_rubbish(d: Path) -> Dict[str, Any]:
    path = whole(d, "a.jsonl.gz")
    path.write_bytes(path.read_bytes() + b"what is this?")
    return {"path": "a.jsonl.gz"}


def write_parquet(path: Path, column: str = "text", values: Any = None, **kwargs: Any) -> None:
    table = pyarrow.table({"n": list(range(len(TEXTS))), column: TEXTS if values is None else values})
    options = {
        "row_group_size": 97,
        "data_page_size": 2048,
        "compression": "zstd",
        "write_page_checksum": True,
        **kwargs,
    }
    pyarrow.parquet.write_table(table, path, **options)


def flip(path: Path, at: int, by: int = 0x10) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= by
    path.write_bytes(bytes(raw))


def parquet_page(d: Path) -> Dict[str, Any]:
    write_parquet(d / "a.parquet")
    column = pyarrow.parquet.ParquetFile(d / "a.parquet").metadata.row_group(2).column(1)
    flip(d / "a.parquet", column.data_page_offset + column.total_compressed_size // 2)
    return {"path": "a.parquet"}


def parquet_footer(d: Path) -> Dict[str, Any]:
    write_parquet(d / "a.parquet")
    raw = (d / "a.parquet").read_bytes()
    footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    flip(d / "a.parquet", footer, 0xFF)
    return {"path": "a.parquet"}


def parquet_footer_length(d: Path) -> Dict[str, Any]:
    write_parquet(d / "a.parquet")
    flip(d / "a.parquet", (d / "a.parquet").stat().st_size - 5, 0x7F)
    return {"path": "a.parquet"}


def parquet_magic(d: Path) -> Dict[str, Any]:
    write_parquet(d / "a.parquet")
    flip(d / "a.parquet", (d / "a.parquet").stat().st_size - 1)
    return {"path": "a.parquet"}


def parquet_missing_column(d: Path) -> Dict[str, Any]:
    write_parquet(d / "a.parquet", "body")
    return {"path": "a.parquet", "text": "content"}


def parquet_wrong_type(d: Path) -> Dict[str, Any]:
    write_parquet(d / "a.parquet")
    return {"path": "a.parquet", "text": "n"}


def megatron(d: Path) -> Dict[str, Any]:
    corpus.write_megatron(d / "corpus", corpus.token_documents(3, 80, 200, 50000), "u2")
    return {"format": "megatron", "path": "corpus"}


def megatron_short_bin(d: Path) -> Dict[str, Any]:
    source = megatron(d)
    cut(d / "corpus.bin", 0.5)
    return source


def megatron_long_bin(d: Path) -> Dict[str, Any]:
    source = megatron(d)
    (d / "corpus.bin").write_bytes((d / "corpus.bin").read_bytes() + b"\0" * 1000)
    return source


def megatron_other_index(d: Path) -> Dict[str, Any]:
    corpus.write_megatron(d / "other", corpus.token_documents(4, 200, 900, 50000), "u2")
    source = megatron(d)
    shutil.move(d / "other.idx", d / "corpus.idx")
    return source


def megatron_magic(d: Path) -> Dict[str, Any]:
    source = megatron(d)
    flip(d / "corpus.idx", 3)
    return source


def megatron_no_index(d: Path) -> Dict[str, Any]:
    source = megatron(d)
    (d / "corpus.idx").unlink()
    return source


def empty(d: Path) -> Dict[str, Any]:
    (d / "a.jsonl").write_bytes(b"")
    return {"path": "a.jsonl"}


def blank(d: Path) -> Dict[str, Any]:
    (d / "a.jsonl").write_bytes(b"\n \t\r\n\n" * 1000)
    return {"path": "a.jsonl"}


def missing(d: Path) -> Dict[str, Any]:
    return {"path": "nowhere/a.jsonl"}


def nothing_matches(d: Path) -> Dict[str, Any]:
    (d / "there").mkdir()
    return {"path": "there/*.jsonl"}


def broken_link(d: Path) -> Dict[str, Any]:
    (d / "a.jsonl").symlink_to(d / "gone.jsonl")
    return {"path": "a.jsonl"}


def directory_as_file(d: Path) -> Dict[str, Any]:
    """A path that not even root can read: a file used as a directory."""
    (d / "x" / "a.jsonl").mkdir(parents=True)
    return {"path": "x/*.jsonl", "format": "jsonl"}


def same_ids(d: Path) -> Dict[str, Any]:
    for name in ("one", "two"):
        corpus.write_jsonl(d / name / "a.jsonl", TEXTS, odd=False)
    return {"path": ["one/a.jsonl", "two/a.jsonl"]}


def no_json_at_all(d: Path) -> Dict[str, Any]:
    (d / "a.jsonl").write_bytes(random.Random(1).randbytes(200_000))
    return {"path": "a.jsonl"}


def missing_field(d: Path) -> Dict[str, Any]:
    whole(d, "a.jsonl")
    return {"path": "a.jsonl", "text": "content"}


# The expected words of the error, by the function that writes the files and returns their source.
DAMAGE: Dict[Damage, List[str]] = {
    truncated_gzip: [r"a\.jsonl\.gz", r"byte \d+ of \d+", "ends inside"],
    truncated_zstd: [r"a\.jsonl\.zst", r"byte \d+ of \d+", "ends inside"],
    truncated_frames: [r"a\.jsonl\.zst", r"byte \d+", "ends"],
    gzip_then_rubbish: [r"a\.jsonl\.gz", r"byte \d+"],
    parquet_page: [r"a\.parquet"],
    parquet_footer: [r"a\.parquet", "footer"],
    parquet_footer_length: [r"a\.parquet", "footer"],
    parquet_magic: [r"a\.parquet"],
    parquet_missing_column: [r"a\.parquet", "content", "column"],
    parquet_wrong_type: [r"a\.parquet", '"?n"?'],
    megatron_short_bin: [r"corpus\.(bin|idx)"],
    megatron_other_index: [r"corpus\.(bin|idx)"],
    megatron_magic: [r"corpus\.idx"],
    megatron_no_index: [r"corpus\.idx"],
    empty: ["source bad", r"a\.jsonl", "no record"],
    blank: ["source bad", r"a\.jsonl", "no record"],
    missing: [r"nowhere/a\.jsonl"],
    nothing_matches: [r"there/\*\.jsonl"],
    broken_link: [r"a\.jsonl"],
    directory_as_file: [r"x/(\*|a)\.jsonl"],
    same_ids: ["root:", r"a\.jsonl"],
    no_json_at_all: [r"a\.jsonl", "quarantine"],
    missing_field: [r"a\.jsonl", "content", "quarantine"],
}


# The cases that also run with trainers: one for each way in which a source can fail, at opening and later.
MET = {
    truncated_gzip,
    parquet_page,
    parquet_missing_column,
    megatron_short_bin,
    blank,
    missing,
    same_ids,
    no_json_at_all,
    missing_field,
}
