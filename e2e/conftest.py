"""The binary, the corpus and the runs that tests share."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import fcntl
import hashlib
import itertools
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import corpus  # noqa: E402
import needs  # noqa: E402
import oracle  # noqa: E402
from harness import Delivered, Run, write_mixture  # noqa: E402

# One small run over every format. Tests can count each of its tokens. They use variants of this run.
BASE: Dict[str, Any] = {
    "version": 1,
    "seed": 11,
    "tokenizer": {"name": "gpt2"},
    "sequence_length": 256,
    "global_batch_size": 16,
    "micro_batch_size": 2,
    "stop": {"epochs": 1},
    "mixture": {"weights": {"plain": 0.4, "packed": 0.15, "frames": 0.15, "tables": 0.2, "books": 0.1}},
    "sources": {
        "plain": {"format": "jsonl", "path": "plain/*.jsonl", "text": "meta.body"},
        "packed": {"path": "packed/part-*"},
        "frames": {"path": "frames/*.jsonl.zst"},
        "tables": {"path": "tables/*.parquet", "text": "content.body"},
        "books": {"format": "megatron", "path": "books/corpus"},
    },
}

VARIANTS: Dict[str, Dict[str, Any]] = {
    "base": {},
    "varlen": {
        "layout": "varlen",
        "token_dtype": "int32",
        "pad_multiple": 8,
        "balance": "dp",
        "tokenizer": {"name": "cl100k_base", "add_bos": True},
    },
    "samples": {
        "mixture": {"unit": "samples", "weights": {"plain": 3, "packed": 2, "frames": 2, "tables": 2, "books": 1}},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": "blocks",
        "last_step": "short",
        "stop": {"epochs": 2},
        "token_dtype": "int32",
    },
    "filtered": {
        "stages": [
            {"from_step": 3, "filters": {"frames": "tokens > 10", "tables": "n > 20"}},
            {"from_step": 6, "filters": {}},
        ],
        "mixture": {
            "floor": 0.02,
            "schedule": [
                {
                    "from_step": 0,
                    "groups": {
                        "text": {
                            "weight": 0.8,
                            "groups": {
                                "lines": {"weight": 2, "weights": {"plain": 3, "packed": 1, "frames": 1}},
                                "rows": {"weight": 1, "weights": {"tables": 1}},
                            },
                        },
                        "ids": {"weight": 0.2, "weights": {"from": "uniform", "sources": ["books"]}},
                    },
                },
                {
                    "from_step": 2,
                    "weights": {"plain": 1, "packed": 0, "frames": 3, "tables": 1, "books": 9},
                    "ramp": "cosine",
                    "over_steps": 5,
                },
            ],
        },
        "sources": {
            **BASE["sources"],
            "plain": {**BASE["sources"]["plain"], "filter": "tokens > 3 && (score ?? 1) != 0"},
            "packed": {**BASE["sources"]["packed"], "filter": "bytes % 2 == 0"},
            "tables": {**BASE["sources"]["tables"], "filter": 'n % 3 != 1 && z == "other"', "max_fraction": 0.4},
            "books": {**BASE["sources"]["books"], "filter": "tokens >= 20"},
        },
    },
    "stages": {
        "micro_batch_size": 1,
        "rampup_batch_size": {"start": 8, "increment": 8, "samples": 20},
        "stages": [
            {"from_step": 4, "sequence_length": 1024, "global_batch_size": 8},
            {
                "from_step": 6,
                "sequence_length": 64,
                "global_batch_size": 48,
                "packing": "pad",
                "rampup_batch_size": {"start": 16, "increment": 16, "samples": 50},
            },
            {
                "from_step": 11,
                "sequence_length": 128,
                "global_batch_size": 32,
                "micro_batch_size": 4,
                "packing": "best_fit",
            },
        ],
    },
    "windows": {"carry": 64, "window": 3, "pad_multiple": 4},
    "concat": {"packing": "concat", "window": 2, "last_step": "short"},
    "bucketed": {"packing": "bucketed", "window": 2, "pad_multiple": 2, "micro_batch_size": 1},
    "constant rows": {
        "packing": "bucketed", "bucket_rows": "constant", "carry": 40, "window": 2, "pad_multiple": 2,
        "micro_batch_size": 1,
    },
    "none": {
        "shuffle": "none",
        "packing": "pad",
        "balance": "none",
        "tokenizer": {"name": "gpt2", "add_eos": False},
        "pad_multiple": 4,
    },
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--only-needing", action="store_true", help="run the tests alone that name needs")
    parser.addoption("--rewrite", action="store_true", help="write golden.json from this run")


def named(item: pytest.Item) -> List[str]:
    """The needs that a test names."""
    return [name for mark in item.iter_markers("needs") for name in mark.args]


def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    if config.getoption("--only-needing"):
        items[:] = [item for item in items if named(item)]


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.paths = needs.Paths(Path(tempfile.mkdtemp(prefix="paths-")), needs.PATH)  # type: ignore


def pytest_sessionfinish(session: pytest.Session) -> None:
    shutil.rmtree(session.config.paths.scratch)  # type: ignore


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    lacks = needs.missing(named(item))
    if lacks is not None:
        pytest.skip(lacks)
    needs.enter(named(item))
    os.environ["PATH"] = item.config.paths.with_only(named(item))  # type: ignore


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    needs.leave()
    os.environ["PATH"] = needs.PATH


def cases(values: Iterable[Any], short: Sequence[Any]) -> List[Any]:
    """The cases of a test. Those that are not in `short` prove the same for other settings, and are long."""
    return [pytest.param(v, marks=[] if v in short else pytest.mark.long) for v in values]


def variant(change: Mapping[str, Any]) -> Dict[str, Any]:
    out = copy.deepcopy(BASE)
    out.update(copy.deepcopy(dict(change)))
    return out


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The binary under test: $MILLRACE if set, else built from this tree."""
    if "MILLRACE" in os.environ:
        return Path(os.environ["MILLRACE"]).resolve()
    out = tmp_path_factory.mktemp("bin") / "millrace"
    go = shutil.which("go") or "/usr/local/go/bin/go"
    subprocess.run([go, "build", "-o", str(out), "./cmd/millrace"], cwd=HERE.parent, check=True)
    return out


