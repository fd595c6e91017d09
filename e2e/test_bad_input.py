"""Bad input to the real binary gives a clear error within seconds, or a quarantine with everything else delivered."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import re
import resource
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zstandard

import corpus
from conftest import variant
from harness import DEADLINE, ID, LENGTH, OFFSET, Delivered, Run, write_mixture

SECONDS = DEADLINE  # "within seconds", on a busy machine
TEXTS = corpus.synthetic_texts(5, 400, 90)


def mixture_of(sources: Mapping[str, Any], **change: Any) -> Dict[str, Any]:
    return variant(
        {
            "sources": dict(sources),
            "mixture": {"weights": {name: 1 for name in sources}},
            "global_batch_size": 8,
            "micro_batch_size": 1,
            **change,
        }
    )


def clean(stderr: str) -> None:
    """Checks that no Go stack or internal name reaches the user."""
    assert not re.search(r"^(panic: |goroutine \d+ |fatal error: |runtime error)|goroutine \d+ \[", stderr, re.M), (
        stderr
    )


def checked(stage: Any, directory: Path, mixture: Mapping[str, Any]) -> Tuple[int, Dict[str, Any], str]:
    """Runs `check --json` and returns its exit status, output and stderr."""
    path = write_mixture(directory, mixture)
    began = time.monotonic()
    done = subprocess.run(
        [stage.binary, "check", path, "--ranks", "2", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert time.monotonic() - began < SECONDS
    clean(done.stderr)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def ran(stage: Any, directory: Path, mixture: Mapping[str, Any], **kwargs: Any) -> Tuple[int, Delivered, str]:
    """Runs `up` with two trainers and returns its exit status, the delivered batches and stderr."""
    run = Run(stage.binary, write_mixture(directory, mixture), stage.new_dir(), 2, **kwargs)
    try:
        run.__enter__()
    except AssertionError as e:
        if run.process.returncode != 1:
            raise
        said = str(e).split("stderr:\n", 1)[1]  # it failed before it was ready, so no rank could connect
        clean(said)
        return 1, Delivered([[], []], [("error", "RunError", said.strip().splitlines()[-1])] * 2), said
    with contextlib.ExitStack() as end:
        end.push(run.__exit__)
        delivered = run.train()
        code = run.wait(SECONDS)
        clean(run.stderr())
        return code, delivered, run.stderr()


def says(text: str, words: Sequence[str]) -> None:
    for word in words:
        assert re.search(word, text), f"{word!r} is missing in: {text}"


def failed_with(end: Any, reason: str) -> None:
    """Checks that a rank ended with a RunError or StartError that has `up`'s reason, even if it connected later."""
    assert isinstance(end, tuple) and end[1] in ("RunError", "StartError") and end[2].endswith(reason), (
        f"{end}, and `up` said {reason!r}"
    )


# Unreadable files: a name, a function that writes the files and returns the source, and text that the error must
# contain.
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
    """A path that nobody can read, root included: a file used as a directory."""
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


# The cases that a run with trainers also meets: one for each way in which a source can fail, at opening and later.
MET = {
    truncated_gzip, parquet_page, parquet_missing_column, megatron_short_bin, blank, missing, same_ids, no_json_at_all,
    missing_field,
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda d: d.__name__)
def test_damage(stage: Any, tmp_path: Path, damage: Damage) -> None:
    """For an unreadable file, `check` and `up` give the reason and exit 1, also beside a good source. Every rank gets
    the reason."""
    source = damage(tmp_path)
    whole(tmp_path, "good.jsonl")
    mixture = mixture_of({"bad": source, "good": {"path": "good.jsonl"}})
    code, report, stderr = checked(stage, tmp_path, mixture)
    assert code == 1, stderr
    says(stderr.strip().splitlines()[-1], DAMAGE[damage])
    assert [p for p in report["problems"] if re.search(DAMAGE[damage][0], p["reason"])], report["problems"]

    if damage not in MET:
        return
    code, delivered, stderr = ran(stage, tmp_path, mixture)
    assert code == 1, stderr
    reason = stderr.strip().splitlines()[-1]
    says(reason, DAMAGE[damage])
    for end in delivered.ends:
        failed_with(end, reason)


