"""Every code block of the pages for authors of trainers, and the notebook, run as written against real runs."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from ordeal import CLIENT, HERE, REPOSITORY, Up

yaml = pytest.importorskip("yaml")

PAGES = sorted([*REPOSITORY.glob("docs/coming-from/*.md"), REPOSITORY / "docs" / "training.md"])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SKIPPED = "# skip: "  # the first line of a block that cannot run here, with the reason
BEFORE = re.compile(r"<!-- before:\n((?:(?!-->).)*)-->\n+$", re.DOTALL)  # what a block takes from the reader's own code

# A page without a mixture file of its own.
MIXTURE = """\
version: 1
tokenizer: {name: gpt2}
sequence_length: 64
global_batch_size: 8
micro_batch_size: 2
stop: {steps: 3}
mixture: {weights: {web: 1}}
sources: {web: {path: "data/web/*.jsonl"}}
"""


def blocks(page: Path) -> Iterator[Tuple[str, str, str]]:
    """Yields the language of each block, the code that the page hides before it, and its text."""
    text = page.read_text()
    for found in BLOCK.finditer(text):
        before = BEFORE.search(text[: found.start()])
        yield found[1], before[1] if before else "", found[2]


def programs() -> List[Any]:
    out = []
    for page in PAGES:
        code = [(before, text) for language, before, text in blocks(page) if language == "python"]
        for number, (before, text) in enumerate(code):
            if not text.startswith(SKIPPED):
                out.append(pytest.param(page, before + text, id=f"{page.stem}-{number}"))
    return out


def mixture_of(page: Path) -> str:
    """Returns the first whole mixture file of a page, with an end."""
    whole = [text for language, _, text in blocks(page) if language == "yaml" and text.startswith("version:")]
    text = whole[0] if whole else MIXTURE
    return text if "stop:" in text else text + "stop: {steps: 2}\n"


def write_sources(mixture: Dict[str, Any], at: Path) -> None:
    """Writes small files at the paths of all sources."""
    for source in [s for part in parts(mixture) for s in part.get("sources", {}).values()]:
        path = at / source["path"].replace("*", "0")
        path.parent.mkdir(parents=True, exist_ok=True)
        if source.get("format") == "megatron":
            write_megatron(path)
            continue
        field = source.get("text", "text")
        texts = [f"document {n}: " + "the mill race turns the wheel. " * (1 + n % 7) for n in range(60)]
        path.write_text("".join(json.dumps({field: text}) + "\n" for text in texts))


def parts(mixture: Dict[str, Any]) -> List[Dict[str, Any]]:
    return [mixture, *mixture.get("streams", {}).values()]


def write_megatron(prefix: Path, documents: int = 60, length: int = 50) -> None:
    """Writes an indexed dataset of Megatron, version 1, with 16-bit ids."""
    header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, documents, documents + 1)
    sizes, offsets = array("i", [length] * documents), array("q", [2 * length * n for n in range(documents)])
    ends = array("q", range(documents + 1))
    prefix.with_name(prefix.name + ".idx").write_bytes(header + bytes(sizes) + bytes(offsets) + bytes(ends))
    ids = array("H", [n % 1000 for n in range(documents * length)])
    prefix.with_name(prefix.name + ".bin").write_bytes(bytes(ids))


def ranks_of(mixture: Dict[str, Any]) -> int:
    axes = mixture.get("parallelism", {})
    return axes.get("tp", 1) * axes.get("cp", 1) * axes.get("pp", 1)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "README.md"], ids=lambda page: page.stem)
def test_check_accepts_the_mixture_file(binary: Path, tmp_path: Path, page: Path) -> None:
    mixture = yaml.safe_load(mixture_of(page))
    write_sources(mixture, tmp_path)
    (tmp_path / "mixture.yaml").write_text(mixture_of(page))
    check = [str(binary), "check", "mixture.yaml", "--ranks", str(ranks_of(mixture))]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page, program", programs())
def test_the_block_runs_as_written(binary: Path, tmp_path: Path, page: Path, program: str) -> None:
    mixture = yaml.safe_load(mixture_of(page))
    write_sources(mixture, tmp_path)
    (tmp_path / "mixture.yaml").write_text(mixture_of(page))
    with Up(binary, tmp_path / "mixture.yaml", tmp_path / "run", 1):
        execute(program, binary, tmp_path)


def test_the_notebook_runs(binary: Path, tmp_path: Path) -> None:
    cells = json.loads((REPOSITORY / "examples" / "notebook.ipynb").read_text())["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    printed = execute(program, binary, tmp_path)
    assert "'stories': 0.7" in printed and "step 2 loss" in printed and "step 3 loss" in printed, printed


def execute(program: str, binary: Path, at: Path) -> str:
    """Runs a program in the directory `at`. Returns its output."""
    environment = {
        **os.environ,
        "MILLRACE": str(binary),
        "PYTHONPATH": os.pathsep.join([str(CLIENT), str(HERE)]),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=at, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "Traceback" not in done.stderr, f"{program}\n{done.stderr}"
    return done.stdout
