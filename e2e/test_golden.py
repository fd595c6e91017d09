"""Golden digests: the delivery of a small corpus never changes silently, on any machine.

After an intended change, `pytest e2e/test_golden.py --rewrite` writes golden.json again. A new
`planner_version` or the release notes must then report the change, because older runs continue with other batches.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping

import pytest

import corpus
import oracle
from conftest import HERE, cases
from harness import Delivered, Run, command, write_mixture

GOLDEN = HERE / "golden.json"
QEMU = shutil.which("qemu-aarch64-static")
on_arm64 = pytest.mark.needs("qemu-aarch64-static")

COMMON: Dict[str, Any] = {
    "version": 1,
    "seed": 2024,
    "sequence_length": 96,
    "global_batch_size": 8,
    "micro_batch_size": 2,
    "sources": {
        "lines": {"path": "lines/*.jsonl", "text": "a.b"},
        "pressed": {"path": "pressed/*.jsonl.gz"},
        "rows": {"path": "rows/r.parquet"},
        "ids": {"format": "megatron", "path": "ids/x"},
    },
}
MIXTURES: Dict[str, Dict[str, Any]] = {
    "packed": {
        "tokenizer": {"name": "gpt2"},
        "stop": {"epochs": 1},
        "mixture": {"weights": {"lines": 0.5, "pressed": 0.2, "rows": 0.2, "ids": 0.1}},
        "model": {
            "layers": 32,
            "hidden": 4096,
            "heads": 32,
            "kv_heads": 8,
            "head_dim": 128,
            "ffn": 14336,
            "vocab": 128256,
        },
    },
    "varlen": {
        "tokenizer": {"name": "cl100k_base", "add_bos": True},
        "layout": "varlen",
        "token_dtype": "int32",
        "pad_multiple": 4,
        "balance": "dp",
        "cap_slack": 1.1,
        "stop": {"steps": 12},
        "mixture": {
            "schedule": [
                {"from_step": 0, "weights": {"lines": 0.7, "pressed": 0.1, "rows": 0.1, "ids": 0.1}},
                {
                    "from_step": 3,
                    "weights": {"lines": 0.1, "pressed": 0.4, "rows": 0.3, "ids": 0.2},
                    "ramp": "linear",
                    "over_steps": 7,
                },
            ]
        },
    },
    "samples": {
        "tokenizer": {"name": "gpt2", "add_eos": False},
        "shuffle": "blocks",
        "packing": "pad",
        "balance": "none",
        "last_step": "short",
        "stop": {"epochs": 2},
        "mixture": {"unit": "samples", "weights": {"lines": 3, "pressed": 1, "rows": 1, "ids": 1}},
    },
}


def write_corpus(at: Path) -> None:
    """Builds documents from arithmetic alone, so that they are equal on every machine and under every version of Python
    and its libraries."""
    for i in range(2):
        corpus.write_jsonl(
            at / "lines" / f"l{i}.jsonl", ["", *corpus.synthetic_texts(100 + i, 60, 60), *corpus.ODD], "a.b"
        )
    corpus.write_jsonl(at / "pressed" / "p.jsonl.gz", corpus.synthetic_texts(200, 60, 50))
    corpus.write_parquet(at / "rows" / "r.parquet", corpus.synthetic_texts(300, 60, 50), "text", "zstd", 16)
    tokens = [[(d * 7919 + k * k * 31) % 50000 for k in range(d * 13 % 230)] for d in range(40)]
    corpus.write_megatron(at / "ids" / "x", tokens, "u2", pieces=2)


@pytest.fixture(scope="module")
def golden_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("golden")
    write_corpus(at)
    return at


# An emulated process takes seconds to begin. Loaders and shadows change no byte.
EMULATED: Dict[str, Any] = {"loaders": 1, "reliability": {"shadows": 0}}


def deliver(
    binary: Path, at: Path, name: str, directory: Path, change: Mapping[str, Any] = {}, **kwargs: Any
) -> Dict[str, Any]:
    """Runs on two ranks. Returns the documents' digest and, for each step, its content digest and a digest of its
    batches' digests."""
    mixture = {**COMMON, **MIXTURES[name], **change}
    documents = hashlib.blake2b(digest_size=16)
    for source, of in sorted(oracle.documents(at, mixture).items()):
        for key, tokens in of.items():
            documents.update(f"{source} {key} {' '.join(map(str, tokens.tolist()))}\n".encode())
    with Run(binary, write_mixture(at, mixture, f"{name}.yaml"), directory, 2, **kwargs) as run:
        delivered = run.train()
        assert delivered.ends == ["end", "end"] and run.wait() == 0, f"{delivered.ends}\n{run.stderr()}"
    return {"documents": documents.hexdigest(), "steps": [*steps(delivered).values()]}