def test_long_bin(stage: Any, tmp_path: Path) -> None:
    """A .bin with bytes outside its index is refused, or everything in the index is delivered."""
    source = megatron_long_bin(tmp_path)
    code, _, stderr = checked(stage, tmp_path, mixture_of({"s": source}))
    if code == 1:
        says(stderr, [r"corpus\.(bin|idx)"])
        return
    code, delivered, stderr = ran(stage, tmp_path, mixture_of({"s": source}))
    assert code == 0 and sum(s[LENGTH] for s in delivered.segments()) == sum(
        map(len, corpus.token_documents(3, 80, 200, 50000))
    )


# Single records that cannot be decoded: the inserted line, late in the file, and the expected word.
RECORDS: Dict[str, Tuple[bytes, str]] = {
    "invalid JSON": (b'{"text": "half', "JSON|string|end"),
    "not an object": (b'["text", "no"]', "object"),
    "invalid UTF-8": (b'{"text": "a \xff\xfe b"}', "UTF-8"),
    "lone surrogate": (b'{"text": "\\ud800 x"}', "surrogate|UTF-8|escape"),
    "no such field": (b'{"body": "x"}', "text"),
    "a number": (b'{"text": 12}', "text|string|number"),
    "null": (b'{"text": null}', "text|null"),
    "too deep": (b'{"x": ' + b"[" * 5000 + b"]" * 5000 + b', "text": "y"}', "deep|nest"),
    "too long": (b'{"text": "' + b"long " * 60_000 + b'"}', "sample_bytes|bytes"),
    "rubbish": (bytes(range(11, 256)), "JSON|character|value|byte"),
}


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
def test_quarantine(stage: Any, tmp_path: Path, packed: str) -> None:
    """One bad line of each kind, late in a file. Each is reported with file, offset and reason. All others are
    delivered once."""
    lines = [json.dumps({"text": t}, ensure_ascii=False).encode() for t in TEXTS]
    at: Dict[int, str] = {}
    for i, (name, (line, _)) in enumerate(RECORDS.items()):
        at[300 + 9 * i] = name
        lines.insert(300 + 9 * i, line)
    raw = b"".join(line + b"\n" for line in lines)
    path = tmp_path / f"a.jsonl{packed}"
    path.write_bytes({"": lambda b: b, ".gz": gzip.compress, ".zst": zstandard.compress}[packed](raw))
    mixture = mixture_of(
        {"s": {"path": path.name}},
        quarantine={"budget": 0.05},
        limits={"sample_bytes": "200KiB"},
        tokenizer={"name": "gpt2"},
    )

    code, report, stderr = checked(stage, tmp_path, mixture)
    assert code == 0, stderr
    assert report["quarantined"]["count"] == len(RECORDS), report["quarantined"]

    code, delivered, stderr = ran(stage, tmp_path, mixture)
    assert code == 0, stderr
    said = {
        int(m[1]): (int(m[2]), m[3])
        for m in re.finditer(rf"^quarantined s {re.escape(path.name)}#(\d+) at byte (-?\d+): (.*)$", stderr, re.M)
    }
    assert sorted(said) == sorted(at), stderr
    offset = 0
    for n, line in enumerate(lines):
        if n in at:
            where, why = said[n]
            says(why, [RECORDS[at[n]][1]])
            assert offset <= where <= offset + len(line), f"{at[n]}: said to be at byte {where}, it is at {offset}"
        offset += len(line) + 1
    assert {s[ID] for s in delivered.segments()} == {f"{path.name}#{n}" for n in range(len(lines)) if n not in at}
    starts = [(s[ID], s[OFFSET]) for s in delivered.segments()]
    assert len(starts) == len(set(starts))


