"""`millrace.launch`: `up` lives as long as the process that launched it wants it, and no longer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from harness import DEADLINE, processes_of

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "clients/python/src"))

import millrace  # noqa: E402

MIXTURE: Dict[str, Any] = {
    "version": 1,
    "seed": 3,
    "tokenizer": {"name": "gpt2"},
    "sequence_length": 128,
    "global_batch_size": 4,
    "micro_batch_size": 2,
    "stop": {"epochs": 1},
    "mixture": {"weights": {"book": 1}},
    "sources": {"book": {"path": "text.jsonl"}},
}


@pytest.fixture
def place(binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a small dataset."""
    with open(tmp_path / "text.jsonl", "w") as out:
        for i in range(100):
            out.write(json.dumps({"text": f"page {i} of a small book, " * 10}) + "\n")
    monkeypatch.setenv("MILLRACE", str(binary))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def script(place: Path, text: str) -> "subprocess.Popen[str]":
    """A process that launches a run as `run`, and then executes text."""
    program = f"import json, os, sys, time, millrace\nrun = millrace.launch(json.loads({json.dumps(MIXTURE)!r}))\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}
    return subprocess.Popen(
        [sys.executable, "-c", program + text], cwd=place, env=environment, stdout=subprocess.PIPE, text=True
    )


def until_gone(run_dir: Path, within: float = DEADLINE) -> None:
    deadline = time.monotonic() + within
    while processes_of(run_dir):
        assert time.monotonic() < deadline, f"processes are left: {processes_of(run_dir)}"
        time.sleep(0.05)


def test_a_dict_is_served_to_its_ranks(place: Path) -> None:
    with millrace.launch(MIXTURE, ranks=2) as run:
        assert len(processes_of(Path(run.run_dir))) > 2
        batches: List[List[Any]] = [[], []]

        def read(rank: int) -> None:
            with run.connect(rank, tensors="numpy") as loader:
                batches[rank] = [(b.step, [s.id for s in b.segments]) for b in loader]

        threads = [threading.Thread(target=read, args=(rank,)) for rank in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(DEADLINE)
        with pytest.raises(ValueError, match="the ranks 0 to 1"):
            run.connect(2)
    ids = {i for rank in batches for _, segments in rank for i in segments}
    assert ids == {f"text.jsonl#{i}" for i in range(100)}
    assert not processes_of(Path(run.run_dir)) and not Path(run.run_dir).exists()
    with pytest.raises(RuntimeError, match="is closed"):
        run.connect(0)
    run.close()  # again


def test_a_file_and_a_run_directory_go_on_at_the_next_launch(place: Path) -> None:
    mixture = place / "mixture.json"
    mixture.write_text(json.dumps(MIXTURE))
    steps, state = [], None
    for _ in range(2):
        with millrace.launch(mixture, run_dir=place / "runs/a") as run:
            with run.connect(tensors="numpy") as loader:
                if state is not None:
                    loader.load_state_dict(state)
                for batch in loader:
                    steps.append((batch.step, batch.microbatch))
                    state = batch.state_dict()
                    if (batch.step + 1) % 3 == 0 and batch.microbatch == 1:
                        break
    assert (place / "runs/a").is_dir() and steps == [(s, m) for s in range(6) for m in (0, 1)]


def test_a_wrong_mixture_is_named_with_its_place(place: Path) -> None:
    with pytest.raises(ValueError, match=r"standard input:7:21: .sequence_length(.|\n)*\^\^"):
        millrace.launch({**MIXTURE, "sequence_length": -1})
    (place / "wrong.yaml").write_text("version: 1\nseed: x\n")
    with pytest.raises(ValueError, match=r"wrong.yaml:2:7: "):
        millrace.launch("wrong.yaml", run_dir=place / "wrong")
    assert not list(place.glob("millrace-*")), "a temporary directory is left"


def test_a_run_that_cannot_start_is_a_run_error(place: Path) -> None:
    with millrace.launch(MIXTURE, run_dir=place / "a"):
        with pytest.raises(millrace.RunError, match="another"):
            millrace.launch(MIXTURE, run_dir=place / "a")


def test_a_missing_program_is_named_with_the_cure(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE", str(place / "none"))
    with pytest.raises(FileNotFoundError, match="MILLRACE="):
        millrace.launch(MIXTURE)
    monkeypatch.delenv("MILLRACE")
    monkeypatch.setenv("PATH", str(place))
    with pytest.raises(FileNotFoundError, match="install a wheel of millrace-loader"):
        millrace.launch(MIXTURE)


def test_a_run_outlives_the_thread_that_launched_it(place: Path) -> None:
    runs: List[Any] = []
    launching = threading.Thread(target=lambda: runs.append(millrace.launch(MIXTURE)))
    launching.start()
    launching.join(DEADLINE)
    time.sleep(0.5)
    with runs[0] as run, run.connect(tensors="numpy") as loader:
        assert next(loader).step == 0


def test_an_interrupt_of_the_process_group_spares_the_run(place: Path) -> None:
    with millrace.launch(MIXTURE) as run:
        assert all(os.getsid(pid) != os.getsid(0) for pid in processes_of(Path(run.run_dir)))


def test_the_end_of_the_interpreter_ends_the_run(place: Path) -> None:
    process = script(place, "print(run.run_dir, flush=True)\nnext(run.connect())\nraise SystemExit(7)")
    run_dir = Path(process.stdout.readline().strip())
    assert process.wait(DEADLINE) == 7
    assert not processes_of(run_dir) and not run_dir.exists()


def test_a_killed_process_takes_its_run_with_it(place: Path) -> None:
    """Also while a process that it has forked lives on."""
    process = script(
        place,
        "child = os.fork()\n"
        "if child == 0:\n"
        "    run.close()\n"  # does nothing here
        "    time.sleep(600)\n"
        "print(run.run_dir, child, flush=True)\ntime.sleep(600)",
    )
    run_dir, child = process.stdout.readline().split()
    try:
        assert len(processes_of(Path(run_dir))) > 2
        process.send_signal(signal.SIGKILL)
        process.wait()
        os.kill(int(child), 0)  # it lives
        until_gone(Path(run_dir))
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_trainers_wait_for_the_next_launch_after_a_killed_one(place: Path) -> None:
    """The trainer of another process than the killed one goes on with the next batch. It learns of no end."""
    directory = place / "kept"
    text = f"run = millrace.launch(json.loads({json.dumps(MIXTURE)!r}), run_dir={str(directory)!r})\n"
    text = f"run.close()\n{text}print(1, flush=True)\ntime.sleep(600)"
    first = script(place, text)
    assert first.stdout.readline()
    with millrace.connect(str(directory / "rank-0.sock"), tensors="numpy", patience=DEADLINE) as loader:
        batches: List[Any] = []

        def train() -> None:
            for b in loader:
                batches.append((b.step, b.microbatch))
                time.sleep(0.05)

        trainer = threading.Thread(target=train)
        trainer.start()
        while len(batches) < 3:
            time.sleep(0.01)
        first.kill()
        first.wait()
        until_gone(directory)
        before = len(batches)
        second = script(place, text)
        try:
            trainer.join(DEADLINE)
        finally:
            second.kill()
            second.wait()
    assert batches == [(i // 2, i % 2) for i in range(len(batches))] and len(batches) > max(20, before)
    until_gone(directory)
