"""Bad input to the real binary gives a clear error within seconds, or a quarantine with everything else delivered."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
import zstandard

import corpus
from damage import DAMAGE, MET, TEXTS, Damage, megatron_long_bin, whole
from harness import ID, LENGTH, OFFSET
from inputs import SECONDS, checked, clean, failed_with, mixture_of, ran, says


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
    """A .bin with bytes outside its index is refused, or every document of the index is delivered."""
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
            assert offset <= where <= offset + len(line), f"{at[n]}: reported at byte {where}, it is at {offset}"
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
    assert stderr.strip().splitlines()[-1].startswith("source s: "), "the reason comes first"
    for end in delivered.ends:
        failed_with(end, stderr.strip().splitlines()[-1])


# Examples of mistakes in the mixture file: the change and the expected message. The tests of the configuration have all
# mistakes.
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
    ("path: a.jsonl", "path: a.jsonl, format: xlsx", "jsonl"),
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
