"""Kills an example again and again, resumes it on other numbers of ranks, and judges the trained microbatches."""

from __future__ import annotations

import base64
import collections
import dataclasses
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
CLIENT = REPOSITORY / "clients" / "python" / "src"
STEPS = 16
DEADLINE = 120.0  # seconds; longer than this counts as a hang

MIXTURE = """\
version: 1
seed: 17
tokenizer: {path: bytes.tiktoken, pattern: cl100k, specials: {"<|endoftext|>": 256}, eos: "<|endoftext|>"}
sequence_length: 64
global_batch_size: 16
micro_batch_size: 2
stop: {steps: %d}
mixture: {weights: {pages: 0.6, code: 0.4}}
sources:
  pages: {path: pages.jsonl}
  code: {path: code/*.jsonl}
"""

Slot = Tuple[int, int]  # step and microbatch


def write_data(at: Path) -> Path:
    """Writes two small sources, a tokenizer of bytes and the mixture file. Returns the mixture file."""
    ranks = "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256))
    (at / "bytes.tiktoken").write_text(ranks)
    words = random.Random(5)
    _write_texts(at / "pages.jsonl", [_sentence(words, 1 + int(90 * words.random() ** 2)) for _ in range(300)])
    for shard in range(2):
        texts = ["def f(x):\n    return " + " + ".join(["x"] * words.randint(1, 40)) for _ in range(150)]
        _write_texts(at / "code" / f"{shard}.jsonl", texts)
    mixture = at / "mixture.yaml"
    mixture.write_text(MIXTURE % STEPS)
    return mixture


def _sentence(words: random.Random, count: int) -> str:
    return " ".join(words.choice(["mill", "race", "water", "wheel", "turns", "the"]) for _ in range(count))