def test_budget_spent(stage: Any, tmp_path: Path) -> None:
    """More bad records than the budget: the run fails and reports their number, the source and the last record."""
    lines = [json.dumps({"text": t}).encode() for t in TEXTS]
    for n in (50, 200, 350):
        lines[n] = b"{"
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    mixture = mixture_of({"s": {"path": "a.jsonl"}})
    code, _, stderr = checked(stage, tmp_path, mixture)
    assert code == 1, stderr
    says(stderr, ["quarantine", r"a\.jsonl"])
    code, delivered, stderr = ran(stage, tmp_path, mixture)
    assert code == 1
    says(stderr.strip().splitlines()[-1], ["quarantine", r"a\.jsonl#(50|200|350)"])
    for end in delivered.ends:
        failed_with(end, stderr.strip().splitlines()[-1])


@pytest.mark.parametrize("place", ["loader/decode/before", "loader/read/before"])
def test_decoder_panics(stage: Any, tmp_path: Path, place: str) -> None:
    """A decoder panic costs at most that record and never the run. If decoding it alone succeeds, it costs nothing."""
    whole(tmp_path, "a.jsonl")
    mixture = mixture_of({"s": {"path": "a.jsonl"}}, quarantine={"budget": 0.05})
    code, delivered, stderr = ran(stage, tmp_path, mixture, env={"MILLRACE_FAILPOINTS": f"{place}=panic@3"})
    assert code == 0, stderr
    lost = re.findall(r"^quarantined s (a\.jsonl#\d+) .*: .*failpoint", stderr, re.M)
    assert len(lost) == (place == "loader/decode/before"), stderr
    assert {s[ID] for s in delivered.segments()} == {f"a.jsonl#{n}" for n in range(len(TEXTS))} - set(lost)


@pytest.mark.parametrize("stop", [{"epochs": 1}, None])
def test_decoder_panics_on_everything(stage: Any, tmp_path: Path, stop: Any) -> None:
    """If no record can be decoded, the run fails at once, also for a source that repeats."""
    whole(tmp_path, "a.jsonl")
    mixture = mixture_of({"s": {"path": "a.jsonl"}}, stop=stop)
    if not stop:
        del mixture["stop"]
    code, delivered, stderr = ran(stage, tmp_path, mixture, env={"MILLRACE_FAILPOINTS": "loader/decode/before=panic@0"})
    assert code == 1
    says(stderr.strip().splitlines()[-1], [r"a\.jsonl#\d+", "failpoint"])
    for end in delivered.ends:
        failed_with(end, stderr.strip().splitlines()[-1])


