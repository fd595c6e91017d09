"""Measures the hand-over of a ready batch to the trainer: the time, and the trainer's CPU per batch.

    python bench/handover.py [--sizes 256KiB,16MiB] [--batches 200] [--rounds 5] [--step-ms 5]

`millrace` is the real sidecar and client over a synthetic run: the sidecar plans, builds and pushes all the time. Two
baselines take turns with it. `shm+queue` is one process that copies ready batches into a shared-memory block and sends
its name through a multiprocessing queue, as a DataLoader worker does without PyTorch. The other is PyTorch's
DataLoader, if it can be imported.

`ready`: the trainer sleeps for --step-ms before it asks, so the batch is ready. The time covers next() and one NumPy
array over the batch. The CPU time includes the release of the previous batch. `full speed`: the trainer asks again at
once, and the time is the interval between two batches. CPU time is that of the trainer's process alone.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import queue
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "clients" / "python" / "src"))

import numpy as np  # noqa: E402

import millrace  # noqa: E402

BYTES_PER_TOKEN = 8 + 8 + 8 + 4 + 4  # tokens, labels, position_ids, segment_ids, loss_mask
SLOTS = 3


def cpu() -> float:
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def parse_size(text: str) -> int:
    for unit, factor in (("KiB", 1 << 10), ("MiB", 1 << 20)):
        if text.endswith(unit):
            return int(text[: -len(unit)]) * factor
    return int(text)


class Millrace:
    name = "millrace"

    def __init__(self, server: Path, size: int) -> None:
        self._dir = tempfile.TemporaryDirectory()
        length = 2048 if size >= 1 << 20 else 512
        rows = size // BYTES_PER_TOKEN // length
        args = [str(server), "--dir", self._dir.name, "--quiet", "--same-step", "--microbatches", "16"]
        self._process = subprocess.Popen(
            [*args, "--rows", str(rows), "--length", str(length)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None and self._process.stdout.readline() == "ready\n"
        self._loader = millrace.connect(f"{self._dir.name}/rank-0.sock", tensors="numpy", start="fresh")
        self.batches: Iterator[Any] = iter(self._loader)

    def array(self, batch: Any) -> np.ndarray:
        return batch["tokens"]

    def drop(self, batch: Any) -> None:
        pass  # the last reference releases the frame

    def close(self) -> None:
        self._loader.close()
        self._process.terminate()
        self._process.wait()
        self._dir.cleanup()


def _copy_through_shm(size: int, full: Any, free: Any) -> None:
    """The producer of shm+queue: a new block for each batch, as in a DataLoader worker."""
    source = np.arange(size, dtype=np.uint8)
    while free.get():
        block = shared_memory.SharedMemory(create=True, size=size)
        np.frombuffer(block.buf, np.uint8, size)[:] = source
        full.put(block.name)
        block.close()


class ShmQueue:
    name = "shm+queue"

    def __init__(self, server: Path, size: int) -> None:
        # Producer and consumer share one resource tracker. Two trackers would each warn about blocks that the other
        # process unlinked.
        resource_tracker.ensure_running()
        context = mp.get_context("fork")
        self._full, self._free, self._size = context.Queue(), context.Queue(), size
        self._process = context.Process(target=_copy_through_shm, args=(size, self._full, self._free), daemon=True)
        self._process.start()
        for _ in range(SLOTS):
            self._free.put(True)
        self.batches = self._take()

    def _take(self) -> Iterator[Any]:
        while True:
            block = shared_memory.SharedMemory(name=self._full.get())
            block.unlink()
            self._free.put(True)
            yield block

    def array(self, batch: Any) -> np.ndarray:
        # Copies the header only, because a view would keep the block open.
        return np.ndarray((1,), np.uint8, bytes(batch.buf[:1]))

    def drop(self, batch: Any) -> None:
        batch.close()

    def close(self) -> None:
        self._free.put(False)
        self.batches.close()  # type: ignore[attr-defined]
        while self._process.is_alive() or not self._full.empty():
            try:
                shared_memory.SharedMemory(name=self._full.get(timeout=0.05)).unlink()
            except queue.Empty:
                pass
        self._process.join()


def torch_loader() -> Any:
    """Returns PyTorch's DataLoader with one worker that stacks rows of a tensor, or None without PyTorch."""
    try:
        import torch
    except ImportError:
        return None

    class Rows(torch.utils.data.IterableDataset):
        def __init__(self, size: int) -> None:
            self.rows = torch.arange(size, dtype=torch.uint8).reshape(8, -1)

        def __iter__(self) -> Iterator[Any]:
            while True:
                yield torch.utils.data.default_collate(list(self.rows))

    class Torch:
        name = "DataLoader, 1 worker"

        def __init__(self, server: Path, size: int) -> None:
            loader = torch.utils.data.DataLoader(Rows(size), batch_size=None, num_workers=1, prefetch_factor=2)
            self.batches = iter(loader)

        def array(self, batch: Any) -> np.ndarray:
            return batch.numpy()

        def drop(self, batch: Any) -> None:
            pass

        def close(self) -> None:
            del self.batches

    return Torch