def _write_texts(path: Path, texts: Sequence[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


class Up:
    """`millrace up`, as a context manager."""

    def __init__(self, binary: Path, mixture: Path, directory: Path, ranks: int) -> None:
        self.directory = directory
        self._log = open(f"{directory}.stderr", "a+", encoding="utf-8")
        command = [str(binary), "up", str(mixture), "--ranks", str(ranks), "--run-dir", str(directory)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log, text=True,
            start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> "Up":
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready"), f"`up` printed {line!r}, and on stderr:\n{self.stderr()}"
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(DEADLINE)
        assert code in (0, 1), f"`up` ended with {code}:\n{self.stderr()}"
        self._log.close()

    def stderr(self) -> str:
        self._log.seek(0)
        return self._log.read()


@dataclasses.dataclass(frozen=True)
class Life:
    """One start of an example and how it ends: by itself, or by SIGKILL of all its processes."""

    ranks: int
    die_at: str = ""  # "step.microbatch" at which rank 0 kills itself; the others are killed at once
    kill_after: Optional[int] = None  # kill a moment after every rank has trained this step
    fresh: bool = True  # in a new run directory


# The first life ends in the middle of a step after a checkpoint, the second at any moment after another one. The third
# continues in the run directory of the second.
LIVES = (Life(2, die_at="6.1"), Life(1, kill_after=8), Life(4, fresh=False))
SHORT = (Life(2, die_at="6.1"), Life(1))


class Ordeal:
    """The lives of one example. Its checkpoints and records are in `out`; they are all that a life leaves to the next.

    `script` is an example of this folder that is called with RUN_DIR and OUT."""

    def __init__(self, binary: Path, mixture: Path, at: Path, script: str, arguments: Sequence[str] = ()) -> None:
        self.binary, self.mixture, self.at, self.script = binary, mixture, at, script
        self.arguments = list(arguments)
        self.out = at / "out"
        self.out.mkdir()
        self.lives: List[Life] = []
        self.log = at / "trainers.log"
        self._directory = at / "run"

    def run(self, lives: Sequence[Life] = LIVES) -> "Ordeal":
        for life in lives:
            self.live(life)
        return self

    def live(self, life: Life) -> None:
        """Starts `up` and the example, and returns when the life has ended as it should."""
        number = len(self.lives)
        if life.fresh or number == 0:
            self._directory = self.at / f"run-{number}"
        with Up(self.binary, self.mixture, self._directory, life.ranks):
            trainers = self._start(life, number)
            try:
                self._watch(life, number, trainers)
            finally:
                kill_tree(trainers.pid)
                trainers.wait()
        self.lives.append(life)

    def _start(self, life: Life, number: int) -> "subprocess.Popen[bytes]":
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(life.ranks)]
        command = [*torchrun, str(HERE / self.script), str(self._directory), str(self.out), *self.arguments]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(CLIENT), str(HERE)]),
            "OMP_NUM_THREADS": "1",
            "EXAMPLE_LIFE": str(number),
            "EXAMPLE_DIE_AT": life.die_at,
            # On a busy machine too, the kill comes before the end.
            "EXAMPLE_PACE": "0.15" if life.kill_after is not None else "0",
        }
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=self.at, start_new_session=True
            )

    def _watch(self, life: Life, number: int, trainers: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + DEADLINE
        if life.kill_after is not None:
            self._wait(until, trainers, lambda: self._trained(number, life.ranks) >= life.kill_after)
            time.sleep(random.random() * 0.1)
            assert trainers.poll() is None, f"the trainer ended before it was killed:\n{self.tail()}"
        elif life.die_at:
            # torchrun notices that rank 0 was killed, and ends with the other ranks.
            assert trainers.wait(DEADLINE) != 0, "the trainer was not killed"
            assert "SIGKILL" in self.tail() or "-9" in self.tail(), self.tail()
        else:
            code = trainers.wait(DEADLINE)
            assert code == 0, f"{self.script} ended with {code}:\n{self.tail()}"

    def _wait(self, until: float, trainers: "subprocess.Popen[bytes]", done: Callable[[], bool]) -> None:
        while not done():
            assert trainers.poll() is None, f"{self.script} ended early:\n{self.tail()}"
            assert time.monotonic() < until, f"{self.script} hangs:\n{self.tail()}"
            time.sleep(0.01)

    def _trained(self, number: int, ranks: int) -> int:
        """Returns the newest step that every rank of a life has recorded."""
        return min(max([r["step"] for r in self.records(number, rank)] or [-1]) for rank in range(ranks))

    def records(self, life: int, rank: int) -> List[Dict[str, Any]]:
        path = self.out / "records" / f"{life}-{rank}.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def losses(self) -> List[float]:
        """Returns the loss of each step of a single life without interruption."""
        out: Dict[int, float] = collections.defaultdict(float)
        for r in [r for rank in range(self.lives[0].ranks) for r in self.records(0, rank)]:
            out[r["step"]] += r["loss"] / r["step_loss_tokens"]
        return [out[step] for step in range(STEPS)]

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]

    # The judgement.

    def history(self) -> Dict[Slot, List[Dict[str, Any]]]:
        """Returns the microbatches behind the last weights: a life's first microbatch replaces all from there on."""
        out: Dict[Slot, List[Dict[str, Any]]] = {}
        for number, life in enumerate(self.lives):
            records = [r for rank in range(life.ranks) for r in self.records(number, rank)]
            if not records:
                continue
            start = min((r["step"], r["microbatch"]) for r in records)
            assert not out or start <= next_slot(out), f"life {number} began at {start}: steps before it are lost"
            out = {slot: r for slot, r in out.items() if slot < start}
            for r in records:
                out.setdefault((r["step"], r["microbatch"]), []).append(r)
        return out

    def judge(self, losses: Sequence[float], tolerance: float = 1e-7) -> None:
        """Fails unless every step was trained once, whole, with the planned content and the losses of an
        uninterrupted run."""
        history, plan = self.history(), planned(self.binary, self.mixture)
        steps: Dict[int, List[Dict[str, Any]]] = collections.defaultdict(list)
        for (step, _), records in sorted(history.items()):
            steps[step] += records
        assert list(steps) == list(range(STEPS)), f"trained steps {list(steps)}, planned are 0..{STEPS}"
        for step, records in steps.items():
            slots = sorted((r["rank"], r["microbatch"]) for r in records)
            ranks = 1 + max(rank for rank, _ in slots)
            whole = [(rank, m) for rank in range(ranks) for m in range(records[0]["num_microbatches"])]
            assert slots == whole, f"step {step}: trained (rank, microbatch) {slots}, planned {whole}"
            assert content(records) == plan[step], f"step {step} has other content than planned"
            loss = sum(r["loss"] for r in records) / records[0]["step_loss_tokens"]
            assert math.isfinite(loss), f"step {step}: the loss is {loss}"
            assert math.isclose(loss, losses[step], rel_tol=tolerance), (
                f"step {step}: loss {loss}, without interruption {losses[step]}"
            )