@pytest.fixture(scope="session")
def corpus_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of BASE's sources."""
    at = tmp_path_factory.mktemp("corpus")
    corpus.write_all(at)
    return at


@dataclasses.dataclass
class Shelf:
    """A directory of the runs that have ended, for the processes that run tests at the same time."""

    directory: Path

    @contextlib.contextmanager
    def of(self, key: str) -> Iterator[Path]:
        """The file of a run. It exists if a process has left the run there. Another process waits for this one."""
        self.directory.mkdir(exist_ok=True)
        path = self.directory / hashlib.sha256(key.encode()).hexdigest()
        with open(f"{path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield path


@dataclasses.dataclass
class Stage:
    """Runs mixtures over the corpus and keeps each run, so that tests share them. With a shelf, tests of other
    processes share them, too: their corpus must be the same."""

    binary: Path
    corpus: Path
    scratch: Path
    shelf: Optional[Shelf] = None

    def __post_init__(self) -> None:
        self._numbers = itertools.count()
        self._runs: Dict[Any, Delivered] = {}
        self._documents: Dict[str, Any] = {}

    def new_dir(self) -> Path:
        return self.scratch / f"run-{next(self._numbers)}"

    def mixture(self, mixture: Mapping[str, Any]) -> Path:
        return write_mixture(self.corpus, mixture, f"mixture-{next(self._numbers)}.yaml")

    def documents(self, mixture: Mapping[str, Any]) -> Dict[str, oracle.Documents]:
        key = repr((mixture.get("tokenizer"), mixture["sources"]))
        if key not in self._documents:
            self._documents[key] = oracle.documents(self.corpus, mixture)
        return self._documents[key]

    def up(
        self, mixture: Mapping[str, Any], ranks: int = 1, directory: Optional[Path] = None, binary: str = "",
        **kwargs: Any,
    ) -> Run:
        program = Path(binary) if binary else self.binary
        return Run(program, self.mixture(mixture), directory or self.new_dir(), ranks, **kwargs)

    def delivered(
        self, mixture: Mapping[str, Any], ranks: int = 1, env: Optional[Mapping[str, str]] = None, **orders: Any
    ) -> Delivered:
        """Runs a mixture from start to end in a new run directory. Equal requests share one run."""
        key = repr((mixture, ranks, env, sorted(orders.items())))
        if key not in self._runs:
            self._runs[key] = self._shelved(key, mixture, ranks, env, **orders)
        return self._runs[key]

    def _shelved(self, key: str, *args: Any, **orders: Any) -> Delivered:
        if self.shelf is None:
            return self._run(*args, **orders)
        with self.shelf.of(key) as path:
            if path.exists():
                return pickle.loads(path.read_bytes())
            out = self._run(*args, **orders)
            path.write_bytes(pickle.dumps(out))
        return out

    def _run(
        self, mixture: Mapping[str, Any], ranks: int, env: Optional[Mapping[str, str]], **orders: Any
    ) -> Delivered:
        with self.up(mixture, ranks, env=env) as run:
            out = run.train(**orders)
            assert out.ends == ["end"] * ranks, f"{out.ends}\n{run.stderr()}"
            assert run.wait() == 0, run.stderr()
        return out


@pytest.fixture(scope="session")
def stage(binary: Path, corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    # Each process of pytest-xdist has a directory of its own below that of the session.
    several = "PYTEST_XDIST_WORKER" in os.environ
    shelf = Shelf(tmp_path_factory.getbasetemp().parent / "shelf") if several else None
    return Stage(binary, corpus_dir, tmp_path_factory.mktemp("runs"), shelf)
