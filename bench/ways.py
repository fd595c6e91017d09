"""One way to hand batches to a trainer, measured in a process of its own (bench/delivery.py starts it).

    python bench/ways.py millrace --size 16777216 --server FILE --seconds 2
    python bench/ways.py DataLoader --sharing file_system --workers 2 --size 1048576 --tensors 5

Every baseline makes a batch by torch's default_collate of eight rows that lie ready in memory: one copy, the least that
a loader of real data does. Millrace is the real sidecar over a synthetic run: it builds five tensors of each batch from
token ids, and plans, seals and pushes all the time. It prints its figures as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "clients" / "python" / "src"), str(ROOT / "bench")]

import numpy as np  # noqa: E402
from processes import cpu_seconds, family, pss_mib  # noqa: E402

BYTES_PER_TOKEN = 8 + 8 + 8 + 4 + 4  # tokens, labels, position_ids, segment_ids, loss_mask
ROWS = 8


def rows(a: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns eight samples of a batch, as torch tensors."""
    import torch

    n = a.size // a.tensors // ROWS // 8
    whole = {f"t{i}": torch.arange(ROWS * n, dtype=torch.int64).reshape(ROWS, n) for i in range(a.tensors)}
    return [{name: tensor[i] for name, tensor in whole.items()} for i in range(ROWS)]


def collated(a: argparse.Namespace) -> Iterator[dict[str, Any]]:
    import torch

    torch.set_num_threads(1)
    samples = rows(a)
    while True:
        yield torch.utils.data.default_collate(samples)


