"""Runs a paced training for a long time beside other load and checks that nothing grows.

    make endurance [MINUTES=60] [SOURCES=1000] [LOAD=0]

Half of the sources are zstd JSONL, half Megatron pairs. A policy changes the weights of all sources every 100 steps
from reported losses. Each rank checks that its steps follow each other. Every few seconds the driver notes memory,
descriptors and threads of all roles, and the size of the run directory. LOAD starts so many spinning processes beside
the run. The run passes if every rank receives its steps and no role is replaced. A run of more than 5,000 steps must
also have these:

- memory, descriptors and threads of the last quarter are those of the second one
- the run directory grows by at most 700 bytes a step
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import corpus  # noqa: E402
from forks import processes  # noqa: E402
from harness import Run, write_mixture  # noqa: E402
from trainer import millrace  # noqa: E402
from weigh import Scale  # noqa: E402

STEP_BYTES = 700  # the growth of a run directory for each step, at most: a step names some 60 sources here
LONG = 5_000  # steps; in shorter runs neither the heaps nor the journal's logs have reached their size
STEP, DISK = "step", "run directory, bytes"
GROWTH = 1.05  # the last quarter beside the second one, at most
SLACK = {"PSS, MiB": 8, "descriptors": 4, "threads": 6}  # the noise of small runs


@dataclasses.dataclass
class Course:
    """The figures of a run, one of each list for each measurement."""

    figures: Dict[str, List[float]] = dataclasses.field(default_factory=dict)
    load: List[float] = dataclasses.field(default_factory=list)
    replaced: int = 0
    wrong: List[str] = dataclasses.field(default_factory=list)

    def quarter(self, name: str, which: int) -> float:
        values = self.figures[name]
        return statistics.median(values[which * len(values) // 4 : (which + 1) * len(values) // 4])

    def step_bytes(self) -> float:
        """The growth of the run directory for each step, between the medians of the second and the last quarter."""
        bytes_, steps = (self.quarter(name, 3) - self.quarter(name, 1) for name in (DISK, STEP))
        return bytes_ / max(steps, 1)

    def hear(self, pipes: List[Any], last: List[int]) -> bool:
        """Reads the messages of the trainers into `last`. It is false after a wrong one."""
        for rank, pipe in enumerate(pipes):
            while pipe.poll():
                told = pipe.recv()
                if isinstance(told, int):
                    last[rank] = told
                else:
                    self.wrong.append(f"rank {rank}: {told}")
                    return False
        return True

    def note(self, scale: Scale, step: int, disk: int) -> None:
        self.load.append(os.getloadavg()[0])
        now = {STEP: step, DISK: disk, "PSS, MiB": scale.totals[-1] / 2**20, "descriptors": scale.fds[-1]}
        now["threads"] = scale.threads[-1]
        for name, value in now.items():
            self.figures.setdefault(name, []).append(value)

    def judge(self) -> None:
        if self.replaced:
            self.wrong.append(f"{self.replaced} roles were replaced, though none had died")
        is_long = self.quarter(STEP, 3) > LONG
        for name, slack in SLACK.items() if is_long else ():
            before, after = self.quarter(name, 1), self.quarter(name, 3)
            if after > before * GROWTH + slack:
                self.wrong.append(f"{name} grew from {before:.0f} to {after:.0f}")
        if is_long and self.step_bytes() > STEP_BYTES:
            self.wrong.append(f"the run directory grew by {self.step_bytes():.0f} bytes a step")

    def table(self) -> str:
        rows = ["| | quarter 1 | 2 | 3 | 4 |", "|---|---|---|---|---|"]
        for name in self.figures:
            rows.append(f"| {name} | " + " | ".join(f"{self.quarter(name, q):.0f}" for q in range(4)) + " |")
        rows.append(
            f"{self.figures[STEP][-1]:.0f} steps, {self.step_bytes():.0f} bytes of run directory a step, "
            f"{self.replaced} roles replaced, load average {min(self.load):.0f} to {max(self.load):.0f}"
        )
        return "\n".join(rows)


def write_sources(at: Path, count: int) -> Dict[str, Any]:
    """Writes small sources of real text and of random tokens, in turns."""
    texts, documents = corpus.mixed_texts(5, 400, 60), corpus.token_documents(6, 400, 900, 50000)
    sources: Dict[str, Any] = {}
    for n in range(count):
        name, first = f"s{n:04}", n * 37 % 340
        if n % 2:
            corpus.write_megatron(at / name / "corpus", documents[first : first + 60], "u2")
            sources[name] = {"format": "megatron", "path": str(at / name / "corpus")}
        else:
            corpus.write_jsonl(at / name / "0.jsonl.zst", texts[first : first + 60])
            sources[name] = {"path": str(at / name / "*.zst")}
    return sources


def mixture(sources: Dict[str, Any]) -> Dict[str, Any]:
    return {
        "version": 1,
        "tokenizer": {"name": "gpt2"},
        "sequence_length": 512,
        "global_batch_size": 32,
        "micro_batch_size": 8,
        "mixture": {"weights": {name: 1 + n % 5 for n, name in enumerate(sources)}},
        "adaptive": {"policy": "odm", "every": 100, "warmup": 10, "floor": 0.0002},
        "sources": sources,
    }


def train(pipe: Any, socket: str, pause: float) -> None:
    """Takes batches and reports losses. After each step it sends the step's number, or a text if it was wrong."""
    try:
        expected, loader = 0, millrace.connect(socket, tensors="numpy")
        for batch in loader:
            if batch.step != expected:
                raise AssertionError(f"step {batch.step} came, want {expected}")
            losses: Dict[str, Tuple[float, int]] = {}
            for s in batch.segments:
                total, tokens = losses.get(s.source, (0.0, 0))
                losses[s.source] = total + s.length * loss(s.source, batch.step), tokens + s.length
            loader.report_losses(batch.step, losses)
            if batch.microbatch == batch.num_microbatches - 1:
                pipe.send(expected)
                expected += 1
                del batch
                time.sleep(pause)
        pipe.send("the stream ended")
    except BaseException as e:
        pipe.send(f"{type(e).__name__}: {e}")


