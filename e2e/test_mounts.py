"""File systems that fail, die and come back under a run (docs/storage.md)."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import corpus
from conftest import Stage
from faulty_fs import Mount
from harness import DEADLINE, LOOK, Run, command

PAGE = Path(__file__).resolve().parent.parent / "docs" / "storage.md"
LIMIT = 16  # of open files: a source has more, so they are opened again and again
SETTING: Dict[str, Any] = {
    "version": 1,
    "seed": 5,
    "tokenizer": {"name": "gpt2"},
    "sequence_length": 128,
    "global_batch_size": 4,
    "micro_batch_size": 2,
    "stop": {"epochs": 3},
    "mixture": {"weights": {"lines": 2, "tables": 2, "books": 1}},
    "limits": {"loader_memory": "64MiB", "sample_bytes": "1MiB", "open_files": LIMIT, "runway_seconds": 1},
}
FORMATS = ("lines", "tables", "books")
FINAL = "final"


def table() -> List[Tuple[List[str], str, str]]:
    """The errors of the table in docs/storage.md, row by row, with their meaning and their remedy."""
    rows = re.findall(r"^\| (`E.*?`) \| (.*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return [(re.findall(r"`(\w+)`", names), meaning, remedy) for names, meaning, remedy in rows]


def number(name: str) -> int:
    return errno.EUCLEAN if name == "EFSCORRUPTED" else int(getattr(errno, name))


PASSING = [name for names, _, remedy in table() if remedy != FINAL for name in names]
ENDING = [(name, meaning) for names, meaning, remedy in table() if remedy == FINAL for name in names]


def meaning_of(name: str) -> str:
    return dict(ENDING)[name]


class Scene(Stage):
    """Files of three formats, read in place or through a mount."""

    def begin(self) -> None:
        for n in range(LIMIT + 8):
            corpus.write_jsonl(self.corpus / "files/lines" / f"{n}.jsonl", corpus.synthetic_texts(n + 1, 100, 30))
            texts = corpus.synthetic_texts(n + 101, 100, 30)
            corpus.write_parquet(self.corpus / "files/tables" / f"{n}.parquet", texts, "text", "zstd", 20)
        documents = corpus.token_documents(40, 600, 100, 50000)
        corpus.write_megatron(self.corpus / "files/books/corpus", documents, "u2")

    def over(self, at: Path, *only: str) -> Dict[str, Any]:
        """A mixture of some sources, by default of all."""
        sources = {
            "lines": {"path": f"{at}/lines/*.jsonl"},
            "tables": {"path": f"{at}/tables/*.parquet"},
            "books": {"format": "megatron", "path": f"{at}/books/corpus"},
        }
        out = {**SETTING, "sources": sources, "index_dir": str(self.scratch / f"index-of-{at.name}")}
        if only:
            out["sources"] = {name: sources[name] for name in only}
            out["mixture"] = {"weights": {name: 1 for name in only}}
        return out

    def golden(self, *only: str) -> Any:
        return self.delivered(self.over(self.corpus / "files", *only), 1)


@pytest.fixture
def scene(binary: Path, tmp_path: Path) -> Scene:
    for room in ("data", "runs"):
        (tmp_path / room).mkdir()
    out = Scene(binary, tmp_path / "data", tmp_path / "runs")
    out.begin()
    return out


@pytest.fixture
def mount(scene: Scene) -> Iterator[Mount]:
    with Mount(scene.corpus / "files", scene.scratch / "mount") as out:
        yield out


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """A file. Trainers pause for each batch until it is gone."""
    out = tmp_path / "busy"
    out.touch()
    return out


def ends_as(golden: Any, run: Run, trainers: Any) -> None:
    delivered = trainers.collect()
    assert delivered.ends == ["end"] and run.wait() == 0, (delivered.ends, run.stderr())
    assert delivered.bytes() == golden.bytes()


@pytest.mark.needs("fuse")
@pytest.mark.parametrize("of_each, epochs", [(1, 6), pytest.param(2, 12, marks=pytest.mark.long)])
def test_every_error_that_passes(scene: Scene, mount: Mount, busy: Path, of_each: int, epochs: int) -> None:
    """Reads and opens get every passing error in turn, in the middle of one run, and then succeed. The run has
    the batches of one without errors. It has many epochs, so that there is something to read for all errors. The short
    form gives every second error to reads, and the others to opens."""
    longer = {"stop": {"epochs": epochs}}
    golden = scene.delivered({**scene.over(scene.corpus / "files"), **longer}, 1)
    faults = [
        (operation, number(name))
        for i, name in enumerate(PASSING)
        for operation in (("read", "open"), ("open", "read"))[i % 2][:of_each]
    ]
    assert len(faults) > of_each * 40
    with scene.up({**scene.over(mount.at), **longer}) as run:
        trainers = run.start(pause=0.01, hold=str(busy))
        trainers.collect(until=2)
        mount.in_turn(faults, 2, DEADLINE, trainers.drain)
        assert mount.given() >= 2 * len(faults)
        busy.unlink()
        ends_as(golden, run, trainers)


def some_of(cases: List[Tuple[str, str]]) -> List[Any]:
    """The first error of each row, in turn for reads and for opens; the rest is long."""
    seen: List[str] = []
    out = []
    for name, meaning in cases:
        for operation in ("open", "read"):
            if (name, operation) != ("ENOSYS", "open"):  # FUSE takes it for success
                is_first = meaning not in seen and operation == ("open", "read")[len(seen) % 2]
                marks = [] if is_first else [pytest.mark.long]
                out.append(pytest.param(operation, name, id=f"{operation}-{name}", marks=marks))
        seen += [meaning] if meaning not in seen else []
    return out


@pytest.mark.needs("fuse")
@pytest.mark.parametrize("operation, name", some_of(ENDING))
def test_an_error_that_ends_the_run(scene: Scene, mount: Mount, operation: str, name: str) -> None:
    """The run ends with an error that names the file, the kernel's words, their meaning, and the cure."""
    with scene.up(scene.over(mount.at)) as run:
        trainers = run.start(pause=0.01)
        trainers.collect(until=2)
        mount.fail(**{operation: number(name)})
        delivered = trainers.collect()
        assert run.wait() == 1, run.stderr()
        reason = run.stderr().strip().splitlines()[-1]
    (end,) = delivered.ends
    assert end[:2] == ("error", "RunError") and str(mount.at) in end[2], end
    words = [str(mount.at), os.strerror(number(name)).lower()]
    if (operation, number(name)) in [("open", errno.EMFILE), ("open", errno.ENFILE)]:
        words += ["ulimit -n", "limits.open_files: 16"]  # the error has the limits
    else:
        words += [meaning_of(name)]
    for word in words:
        assert word in reason, (word, reason)