def next_slot(history: Dict[Slot, Any]) -> Slot:
    (step, microbatch), records = max(history.items())
    return (step, microbatch + 1) if microbatch + 1 < records[0]["num_microbatches"] else (step + 1, 0)


def content(records: Sequence[Dict[str, Any]]) -> str:
    """Returns the content digest of the segments that the records hold. A segment that came twice is a failure."""
    import millrace

    segments = [millrace.Segment(*s) for r in records for s in r["segments"]]
    keys = [(s.source, s.ordinal, s.offset) for s in segments]
    assert len(keys) == len(set(keys)), "a segment was trained twice in a step"
    return millrace.content_digest(segments)


def planned(binary: Path, mixture: Path) -> Dict[int, str]:
    """Returns the content digest of each step, by `millrace plan`."""
    command = [str(binary), "plan", str(mixture), "--steps", f"0..{STEPS}", "--json"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {step["step"]: step["content_digest"] for step in map(json.loads, out.splitlines())}


def uninterrupted(
    binary: Path,
    mixture: Path,
    at: Path,
    make: Optional[Callable[[], Any]] = None,
    logits: Optional[Callable[[Any, Any], Any]] = None,
) -> List[float]:
    """Trains on one rank in this process without interruption. Returns the loss of each step.

    `make` makes the model, by default that of model.py, and `logits(model, batch)` calls it."""
    import millrace
    from model import loss_sum, make_model, make_optimizer

    model = (make or make_model)()
    optimizer = make_optimizer(model)
    losses: Dict[int, float] = collections.defaultdict(float)
    with Up(binary, mixture, at / "uninterrupted", 1) as up:
        with millrace.connect(str(up.directory), tensors="torch", start="fresh") as loader:
            for batch in loader:
                tensors = (batch["tokens"], batch["position_ids"], batch["segment_ids"])
                out = logits(model, batch) if logits else model(*tensors)
                loss = loss_sum(out, batch["labels"]) / batch.step_loss_tokens
                loss.backward()
                losses[batch.step] += loss.item()
                if batch.microbatch == batch.num_microbatches - 1:
                    optimizer.step()
                    optimizer.zero_grad()
    assert list(losses) == list(range(STEPS)) and losses[STEPS - 1] < losses[0] - 0.5, "the model does not learn"
    return [losses[step] for step in range(STEPS)]


def kill_tree(pid: int) -> None:
    """Kills a process and all its descendants with SIGKILL, the descendants first known."""
    found: List[int] = list(_descendants(pid, set()))
    for one in [pid, *found]:
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended


def _descendants(pid: int, seen: Set[int]) -> Iterator[int]:
    for children in Path("/proc", str(pid)).glob("task/*/children"):
        try:
            pids = [int(child) for child in children.read_text().split()]
        except OSError:
            continue
        for child in pids:
            if child not in seen:
                seen.add(child)
                yield child
                yield from _descendants(child, seen)


def find_binary(at: Path) -> Path:
    """Returns the program under test: MILLRACE, or a fresh build."""
    if "MILLRACE" in os.environ:
        return Path(os.environ["MILLRACE"])
    go = shutil.which("go") or "/usr/local/go/bin/go"
    subprocess.run([go, "build", "-o", str(at / "millrace"), "./cmd/millrace"], cwd=REPOSITORY, check=True)
    return at / "millrace"