def steps(delivered: Delivered) -> Dict[int, List[str]]:
    """For each step, its content digest and the digest of all batches' digests."""
    content = delivered.content()
    batches = {step: hashlib.blake2b(digest_size=16) for step in content}
    for (step, rank, microbatch), digest in sorted(delivered.bytes().items()):
        batches[step].update(f"{rank} {microbatch} {digest}\n".encode())
    return {step: [content[step], h.hexdigest()] for step, h in batches.items()}


@pytest.mark.parametrize("name", MIXTURES)
def test_golden(binary: Path, golden_corpus: Path, tmp_path: Path, name: str, request: Any) -> None:
    got = deliver(binary, golden_corpus, name, tmp_path / "run")
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if request.config.getoption("--rewrite"):
        golden[name] = got
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
    assert got["documents"] == golden[name]["documents"], "the corpus has changed"
    assert got["steps"] == golden[name]["steps"]


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("arm64") / "millrace"
    subprocess.run(
        ["go", "build", "-o", str(out), "./cmd/millrace"],
        cwd=HERE.parent,
        check=True,
        env={**os.environ, "GOARCH": "arm64", "CGO_ENABLED": "0"},
    )
    return out


WANDERING = "varlen"  # the mixture of the run that alternates between processors
WHOLE = [name for name in MIXTURES if name != WANDERING]


@on_arm64
@pytest.mark.parametrize("name", cases(WHOLE, short=["packed"]))
def test_arm64(arm64: Path, golden_corpus: Path, tmp_path: Path, name: str) -> None:
    """The whole run on an emulated arm64 processor, for which the compiler fuses x*y+z, gives the same bytes."""
    env = {"MILLRACE_PROGRAM": f"{QEMU} {arm64}"}
    got = deliver(arm64, golden_corpus, name, tmp_path / "run", EMULATED, env=env, launcher=[str(QEMU)])
    assert got == json.loads(GOLDEN.read_text())[name]
    assert json.loads(command(arm64, "version", "--json", launcher=[str(QEMU)]))["arch"] == "arm64"


@on_arm64
def test_arm64_goes_on(binary: Path, arm64: Path, golden_corpus: Path, tmp_path: Path) -> None:
    """A run alternates between processors. Each continues from the other's state to the end, with the same bytes. The
    emulated one plans all steps but the first."""
    mixture = write_mixture(golden_corpus, {**COMMON, **MIXTURES[WANDERING], **EMULATED}, "wandering.yaml")
    golden = dict(enumerate(json.loads(GOLDEN.read_text())[WANDERING]["steps"]))
    emulated = {"env": {"MILLRACE_PROGRAM": f"{QEMU} {arm64}"}, "launcher": [str(QEMU)]}
    state, begins = None, 0
    for i, (program, how, until) in enumerate([(binary, {}, 0), (arm64, emulated, 5), (binary, {}, len(golden) - 1)]):
        with Run(program, mixture, tmp_path / f"run-{i}", 2, **how) as run:
            delivered = run.train(state=state, states=True)
        assert steps(delivered) == {step: digests for step, digests in golden.items() if step >= begins}
        state = json.loads([b.state for b in delivered.ranks[i % 2] if b.step == until][-1])
        begins = until + 1