def serve(server: str, size: int, directory: str, *more: str) -> subprocess.Popen[str]:
    length = 2048 if size >= 1 << 20 else 512
    process = subprocess.Popen(
        [server, "--dir", directory, "--quiet", "--same-step", "--microbatches", "16", "--length", str(length),
         "--rows", str(max(size // BYTES_PER_TOKEN // length, 1)), *more], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def millrace_batches(a: argparse.Namespace) -> Iterator[Any]:
    import millrace

    with tempfile.TemporaryDirectory() as made:
        process = None if a.socket else serve(a.server, a.size, made)
        try:
            with millrace.connect(a.socket or f"{made}/rank-0.sock", tensors=a.kind, start="fresh") as loader:
                yield from loader
        finally:
            if process is not None:
                process.send_signal(signal.SIGINT)
                process.wait()


def torch_batches(a: argparse.Namespace) -> Iterator[Any]:
    import torch

    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return collated(a)

    torch.multiprocessing.set_sharing_strategy(a.sharing)
    yield from torch.utils.data.DataLoader(Rows(), batch_size=None, num_workers=a.workers, prefetch_factor=2)


def spdl_batches(a: argparse.Namespace) -> Iterator[Any]:
    """SPDL's threads in the trainer's process: batches need no way to another process."""
    import torch
    from spdl.pipeline import PipelineBuilder

    torch.set_num_threads(1)
    samples = rows(a)

    def endless() -> Iterator[Any]:
        while True:
            yield samples

    pipeline = (
        PipelineBuilder()
        .add_source(endless())
        .pipe(torch.utils.data.default_collate, concurrency=a.workers, output_order="input")
        .add_sink(2 * a.workers)
        .build(num_threads=a.workers)
    )
    with pipeline.auto_stop():
        yield from pipeline.get_iterator()


def ray_batches(a: argparse.Namespace) -> Iterator[Any]:
    """An actor puts batches into Ray's object store, two ahead; the trainer gets views of shared memory."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=max(16 * a.size, 256 << 20))

    @ray.remote(num_cpus=0)
    class Maker:
        def __init__(self) -> None:
            self.batches = collated(a)

        def make(self) -> Any:
            return {name: tensor.numpy() for name, tensor in next(self.batches).items()}

    maker = Maker.remote()
    ahead = [maker.make.remote() for _ in range(3)]
    try:
        while True:
            ahead.append(maker.make.remote())
            yield ray.get(ahead.pop(0))
    finally:
        ray.shutdown()


PORTS = (45551, 45552, 45553, 45554)


def _tensorsocket_producer(a: argparse.Namespace) -> None:
    from tensorsocket import TensorProducer

    class Loader:
        def __len__(self) -> int:
            return 1 << 30

        def __iter__(self) -> Iterator[Any]:
            return (tuple(batch.values()) for batch in collated(a))

    producer = TensorProducer(
        Loader(), PORTS[0], PORTS[1], (PORTS[2], PORTS[3]), rubber_band_pct=0, producer_batch_size=2
    )
    for _ in producer:
        pass


def tensorsocket_batches(a: argparse.Namespace) -> Iterator[Any]:
    from tensorsocket import TensorConsumer

    process = mp.get_context("spawn").Process(target=_tensorsocket_producer, args=(a,), daemon=True)
    process.start()
    try:
        for batch in TensorConsumer(PORTS[0], PORTS[1], (PORTS[2], PORTS[3]), batch_size=ROWS):
            yield dict(enumerate(batch))
    finally:
        process.kill()


WAYS = {
    "millrace": millrace_batches, "DataLoader": torch_batches, "SPDL": spdl_batches, "Ray": ray_batches,
    "TensorSocket": tensorsocket_batches,
}  # fmt: skip


class Use:
    """The trainer's use of a batch: none, or a copy of every tensor into memory of its own, which it uses again."""

    def __init__(self, kind: str) -> None:
        self._copies = kind == "copy"
        self._own: dict[Any, Any] = {}

    def __call__(self, batch: Any) -> None:
        if not self._copies:
            next(iter(batch.values()))
            return
        for name, tensor in batch.items():
            own = self._own.get(name)
            if own is None or own.shape != tensor.shape:
                own = self._own[name] = np.empty_like(np.asarray(tensor))
            np.copyto(own, np.asarray(tensor))


def pause(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


def own_cpu() -> float:
    times = os.times()
    return times.user + times.system


def empty_step_cpu(seconds: float, steps: int = 40) -> float:
    """Returns the CPU seconds of a step that takes no batch: the part that is not the loader's."""
    if not seconds:
        return 0.0
    began = time.process_time()
    for _ in range(steps):
        time.sleep(seconds)
    return (time.process_time() - began) / steps


def measure(a: argparse.Namespace) -> dict[str, float]:
    batches, use = WAYS[a.way](a), Use(a.use)
    batch = next(batches)
    total = sum(np.asarray(t).nbytes for t in batch.values())
    if abs(total - a.size) > a.size / 20:
        raise ValueError(f"{a.way}: a batch of {total} bytes came, {a.size} are wanted")
    until = time.perf_counter() + a.warm
    while time.perf_counter() < until:
        fresh = next(batches)
        use(fresh)
        batch = fresh
        pause(a.step)
    empty = empty_step_cpu(a.step)
    pids = [p for p in family(os.getpid()) if p != os.getpid()]
    waits: list[float] = []
    feeder, used, began = cpu_seconds(pids), time.process_time(), time.perf_counter()
    while time.perf_counter() - began < a.seconds or len(waits) < 20:
        pause(a.step)
        asked = time.perf_counter()
        fresh = next(batches)
        use(fresh)
        waits.append(time.perf_counter() - asked)
        batch = fresh  # releases the batch before, as a training loop does
        del fresh
    wall, used = time.perf_counter() - began, time.process_time() - used
    feeder = cpu_seconds(pids) - feeder
    n, memory = len(waits), pss_mib([os.getpid(), *pids])
    waits.sort()
    del batch
    batches.close()  # type: ignore[attr-defined]
    return {
        "batches": n / wall, "gb": n * total / wall / 1e9, "p50": waits[n // 2], "p99": waits[n * 99 // 100],
        "cpu": used / n - empty, "cpu_gb": (used - n * empty) / (n * total / 1e9),
        "feeder_gb": feeder / (n * total / 1e9), "mib": memory,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=list(WAYS))
    parser.add_argument("--size", type=int, required=True, help="bytes of a batch")
    parser.add_argument("--tensors", type=int, default=5, help="tensors of a batch of a baseline")
    parser.add_argument("--use", choices=["none", "copy"], default="none")
    parser.add_argument("--step", type=float, default=0.0, help="seconds of a step before each batch")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warm", type=float, default=0.5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--sharing", default="file_descriptor")
    parser.add_argument("--server", default="", help="the program of sidecar/sidecartest/server")
    parser.add_argument("--socket", default="", help="the socket of a sidecar that another process started")
    parser.add_argument("--kind", default="numpy", help="tensors= of the client")
    print(json.dumps(measure(parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