# Examples of mistakes in the mixture file: the change and the expected message. The configuration's tests have all of
# them.
MISTAKES: List[Tuple[str, str, str]] = [
    ("seed: 11", "sead: 11", "seed"),
    ("seed: 11", "seed: 11\nseed: 12", "twice|double|duplicate|already"),
    ("seed: 11", "seed: eleven", "number|integer"),
    ("version: 1", "version: 2", "version"),
    ("version: 1", "", "version"),
    ("sequence_length: 256", "sequence_length: 0", "sequence_length"),
    ("sequence_length: 256", "sequence_length: 99999999999", "sequence_length"),
    ("global_batch_size: 16", "global_batch_size: 15", "global_batch_size|divide|multiple"),
    ("{s: 1}", "{s: 1, t: 2}", "source"),
    ("{s: 1}", "{}", "weight|source"),
    ("{s: 1}", "{s: .nan}", "weight|NaN|number"),
    ("{s: 1}", "{s: -1}", "negative|weight"),
    ("{s: 1}", "{s: 0}", "zero|weight|0"),
    ("tokenizer: {name: gpt2}", "tokenizer: {name: gpt-9}", "gpt2"),
    ("tokenizer: {name: gpt2}", "tokenizer: {path: nowhere.tiktoken}", "nowhere.tiktoken"),
    ("tokenizer: {name: gpt2}", "tokenizer: {path: rubbish.tiktoken}", "rubbish.tiktoken"),
    ("tokenizer: {name: gpt2}", "", "tokenizer"),
    ("packing: best_fit", "packing: best", "best_fit"),
    ("packing: best_fit", "packing: [best_fit]", "packing|text|string|list"),
    ("stop: {epochs: 1}", "stop: {epochs: 1, steps: 2}", "stop|keep one"),
    ("stop: {epochs: 1}", "stop: {epochs: -1}", "epochs"),
    ("path: a.jsonl", "path: a.jsonl, on_exhausted: repeat", "repeat"),
    ("path: a.jsonl", "path: a.jsonl, format: csv", "jsonl"),
    ("path: a.jsonl", "path: a.jsonl, txet: body", "text"),
    ("path: a.jsonl", "path: ''", "path"),
    ("packing: best_fit", "limits: {loader_memory: 12MiB}", "loader_memory"),
    ("packing: best_fit", "limits: {loader_memory: much}", "MiB"),
    ("packing: best_fit", "packing: &a best_fit", "anchor"),
    ("packing: best_fit", "packing: best_fit\n  layout: packed", "line|indent|map|expected"),
    ("packing: best_fit", "\tpacking: best_fit", "tab|character|indent"),
    ("packing: best_fit", "parallelism: {tp: 4}", "tp\\*cp\\*pp"),
    ("packing: best_fit", "parallelism: {cp: 4}", "pad_multiple: 8"),
]
MIXTURE = """version: 1
seed: 11
tokenizer: {name: gpt2}
sequence_length: 256
global_batch_size: 16
packing: best_fit
stop: {epochs: 1}
mixture:
  weights: {s: 1}
sources:
  s: {path: a.jsonl}
"""


def test_mistakes(stage: Any, tmp_path: Path) -> None:
    """A mistake in the mixture file: `check` and `up` exit 2 with file:line:column and touch no run directory."""
    whole(tmp_path, "a.jsonl")
    (tmp_path / "rubbish.tiktoken").write_bytes(b"not base64 at all\n\xff\xff 3\n")
    path = tmp_path / "m.yaml"
    path.write_text(MIXTURE)
    assert subprocess.run([stage.binary, "check", path, "--ranks", "2"], capture_output=True).returncode == 0
    wrong = []
    for old, new, word in MISTAKES:
        assert old in MIXTURE
        path.write_text(MIXTURE.replace(old, new))
        for args in (["check", path, "--ranks", "2"], ["up", path, "--ranks", "2", "--run-dir", tmp_path / "run"]):
            done = subprocess.run(
                [stage.binary, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
            )
            clean(done.stderr)
            if (
                done.returncode != 2
                or not re.search(r"m\.yaml:\d+:\d+", done.stderr)
                or not re.search(word, done.stderr)
            ):
                wrong.append(f"{args[0]}: {new!r}: exit {done.returncode}: {done.stderr}")
    assert not wrong, "\n".join(wrong)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"[]",
        b"- a\n- b\n",
        b"\xff\xfe\x00v",
        b"a: " * 5000,
        b"x: [" * 20000,
        b"version: 1\n" + b"# long\n" * 300_000,
    ],
)
def test_no_mixture(stage: Any, tmp_path: Path, content: bytes) -> None:
    """Files that are not mixtures."""
    path = tmp_path / "m.yaml"
    path.write_bytes(content)
    done = subprocess.run(
        [stage.binary, "check", path], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
    )
    clean(done.stderr)
    assert done.returncode == 2 and "m.yaml" in done.stderr, done.stderr[:500]


