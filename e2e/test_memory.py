"""Memory: a run stays within the documented bound for files of any size. Its memory depends on its limits alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

import corpus
from conftest import variant
from harness import DEADLINE, Run, write_mixture
from weigh import Scale

MIB = 1 << 20
FILE = 192 * MIB  # of each source, uncompressed: three times the least loader_memory
LEAST = {"loader_memory": "64MiB", "sidecar_memory": "64MiB", "sample_bytes": "1MiB"}

# The memory that `up` and its children need in addition to the limits, at most (docs/memory.md).
BASE = 72 * MIB  # `up`, the orchestrator, and the sidecar without its batches
PROCESS = 40 * MIB  # each loader or shadow: code, vocabulary, open files
SHADOWS = 1  # the default of the mixture file
REPLACED = 1  # a loader whose shadow has taken over and that is about to exit


def documented(loaders: int, loader_memory: int = 64 * MIB, sidecar_memory: int = 64 * MIB) -> int:
    """The memory bound of a run, in bytes."""
    return BASE + (loaders + SHADOWS + REPLACED) * PROCESS + loader_memory + sidecar_memory


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Files much larger than a run's memory: one JSONL, one zstd frame, and Parquet row groups of 32 MiB."""
    at = tmp_path_factory.mktemp("large")
    texts = [t for t in corpus.real_texts(3, 1500, 40) if t]

    def rows(n: int) -> List[str]:
        return [f"{n}-{i} {text}" for i, text in enumerate(texts)]

    size = sum(len(json.dumps({"text": t})) + 1 for t in rows(0))
    with open(at / "plain.jsonl", "wb") as plain, open(at / "frame.jsonl.zst", "wb") as packed:
        frame = zstandard.ZstdCompressor(level=1).stream_writer(packed)
        for n in range(FILE // size):
            lines = "".join(json.dumps({"text": t}) + "\n" for t in rows(n)).encode()
            plain.write(lines)
            frame.write(lines)
        frame.close()
    with pyarrow.parquet.ParquetWriter(
        at / "table.parquet", pyarrow.schema([("text", pyarrow.string())]), compression="zstd"
    ) as table:
        held: List[str] = []
        for n in range(FILE // size):
            held += rows(n)
            if len(held) * size > 32 * MIB * len(texts):
                table.write_table(pyarrow.table({"text": held}))
                held = []
        table.write_table(pyarrow.table({"text": held}))
    yield at
    shutil.rmtree(at)


SOURCES: Dict[str, Dict[str, Any]] = {
    "plain": {"path": "plain.jsonl"},
    "frame": {"path": "frame.jsonl.zst"},
    "table": {"path": "table.parquet"},
}


def mixture(*names: str, **change: Any) -> Dict[str, Any]:
    return variant(
        {
            "sequence_length": 2048,
            "global_batch_size": 32,
            "stop": {"steps": 20},
            "sources": {name: SOURCES[name] for name in names},
            "mixture": {"weights": {name: 1 for name in names}},
            "limits": dict(LEAST),
            **change,
        }
    )


class Cgroup:
    """A memory limit that the kernel enforces with cgroup v1 or v2. If the machine forbids cgroups, tests compare the
    measured memory with the limit."""

    def __init__(self, limit: int, name: str) -> None:
        self.path, self.limit = Path(), limit
        for root, knob in (
            (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
            (Path("/sys/fs/cgroup"), "memory.max"),
        ):
            path = root / f"millrace-test-{os.getpid()}-{name}"
            try:
                path.mkdir()
                (path / knob).write_text(str(limit))
                self.path = path
                return
            except OSError:
                if path.is_dir():
                    path.rmdir()

    def launcher(self) -> List[str]:
        if self.path == Path():
            return []
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$0" "$@"']

    def close(self) -> None:
        for _ in range(50):
            try:
                if self.path != Path():
                    self.path.rmdir()
                return
            except OSError:
                time.sleep(0.1)


def weighed(stage: Any, large: Path, mixture: Dict[str, Any], ranks: int, limit: int, **orders: Any) -> Scale:
    """Runs to the end under a limit and returns the measured memory."""
    group = Cgroup(limit, f"{time.monotonic_ns()}")
    try:
        with Run(stage.binary, write_mixture(large, mixture), stage.new_dir(), ranks, launcher=group.launcher()) as run:
            trainers = run.start(**orders)
            with Scale(run, [c.pid for c in trainers.children]) as scale:
                delivered = trainers.collect(within=120)
            assert delivered.ends == ["end"] * ranks, f"{delivered.ends}, {scale}\n{run.stderr()}"
            assert run.wait() == 0
            assert "died" not in run.stderr(), f"killed for memory: {scale}\n{run.stderr()}"
    finally:
        group.close()
    return scale


# The last variant reads what the long ones read alone.
@pytest.mark.parametrize(
    "names, shuffle",
    [
        pytest.param(("plain",), "global", marks=pytest.mark.long),
        pytest.param(("frame",), "global", marks=pytest.mark.long),
        pytest.param(("table",), "global", marks=pytest.mark.long),
        (("plain",), "blocks"),
        (("plain", "frame", "table"), "global"),
    ],
)
def test_documented_minimum(stage: Any, large: Path, names: Any, shuffle: str) -> None:
    """With the least limits and files three times as large, without an index: memory stays within the documented
    bound."""
    shape = mixture(*names, shuffle=shuffle, index_dir=f"index-{'-'.join(names)}-{shuffle}")
    limit = documented(min(len(names), os.cpu_count() or 1))
    scale = weighed(stage, large, shape, 2, limit)
    print(f"{names} {shuffle}: {scale}, of {limit // MIB}")
    assert scale.peak <= limit, scale


def test_without_room_for_texts(stage: Any, large: Path, tmp_path: Path) -> None:
    """Six sources in blocks of 64 MiB, with the least limits. A run directory in memory has no room for the texts of
    blocks, as a full disk has none. Memory stays within the documented bound, and the batches are those of a run whose
    texts lie on a disk."""
    names = [f"{name}{n}" for n in range(3) for name in ("plain", "frame")]
    shape = mixture(
        "plain",
        sources={name: SOURCES[name[:-1]] for name in names},
        mixture={"weights": {name: 1 for name in names}},
        shuffle="blocks",
        seekable_copies=False,
        index_dir=str(tmp_path / "index"),
        loaders=1,
        stop={"steps": 4},
    )
    limit = documented(1)
    batches = []
    for place in (Path(tempfile.mkdtemp(dir="/dev/shm")), stage.new_dir()):
        try:
            with Run(stage.binary, write_mixture(large, shape), place, 2) as run:
                trainers = run.start()
                with Scale(run, [c.pid for c in trainers.children]) as scale:
                    delivered = trainers.collect(within=240)
                assert delivered.ends == ["end"] * 2, f"{delivered.ends}, {scale}\n{run.stderr()}"
                assert run.wait() == 0
            batches.append(delivered.bytes())
        finally:
            shutil.rmtree(place, ignore_errors=True)
        print(f"{place}: {scale}, of {limit // MIB}")
        assert scale.peak <= limit, scale
    assert batches[0] == batches[1]


@pytest.mark.long  # many sources have 8 ranks and default limits in the short form
@pytest.mark.parametrize("ranks", [2, 8])
def test_ranks(stage: Any, large: Path, ranks: int) -> None:
    """Measures memory with few and many ranks, for the benchmark page."""
    limit = documented(min(3, os.cpu_count() or 1), 512 * MIB, 512 * MIB)
    shape = mixture("plain", "frame", "table", limits={})
    scale = weighed(stage, large, shape, ranks, limit)
    print(f"{ranks} ranks, default limits: {scale}")
    assert scale.peak <= limit, scale


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """306 sources of one small file: zstd JSONL and Parquet in turns, as on the host of a run with many datasets."""
    at = tmp_path_factory.mktemp("many")
    texts = [t for t in corpus.real_texts(5, 3000, 400) if t]
    for n in range(MANY):
        some = texts[n * 7 % len(texts) :][:40] or texts[:40]
        if n % 2:
            pyarrow.parquet.write_table(pyarrow.table({"text": some}), at / f"{n}.parquet")
        else:
            lines = "".join(json.dumps({"text": t}) + "\n" for t in some).encode()
            (at / f"{n}.jsonl.zst").write_bytes(zstandard.compress(lines))
    yield at
    shutil.rmtree(at)


MANY = 306


@pytest.mark.parametrize(
    "limits, loaders, cores, goal",
    [
        pytest.param(LEAST, 1, 0, 280_000_000, id="least limits"),
        pytest.param({}, 0, 0, 0, id="defaults", marks=pytest.mark.long),
        pytest.param({}, 0, 64, 0, id="64 cores"),  # the defaults, with as many loaders as they allow
    ],
)
def test_many_sources(
    stage: Any, many: Path, limits: Dict[str, Any], loaders: int, cores: int, goal: int, monkeypatch: Any
) -> None:
    """306 sources and 8 ranks, also on many cores: memory stays within the documented bound, which has no term for
    sources or cores. With the least limits it stays below 280 MB."""
    sources = {f"s{n}": {"path": f"{n}.parquet" if n % 2 else f"{n}.jsonl.zst"} for n in range(MANY)}
    shape = variant(
        {
            "sequence_length": 2048,
            "global_batch_size": 32,
            "stop": {"steps": 20},  # the first two take documents of every source
            "sources": sources,
            "mixture": {"weights": {name: 1 for name in sources}},
            "limits": limits,
            "index_dir": f"index-{cores}-{loaders}",
            **({"loaders": loaders} if loaders else {}),
        }
    )
    if cores:
        monkeypatch.setenv("GOMAXPROCS", str(cores))
    memory = 64 * MIB if limits else 512 * MIB
    processes = loaders or min(MANY, cores or os.cpu_count() or 1, memory // (64 * MIB) - SHADOWS)
    limit = documented(processes, memory, memory)
    scale = weighed(stage, many, shape, 8, limit)
    print(f"306 sources, 8 ranks, {limits or 'defaults'}, {cores or os.cpu_count()} cores: {scale}, of {limit // MIB}")
    assert scale.peak <= min(limit, goal or limit), scale


def tables(pid: int) -> Set[str]:
    """The files with tables of a tokenizer that a process maps, by their inodes."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if line.endswith(".tables")}


def test_stuck_consumer(stage: Any, large: Path) -> None:
    """A trainer stops reading: all roles stop, and memory, descriptors and threads stay constant. The loader and its
    shadow map one file with the tables of the tokenizer."""
    with Run(
        stage.binary, write_mixture(large, mixture("plain", "frame", stop={"steps": 400})), stage.new_dir(), 2
    ) as run:
        trainers = run.start(leave_after=(4, 3), stay=True)
        trainers.collect(until=4)
        until, resting = time.monotonic() + DEADLINE, False
        while not resting and time.monotonic() < until:  # work in flight ends
            time.sleep(1)
            with Scale(run, [c.pid for c in trainers.children]) as scale:
                time.sleep(5)
            resting = len(set(scale.fds)) == 1 and scale.totals[-1] <= scale.totals[0] + 8 * MIB
        assert run.process.poll() is None
        files = [tables(pid) for pid in run.children()]
    assert len(set().union(*files)) == 1 and sum(map(bool, files)) == 2, f"mapped tables of tokenizers: {files}"
    first, last = scale.totals[0], scale.totals[-1]
    print(f"stuck: {first // MIB} MiB, then {last // MIB} MiB; {scale}")
    assert scale.peak <= documented(2) and last <= first + 8 * MIB, scale.totals
    assert len(set(scale.fds)) == 1, f"descriptors: {scale.fds}"
    assert max(scale.threads) - min(scale.threads) <= 4, f"threads: {scale.threads}"


def test_flat(stage: Any, large: Path) -> None:
    """Descriptors and threads do not grow with the length of a run. After the first half, memory does not grow."""
    shape = mixture("plain", "table", sequence_length=512, stop={"steps": 200}, shuffle="none")
    scale = weighed(stage, large, shape, 2, documented(2))
    half = len(scale.totals) // 2
    assert half > 4, "the run is too short for a comparison"
    print(
        f"flat: {scale}; descriptors {scale.fds[half]} to {max(scale.fds[half:])}, "
        f"threads {scale.threads[half]} to {max(scale.threads[half:])}"
    )
    # Loaders may get ahead of the trainers at any time: up to eight steps lie in arenas. Each step has a descriptor for
    # each loader.
    assert max(scale.fds[half:]) <= max(scale.fds[:half]) + 4 + 2 * 8, scale.fds
    assert max(scale.threads[half:]) <= max(scale.threads[:half]) + 4, scale.threads
    assert max(scale.totals[half:]) <= max(scale.totals[:half]) + 48 * MIB, scale.totals


def ordinary(size: int) -> str:
    """Library code, repeated."""
    texts = "".join(corpus.real_texts(9, 4000, 40))
    return (texts * (1 + size // len(texts)))[:size]


def worst(size: int) -> str:
    """Text in which every byte is a token: letters outside every vocabulary."""
    rng = random.Random(9)
    return "".join(chr(0xA000 + rng.randrange(1000)) for _ in range(100_000)) * (size // 300_000)


# The limit of ordinary text is the tight one, and packed lines need the most. The long variants have the other files.
@pytest.mark.parametrize(
    "make, tokens, name",
    [
        pytest.param(ordinary, 2, "a.jsonl", marks=pytest.mark.long),
        (ordinary, 2, "b.jsonl.zst"),
        pytest.param(ordinary, 2, "c.parquet", marks=pytest.mark.long),
        (worst, 10, "a.jsonl"),
        pytest.param(worst, 10, "b.jsonl.zst", marks=pytest.mark.long),
        pytest.param(worst, 10, "c.parquet", marks=pytest.mark.long),
    ],
)
def test_one_large_document(stage: Any, tmp_path: Path, name: str, make: Any, tokens: int) -> None:
    """A document of nearly sample_bytes under the least memory that allows it (docs/memory.md)."""
    text = make(26 * MIB)
    lines = "".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in (text, "small")).encode()
    if name == "a.jsonl":
        (tmp_path / name).write_bytes(lines)
    elif name == "b.jsonl.zst":
        (tmp_path / name).write_bytes(zstandard.compress(lines))
    else:
        pyarrow.parquet.write_table(pyarrow.table({"text": [text, "small"]}), tmp_path / name, compression="none")
    shape = variant(
        {
            "sequence_length": 8192,
            "global_batch_size": 64,
            "micro_batch_size": 16,
            # The loaders make the document's tokens again and again, once for a step or two.
            "stop": {"steps": 3},
            "sources": {"s": {"path": name}},
            "mixture": {"weights": {"s": 1}},
            "limits": {"loader_memory": "64MiB", "sidecar_memory": "64MiB", "sample_bytes": "32MiB"},
        }
    )
    limit = documented(1) + (1 + SHADOWS + REPLACED) * tokens * 32 * MIB  # each loader may decode the document
    scale = weighed(stage, tmp_path, shape, 1, limit)
    print(f"{name}, {make.__name__}: {scale}, of {limit // MIB}")
    assert scale.peak <= limit, scale


def test_too_little_is_refused(stage: Any, tmp_path: Path) -> None:
    """A limit below the least is refused with its line, not with a later crash."""
    corpus.write_jsonl(tmp_path / "a.jsonl", ["x"] * 10, odd=False)
    crowded = variant(
        {
            "sources": {"s": {"path": "a.jsonl"}},
            "mixture": {"weights": {"s": 1}},
            "loaders": 8,
            "limits": {"loader_memory": "64MiB", "sample_bytes": "1MiB"},
        }
    )
    path = write_mixture(tmp_path, crowded)
    for args in (["check", path], ["up", path, "--run-dir", tmp_path / "run"]):
        done = subprocess.run([stage.binary, *args], capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode in (1, 2) and "write at least 144MiB" in done.stderr, done.stderr
    for limits, word in (
        ({"loader_memory": "63MiB"}, "loader_memory"),
        ({"sidecar_memory": "1MiB"}, "sidecar_memory"),
        ({"sample_bytes": "300MiB"}, "sample_bytes"),
    ):
        path = write_mixture(
            tmp_path,
            variant({"sources": {"s": {"path": "a.jsonl"}}, "mixture": {"weights": {"s": 1}}, "limits": limits}),
        )
        done = subprocess.run([stage.binary, "check", path], capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 2 and word in done.stderr and "mixture.yaml:" in done.stderr, done.stderr


def test_ring_does_not_fit(stage: Any, tmp_path: Path) -> None:
    """Batches too large for sidecar_memory: `check` and `up` refuse before the run begins and name a sufficient
    limit."""
    corpus.write_jsonl(tmp_path / "a.jsonl", ["x"] * 10, odd=False)
    shape = variant(
        {
            "sources": {"s": {"path": "a.jsonl"}},
            "mixture": {"weights": {"s": 1}},
            "sequence_length": 262144,
            "global_batch_size": 32,
            "micro_batch_size": 16,
            "limits": {"sidecar_memory": "64MiB"},
        }
    )
    path = write_mixture(tmp_path, shape)
    for args in (["check", path, "--ranks", "2"], ["up", path, "--ranks", "2", "--run-dir", tmp_path / "run"]):
        done = subprocess.run([stage.binary, *args], capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode in (1, 2) and "limits.sidecar_memory 64MiB is too little" in done.stderr, done.stderr