def loss(source: str, step: int) -> float:
    """A loss that differs between sources and changes every 50 steps, so that weights never settle."""
    return 2 + (int(source[1:]) * 31 + step // 50) % 7 / 4


def start(socket: str, pause: float) -> Any:
    """Starts a rank's trainer and returns the pipe of its messages."""
    ours, theirs = processes().Pipe(duplex=False)
    processes().Process(target=train, args=(theirs, socket, pause), daemon=True).start()
    theirs.close()
    return ours


def disk(directory: Path) -> int:
    """The space that the files of a directory take, in bytes."""
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_blocks * 512 if path.is_file() else 0
    return total


@contextlib.contextmanager
def spinning(count: int) -> Iterator[None]:
    """Runs so many processes that never wait."""
    children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


@dataclasses.dataclass
class Ordeal:
    """The settings of a run."""

    binary: Path
    at: Path
    minutes: float = 60
    sources: int = 1000
    load: int = 0
    ranks: int = 2
    pause: float = 0.3  # seconds of training for each step

    def measure(self) -> Course:
        """Trains for `minutes` from the first step on."""
        mix = write_mixture(self.at, mixture(write_sources(self.at / "data", self.sources)))
        course = Course()
        with Run(self.binary, mix, self.at / "run", self.ranks) as run, spinning(self.load):
            pipes = [start(socket, self.pause) for socket in run.sockets()]
            last, scale = [0] * self.ranks, Scale(run)
            while not min(last) and course.hear(pipes, last):
                time.sleep(0.1)
            until = time.monotonic() + 60 * self.minutes
            first = set(roles(run))
            while time.monotonic() < until and course.hear(pipes, last):
                time.sleep(max(0.25, self.minutes / 12))
                scale.weigh()
                course.note(scale, min(last), disk(run.directory))
            course.replaced = len(scale.seen - first)
            print(run.stderr(), file=sys.stderr)
        course.judge()
        return course


def roles(run: Run) -> List[int]:
    return [r["pid"] for r in json.loads((run.directory / "run" / "roles.json").read_text())]


def main(arguments: List[str]) -> int:
    p = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    p.add_argument("--millrace", type=Path, required=True, help="the binary")
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--sources", type=int, default=1000)
    p.add_argument("--load", type=int, default=0, help="spinning processes beside the run")
    p.add_argument("--pause", type=float, default=0.3, help="seconds of training for each step")
    a = p.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="endurance-") as at:
        ordeal = Ordeal(a.millrace.resolve(), Path(at), a.minutes, a.sources, a.load, pause=a.pause)
        course = ordeal.measure()
    print(course.table())
    for wrong in course.wrong:
        print(f"failed: {wrong}")
    return 1 if course.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
