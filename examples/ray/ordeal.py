"""A training on Ray whose batches are recorded, and the judge of the records."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Dict, List, Tuple

Slot = Tuple[int, int, int]  # step, rank, microbatch
PAUSE = 0.05  # seconds of a step, unless `Pace` says another one
EVERY = 10  # steps between two checkpoints

MIXTURE: Dict[str, Any] = {
    "version": 1,
    "seed": 5,
    "tokenizer": {"name": "gpt2"},
    "sequence_length": 128,
    "global_batch_size": 8,
    "micro_batch_size": 1,
    "stop": {"steps": 400},
    "mixture": {"weights": {"book": 0.7, "notes": 0.3}},
    "sources": {"book": {"path": "book.jsonl"}, "notes": {"path": "notes.jsonl"}},
}


class Pace:
    """The seconds of a step and the last step, in a file that all workers read."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "pace"

    def set(self, pause: float, last: int = -1) -> None:
        """`last`: the training ends after this step; -1: it does not."""
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps([pause, last]))
        fresh.replace(self._path)

    def get(self) -> Tuple[float, int]:
        if not self._path.exists():
            return PAUSE, -1
        pause, last = json.loads(self._path.read_text())
        return pause, last


def write_data(directory: Path) -> Path:
    """Write the sources and the mixture file. Return the path of the file."""
    for name, count in (("book", 9000), ("notes", 4000)):
        with open(directory / f"{name}.jsonl", "w") as out:
            for i in range(count):
                out.write(json.dumps({"text": f"line {i} of {name}. " * (1 + i % 37)}) + "\n")
    path = directory / "mixture.yaml"
    path.write_text(json.dumps(MIXTURE))
    return path


def of_one_host(path: Path, world: int) -> Dict[Slot, str]:
    """The digest of every batch of a run with all ranks on this host, without Ray."""
    import millrace

    out: Dict[Slot, str] = {}

    def read(rank: int) -> None:
        with run.connect(rank, tensors="numpy") as loader:
            for b in loader:
                out[b.step, rank, b.microbatch] = b.digest

    with millrace.launch(path, ranks=world) as run:
        threads = [threading.Thread(target=read, args=(rank,)) for rank in range(world)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    return out


def train(config: Dict[str, Any]) -> None:
    """The loop of a worker of Ray Train. Each life of a worker writes a file with a line for each batch."""
    import ray.train

    import millrace.ray

    context = ray.train.get_context()
    rank, records = context.get_world_rank(), Path(config["records"])
    checkpoint = ray.train.get_checkpoint()
    loader = millrace.ray.connect(config["run"], tensors="numpy")
    millrace.ray.restore(loader, checkpoint)
    node = ray.get_runtime_context().get_node_id()
    with open(records / f"{time.time():.3f}-{rank}-{uuid.uuid4().hex[:6]}", "w", buffering=1) as out:
        head = {"rank": rank, "node": node, "pid": os.getpid(), "resumed": checkpoint is not None}
        out.write(json.dumps(head) + "\n")
        for b in loader:
            out.write(json.dumps([b.step, b.microbatch, b.digest]) + "\n")
            if b.microbatch < b.num_microbatches - 1:
                continue
            pause, last = Pace(records.parent).get()
            time.sleep(pause)
            if b.step == last:
                break
            if b.step % EVERY != EVERY - 1:
                continue
            with tempfile.TemporaryDirectory() as directory:
                millrace.ray.save(b, directory)
                given = ray.train.Checkpoint.from_directory(directory) if rank == 0 else None
                ray.train.report({"step": b.step}, checkpoint=given)
    loader.close()


class Life:
    """A life of a worker, by its record."""

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        head = lines[0] if lines else {"rank": -1, "node": "", "pid": 0, "resumed": False}
        self.began = float(path.name.split("-")[0])
        self.rank, self.node, self.pid, self.resumed = (head[k] for k in ("rank", "node", "pid", "resumed"))
        self.batches: List[Tuple[int, int, str]] = [tuple(line) for line in lines[1:]]


def lives(records: Path) -> List[Life]:
    return sorted((Life(p) for p in records.iterdir()), key=lambda life: life.began)


def step_of(records: Path, since: float = 0.0) -> int:
    """The last step that every rank has begun in lives since a time; -1: none."""
    last: Dict[int, int] = {}
    for life in lives(records):
        if life.began >= since and life.batches:
            last[life.rank] = life.batches[-1][0]
    ranks = {life.rank for life in lives(records) if life.rank >= 0}
    return min(last.values()) if ranks and set(last) == ranks else -1


def judge(records: Path, golden: Dict[Slot, str], world: int) -> Dict[str, int]:
    """Count the batches that trainers lost, received twice, or received with other bytes than those of one host.

    A life that begins behind a checkpoint replaces what earlier lives of its rank trained after that checkpoint."""
    lost = twice = differing = 0
    for rank in range(world):
        wanted = sorted((step, micro) for step, r, micro in golden if r == rank)
        trained: List[Tuple[int, int]] = []
        for life in (life for life in lives(records) if life.rank == rank):
            slots = [(step, micro) for step, micro, _ in life.batches]
            differing += sum(golden.get((step, rank, micro)) != digest for step, micro, digest in life.batches)
            if not slots:
                continue
            if life.resumed:
                assert slots[0][0] % EVERY == 0 and slots[0][1] == 0, f"rank {rank} resumed at {slots[0]}"
                trained = [slot for slot in trained if slot < slots[0]]
            else:
                assert slots[0] == (0, 0), f"rank {rank} began at {slots[0]}"
                trained = []
            trained += slots
        twice += len(trained) - len(set(trained))
        lost += len(set(wanted) - set(trained))
        assert trained == sorted(trained), f"rank {rank} received batches in another order"
    return {"lost": lost, "duplicated": twice, "differing": differing}
