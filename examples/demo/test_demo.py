"""Tests of the demo in its quick size, and of the model's derivatives."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
sys.path.insert(0, str(HERE))

import charts  # noqa: E402
import model_numpy  # noqa: E402
import vocabulary  # noqa: E402
from model import IGNORED, Shape  # noqa: E402

DEADLINE = 400.0  # seconds, for a demo that takes 40 on an idle machine
STEPS = 60  # of the quick demo


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The binary under test: $MILLRACE, or built from this tree."""
    if "MILLRACE" in os.environ:
        return Path(os.environ["MILLRACE"]).resolve()
    out = tmp_path_factory.mktemp("binary") / "millrace"
    subprocess.run(
        [shutil.which("go") or "/usr/local/go/bin/go", "build", "-o", str(out), "./cmd/millrace"],
        cwd=REPOSITORY,
        check=True,
    )
    return out


def command(binary: Path, place: Path) -> List[str]:
    return [
        sys.executable,
        str(HERE / "demo.py"),
        "--quick",
        "--model",
        "numpy",
        "--dir",
        str(place),
        "--binary",
        str(binary),
    ]


def processes(place: Path) -> List[str]:
    """Returns the processes with the directory in their command line or with its files open."""
    out = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            line = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            files = [str(f.readlink()) for f in (proc / "fd").iterdir()]
        except OSError:
            continue
        if str(place) in line or any(f.startswith(str(place)) for f in files):
            out.append(f"{proc.name}: {line}")
    return out


def test_demo_runs_to_its_end(binary: Path, tmp_path: Path) -> None:
    place, picture = tmp_path / "demo", tmp_path / "picture.svg"
    done = subprocess.run(
        [*command(binary, place), "--picture", str(picture)], capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert re.search(r">> kill -9 \d+, the loader loader-\d", done.stdout)
    assert re.search(r">> shadow-0, its shadow, is the loader now", done.stdout)
    assert "6 steps came twice, on 2 ranks before the stop and on 1 after it, with equal content" in done.stdout
    assert "all 66 content digests are those that `millrace plan` names" in done.stdout
    assert processes(place) == []
    assert list(place.rglob("*.sock")) == []

    page = (place / "report.html").read_text()
    (steps,) = map(json.loads, re.findall(r"^const steps = (.*);$", page, re.M))
    assert [s["step"] for s in steps] == list(range(STEPS))
    assert sum(s["loss"] for s in steps[-5:]) < 0.85 * sum(s["loss"] for s in steps[:5])
    assert page.count('class="chart"') == 5 and page.count(">equal<") == 6 and ">differ<" not in page
    assert "{{" not in page
    assert not re.search(r'(src|href)=|@import|https?://(?!www\.w3\.org/2000/svg")', page), (
        "the page loads another file"
    )
    assert picture.stat().st_size < 150_000


def obey_interrupts() -> None:
    """Gives SIGINT its default action. A shell ignores SIGINT in background commands, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interrupted_demo_leaves_nothing(binary: Path, tmp_path: Path) -> None:
    place = tmp_path / "demo"
    demo = subprocess.Popen(
        command(binary, place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=obey_interrupts
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if "kill -9" in line:
            break
    demo.send_signal(signal.SIGINT)
    _, said = demo.communicate(timeout=DEADLINE)
    assert demo.returncode == 130
    assert said.splitlines()[-1] == "demo: interrupted; all its processes were stopped"  # long waits come before
    assert processes(place) == []


def test_other_files_stay(binary: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    done = subprocess.run(command(binary, tmp_path), capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 1
    assert "holds something else" in done.stderr and "Traceback" not in done.stderr
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


SHAPE = Shape(vocabulary=40, context=16, width=16, heads=4, blocks=2)


def batch() -> Dict[str, "np.ndarray"]:
    """Returns two rows. Each has a segment of 9 columns, one of 5, and padding."""
    rng = np.random.default_rng(1)
    columns = np.r_[0:9, 0:5, 0, 0]
    out = {
        "tokens": rng.integers(0, SHAPE.vocabulary, (2, 16)),
        "labels": rng.integers(0, SHAPE.vocabulary, (2, 16)),
        "position_ids": np.stack([columns, columns]),
        "segment_ids": np.repeat([[1] * 9 + [2] * 5 + [0, 0]], 2, axis=0).astype(np.int32),
    }
    out["labels"][:, [8, 13, 14, 15]] = IGNORED
    out["loss_mask"] = (out["labels"] != IGNORED).astype(np.float32)
    return out


def loss(weights: "np.ndarray", b: Dict[str, "np.ndarray"]) -> float:
    return model_numpy.Model(SHAPE, weights, np.zeros_like(weights)).accumulate(b)[0]


def test_derivatives_are_differences() -> None:
    weights = SHAPE.first_weights().astype(np.float64)
    gradient = np.zeros_like(weights)
    _, labels = model_numpy.Model(SHAPE, weights, gradient).accumulate(batch())
    assert labels == 24
    rng = np.random.default_rng(2)
    for name, view in SHAPE.views(weights).items():
        for _ in range(5):
            at = tuple(rng.integers(0, n) for n in view.shape)
            was = view[at]
            view[at] = was + 1e-5
            more = loss(weights, batch())
            view[at] = was - 1e-5
            less = loss(weights, batch())
            view[at] = was
            assert SHAPE.views(gradient)[name][at] == pytest.approx((more - less) / 2e-5, rel=1e-5, abs=1e-6), (
                name,
                at,
            )


@pytest.mark.parametrize("column, reaches", [(0, 1), (12, 2), (14, 0)])
def test_no_segment_sees_another(column: int, reaches: int) -> None:
    """A changed token changes the loss of its own segment only."""
    weights = SHAPE.first_weights().astype(np.float64)
    for segment in (1, 2):
        b = batch()
        b["loss_mask"] *= b["segment_ids"] == segment
        before = loss(weights, b)
        b["tokens"][:, column] = (b["tokens"][:, column] + 1) % SHAPE.vocabulary
        assert (loss(weights, b) != before) == (segment == reaches)


def test_vocabulary_learns_the_most_frequent_pairs() -> None:
    tokens = vocabulary.learn(["abab", "abab", "abab abab"], 259)
    assert tokens[:256] == [bytes([i]) for i in range(256)]
    assert tokens[256:] == [b"ab", b"abab", b" abab"]
    assert len(set(vocabulary.learn([Path(__file__).read_text()], 600))) == 600


@pytest.mark.parametrize("low, high", [(0, 1), (0, 319), (4.2, 7.9), (83, 100), (0, 0.004)])
def test_ticks_cover_what_they_mark(low: float, high: float) -> None:
    marks = charts.ticks(low, high, 5)
    assert marks[0] <= low and marks[-1] >= high and 2 <= len(marks) <= 8