def measure(make: Callable[[Path, int], Any], server: Path, size: int, batches: int, pause: float) -> Dict[str, float]:
    """Runs one round. Returns the seconds of each next(), and the trainer's CPU seconds per batch."""
    way = make(server, size)
    try:
        iterator = way.batches
        batch = next(iterator)
        waits: List[float] = []
        used, start = 0.0, time.perf_counter()
        for _ in range(batches):
            if pause:
                time.sleep(pause)
            busy, began = cpu(), time.perf_counter()
            fresh = next(iterator)
            array = way.array(fresh)
            waits.append(time.perf_counter() - began)
            # As in a training loop, the previous batch is released while the new one is held. The release costs CPU
            # and wakes the process that fills batches.
            del array
            way.drop(batch)
            batch = fresh
            del fresh
            used += cpu() - busy
        wall = time.perf_counter() - start
        way.drop(batch)
        del batch
    finally:
        way.close()
    waits.sort()
    return {
        "p50": waits[len(waits) // 2],
        "p99": waits[len(waits) * 99 // 100],
        "cpu": used / batches,
        "rate": batches / wall,
    }


def median(rounds: List[Dict[str, float]]) -> Dict[str, float]:
    return {k: statistics.median(r[k] for r in rounds) for k in rounds[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="256KiB,16MiB")
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--step-ms", type=float, default=5.0, help="pause before a batch of `ready` (5); each MiB of a batch adds 2 ms"
    )
    options = parser.parse_args()
    ways: List[Any] = [Millrace, ShmQueue]
    torch = torch_loader()
    if torch is not None:
        ways.append(torch)
    else:
        print("PyTorch is not installed; the table leaves out its DataLoader", file=sys.stderr)
    with tempfile.TemporaryDirectory() as build:
        server = Path(build) / "server"
        subprocess.run(["go", "build", "-o", str(server), "./sidecar/sidecartest/server"], cwd=ROOT, check=True)
        print("| batch | | way | p50 us | p99 us | trainer CPU us | batches/s |")
        print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
        for text in options.sizes.split(","):
            size = parse_size(text)
            pause = (options.step_ms + 2 * size / (1 << 20)) / 1000
            for case, wait in (("ready", pause), ("full speed", 0.0)):
                rows: List[Tuple[str, Dict[str, float]]] = []
                rounds: Dict[str, List[Dict[str, float]]] = {w.name: [] for w in ways}
                for _ in range(options.rounds):
                    for way in ways:
                        rounds[way.name].append(measure(way, server, size, options.batches, wait))
                rows = [(name, median(r)) for name, r in rounds.items()]
                for name, r in rows:
                    times = " | ".join(f"{r[key] * 1e6:.0f}" for key in ("p50", "p99", "cpu"))
                    rate = f"{r['rate']:.0f}" if not wait else ""
                    print(f"| {text} | {case} | {name} | {times} | {rate} |", flush=True)


if __name__ == "__main__":
    main()