@pytest.mark.needs("fuse")
@pytest.mark.parametrize("operation", ["read", "open"])
def test_a_failing_device_is_no_wrong_usage(scene: Scene, mount: Mount, operation: str) -> None:
    """Only wrong usage has the status 2. Here every file that a command is given, or finds in one, cannot be read."""
    there, here = mount.at / "lines", scene.corpus / "files/lines"
    setting = {**scene.over(scene.corpus / "files", "lines"), "index_dir": str(scene.scratch / "index")}
    for name, change in {
        "mixture": {}, "tokenizer": {"tokenizer": {"path": str(there / "ranks.tiktoken")}},
        "data": {"sources": {"lines": {"path": str(there / "0.jsonl")}}},
    }.items():
        (here / f"{name}.yaml").write_text(json.dumps({**setting, **change}))
    (here / "ranks.tiktoken").write_text("IQ== 0\n")
    mount.fail(**{operation: errno.EIO})
    for words in [
        ["check", there / "mixture.yaml"], ["check", here / "tokenizer.yaml"], ["check", here / "data.yaml"],
        ["index", here / "data.yaml"], ["init", there / "0.jsonl"], ["inspect", there / "0.jsonl"],
        ["preview", here / "data.yaml"],
        ["up", here / "tokenizer.yaml", "--ranks", "1", "--run-dir", scene.scratch / "run"],
    ]:
        command(scene.binary, *map(str, words), code=1)


@pytest.mark.needs("fuse")
@pytest.mark.parametrize("is_read_only", [False, True])
def test_a_mount_that_dies_and_comes_back(scene: Scene, mount: Mount, busy: Path, is_read_only: bool) -> None:
    """The run waits and names the sources. It has the batches of one without the outage. One case restarts the run
    meanwhile, so that all processes find a dead mount. In the other one they have dead descriptors, and the mount comes
    back read-only."""
    golden = scene.golden()
    with scene.up(scene.over(mount.at)) as run:
        trainers = run.start(pause=0.03, hold=str(busy))
        trainers.collect(until=5)
        mount.kill()
        until = time.monotonic() + DEADLINE
        while len(set(re.findall("warning: source (\\w+) cannot be read", run.stderr()))) < 2:
            assert time.monotonic() < until, run.stderr()
            time.sleep(LOOK)
            trainers.drain()
        assert trainers.delivered.ranks[0][-1].step < max(golden.steps()) - 10, "the outage came too late"
        if not is_read_only:
            command(scene.binary, "restart", str(run.directory))
        mount.unmount()
        mount.mount(is_read_only=is_read_only)
        busy.unlink()
        ends_as(golden, run, trainers)


@pytest.mark.needs("fuse")
@pytest.mark.parametrize("source", FORMATS)
def test_a_mount_that_comes_back_with_other_files(scene: Scene, mount: Mount, source: str) -> None:
    """Other files of equal names and sizes are refused by name, although the mount was away meanwhile.

    The loader that read them finds it, or one that takes over and begins with the list of files. The run has many
    epochs, so that the loader reads each file again.
    """
    longer = {"stop": {"epochs": 30}}
    other = scene.corpus / "other"
    shutil.copytree(mount.directory, other)
    for path in (other / source).glob("*[!x]"):
        whole = bytearray(path.read_bytes())
        whole[len(whole) // 2] ^= 1
        path.write_bytes(whole)
    with scene.up({**scene.over(mount.at, source), **longer}) as run:
        trainers = run.start(pause=0.01)
        trainers.collect(until=5)
        mount.unmount()
        mount.mount(other)
        delivered = trainers.collect()
        assert run.wait() == 1, run.stderr()
        reason = run.stderr().strip().splitlines()[-1]
    file = f"file {mount.at}/{source}/\\S+"
    changed = f"{file} of source {source} changed|source {source} is not the one the run began with: {file} changed"
    assert re.search(rf"({changed}).* restore the file, or ", reason), reason
    (end,) = delivered.ends
    assert end[:2] == ("error", "RunError") and re.search(changed, end[2]), end