def test_usage(stage: Any, tmp_path: Path) -> None:
    """Wrong usage: exit 2 and a hint to the help."""
    whole(tmp_path, "a.jsonl")
    path = tmp_path / "m.yaml"
    path.write_text(MIXTURE)
    for args in (
        ["up"],
        ["up", path],
        ["up", path, "--run-dir", tmp_path / "r", "--ranks", "0"],
        ["up", path, "--run-dir", tmp_path / "r", "--ranks", "3"],
        ["check", path, "--bogus"],
        ["check", tmp_path / "none.yaml"],
        ["check", tmp_path],
        ["nonsense"],
        ["plan", path, "--steps", "5..2"],
    ):
        done = subprocess.run(
            [stage.binary, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
        )
        clean(done.stderr)
        assert done.returncode == 2 and done.stderr.strip(), f"{args}: exit {done.returncode}: {done.stderr}"


# --- Random flips: every format, small files, many in one check.


def flipping(directory: Path) -> Iterator[Tuple[str, List[str], Dict[str, Any]]]:
    """A name, the files in which bytes are flipped, and the source: with checksums wherever the format has them."""
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


# --- A full disk.


def test_full_disk(stage: Any, tmp_path: Path) -> None:
    """The journal cannot be written: the run fails at once, every rank gets the reason, and the journal verifies."""
    golden = stage.delivered(variant({"global_batch_size": 8}), 2)
    directory = stage.new_dir()
    with stage.up(variant({"global_batch_size": 8}), 2, directory) as run:
        trainers = run.start(pause=0.01)
        trainers.collect(until=3)
        roles = json.loads((directory / "run" / "roles.json").read_text())
        written = max(p.stat().st_size for p in (directory / "journal").glob("*.log"))
        for pid in [run.process.pid, *(r["pid"] for r in roles if r["role"] == "orchestrator")]:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (written + 2000, written + 2000))
        first = trainers.collect()
        assert run.wait(SECONDS) == 1
        clean(run.stderr())
        reason = run.stderr().strip().splitlines()[-1]
        says(reason, ["journal", "file too large|no space"])
        for end in first.ends:
            assert isinstance(end, tuple) and end[1] == "RunError" and "journal" in end[2], end
    with stage.up(variant({"global_batch_size": 8}), 2, directory) as run:
        second = run.train(start="latest")
        assert second.ends == ["end"] * 2 and run.wait(SECONDS) == 0
    start = min(step for step, _, _ in second.bytes())
    assert first.bytes().items() <= golden.bytes().items()
    assert second.bytes() == {slot: d for slot, d in golden.bytes().items() if slot[0] >= start}


def test_full_file_system(stage: Any, tmp_path: Path) -> None:
    """The file system of the run directory is full from the start. The run reports it and begins once there is space.
    If the test may not mount, files cannot grow instead: the run reports it and exits 1, and no rank waits for ever."""
    small = tmp_path / "small"
    small.mkdir()
    mixture = stage.mixture(variant({"global_batch_size": 8}))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", small], capture_output=True).returncode == 0:
        try:
            make_room(stage, mixture, small, tmp_path / "stderr")
        finally:
            subprocess.run(["umount", "-l", small], check=True)
        return
    try:
        with Run(stage.binary, mixture, small / "run", 2, launcher=["sh", "-c", 'ulimit -f 40; exec "$0" "$@"']) as run:
            delivered = run.train()
            assert run.wait(SECONDS) == 1, run.stderr()
            clean(run.stderr())
            says(run.stderr().strip().splitlines()[-1], ["no space|file too large"])
            for end in delivered.ends:
                assert isinstance(end, tuple) and end[1] == "RunError", end
    except AssertionError as e:
        if "`up` said" not in str(e):
            raise
        says(str(e), ["no space|file too large"])  # it failed before it was ready


def make_room(stage: Any, mixture: Path, small: Path, said: Path) -> None:
    """Starts a run on a full file system and frees space after its report."""
    with open(said, "w") as stderr:
        up = subprocess.Popen(
            [stage.binary, "up", mixture, "--ranks", "2", "--run-dir", small / "run"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        over = time.monotonic() + SECONDS
        while "no space" not in said.read_text():
            assert time.monotonic() < over and up.poll() is None, said.read_text()
            time.sleep(0.05)
        clean(said.read_text())
        subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
        assert (
            up.stdout is not None
            and select.select([up.stdout], [], [], SECONDS)[0]
            and up.stdout.readline().startswith("ready")
        ), said.read_text()
    finally:
        up.terminate()
        up.wait(SECONDS)
