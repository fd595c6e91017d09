"""Measures the hand-over of batches to trainers beside other loaders, in turns.

    bench/delivery.sh [--quick] [--sections throughput,tensors,ranks,step,memory] [--sizes 256KiB,1MiB,16MiB,64MiB]

Each measurement runs in a process of its own (bench/ways.py), and the ways take turns in every round. `throughput`: the
trainer takes batches as fast as it can, without a use (none) or with a copy of every tensor into memory that it uses
again (copy). The best DataLoader is that of {file_descriptor, file_system} × {1, 2 workers} with the most batches.
`tensors`: 1, 5 and 20 tensors a batch for the baselines; a batch of Millrace always has five. `ranks`: 1 to 8 trainers,
each with a loader of its own, or with one sidecar for all. `step`: a trainer that is busy for 50 ms before each batch,
alone and beside one spinning process for each core. `memory`: 8 ranks of one data-parallel group (tp: 8).

CPU is that of the trainer's process, without the part of a step that takes no batch. Feeder CPU is that of all other
processes of a way; SPDL has none, because its threads run in the trainer.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from ways import serve  # noqa: E402

LIMIT = 90  # seconds of one measurement; a way that takes longer, or fails, is left out
SHARINGS = ("file_descriptor", "file_system")
DATALOADERS = [("DataLoader", s, w) for s in SHARINGS for w in (1, 2)]
OTHERS = [("SPDL", "", 2), ("Ray", "", 1), ("TensorSocket", "", 1)]
OURS = ("millrace", "", 1)

Way = tuple[str, str, int]  # name, sharing strategy, workers or threads
Figures = dict[str, float]


def parse_size(text: str) -> int:
    for unit, factor in (("KiB", 1 << 10), ("MiB", 1 << 20)):
        if text.endswith(unit):
            return int(text[: -len(unit)]) * factor
    return int(text)


def label(way: Way) -> str:
    name, sharing, workers = way
    return f"DataLoader {sharing}, {workers}" if sharing else name


class Bench:
    def __init__(self, a: argparse.Namespace) -> None:
        self.a = a
        self.left_out: set[str] = set()

    def start(self, way: Way, size: int, *more: str) -> subprocess.Popen[str]:
        name, sharing, workers = way
        settings = ["--server", self.a.server, "--size", str(size), "--workers", str(workers)]
        settings += ["--sharing", sharing] if sharing else []
        return subprocess.Popen(
            [self.a.python, str(ROOT / "bench" / "ways.py"), name, *settings, *more],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def finish(self, way: Way, process: subprocess.Popen[str]) -> Figures | None:
        """Returns the figures of a measurement, None if it failed. It then says so once."""
        try:
            out, err = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            out, err = "", f"it took more than {LIMIT} s"
        finally:
            end_session(process.pid)
        try:
            figures: Figures = json.loads(out.splitlines()[-1])
            return figures
        except (IndexError, ValueError):
            if way[0] not in self.left_out:
                self.left_out.add(way[0])
                reason = (err.strip().splitlines() or ["it printed nothing"])[-1]
                print(f"delivery.py: {label(way)} is left out: {reason}", file=sys.stderr)
            return None

    def rounds(self, ways: list[Way], size: int, *more: str) -> dict[Way, Figures]:
        """Returns the medians of each way. The ways take turns."""
        seen: dict[Way, list[Figures]] = {way: [] for way in ways}
        for _ in range(self.a.rounds):
            for way in ways:
                if way[0] in self.left_out:
                    continue
                figures = self.finish(way, self.start(way, size, "--seconds", str(self.a.seconds), *more))
                if figures is not None:
                    seen[way].append(figures)
        return {way: median(all_of) for way, all_of in seen.items() if all_of}


def end_session(session: int) -> None:
    """Ends the processes that a measurement has left: workers and daemons are in its session."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rsplit(")", 1)[1].split()[3]) == session:
                os.kill(int(stat.parent.name), 9)
        except OSError:
            continue


def median(rounds: list[Figures]) -> Figures:
    return {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}


def best(measured: dict[Way, Figures]) -> tuple[Way, Figures] | None:
    loaders = [(way, figures) for way, figures in measured.items() if way[0] == "DataLoader"]
    return max(loaders, key=lambda pair: pair[1]["batches"], default=None)


def row(*cells: Any) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def table(*columns: str) -> None:
    row(*columns)
    row(*("---" for _ in columns))


def throughput(b: Bench) -> None:
    print("\n### Throughput\n")
    table("batch", "use", "way", "batches/s", "GB/s", "trainer µs a batch", "trainer s/GB", "feeder s/GB", "ours is")
    for text in b.a.sizes.split(","):
        for use in ("none", "copy"):
            measured = b.rounds([OURS, *DATALOADERS, *OTHERS], parse_size(text), "--use", use)
            ours, leader = measured.get(OURS), best(measured)
            for way, m in measured.items():
                ratio = f"{ours['batches'] / m['batches']:.1f}x" if ours and way != OURS else ""
                mark = " (best)" if leader and way == leader[0] else ""
                row(
                    text, use, label(way) + mark, f"{m['batches']:.0f}", f"{m['gb']:.2f}", f"{m['cpu'] * 1e6:.0f}",
                    f"{m['cpu_gb']:.4f}", f"{m['feeder_gb']:.3f}", ratio,
                )  # fmt: skip


def tensors(b: Bench) -> None:
    print("\n### Tensors in a batch of 1 MiB\n")
    table("tensors", "way", "batches/s", "trainer µs a batch", "ours is")
    ours = b.rounds([OURS], 1 << 20)[OURS]
    row(5, OURS[0], f"{ours['batches']:.0f}", f"{ours['cpu'] * 1e6:.0f}", "")
    for n in (1, 5, 20):
        for way, m in b.rounds([DATALOADERS[1], DATALOADERS[3], *OTHERS], 1 << 20, "--tensors", str(n)).items():
            ratio = f"{ours['batches'] / m['batches']:.1f}x"
            row(n, label(way), f"{m['batches']:.0f}", f"{m['cpu'] * 1e6:.0f}", ratio)


def together(b: Bench, way: Way, ranks: int, size: int, *tp: str) -> Figures | None:
    """Runs one trainer for each rank at once. Returns the sums over the ranks."""
    more = ["--seconds", str(b.a.seconds), "--warm", "1"]
    with tempfile.TemporaryDirectory() as made:
        if way != OURS:
            running = [b.start(way, size, *more) for _ in range(ranks)]
            server = None
        else:
            server = serve(b.a.server, size, made, "--ranks", str(ranks), *tp)
            running = [b.start(way, size, *more, "--socket", f"{made}/rank-{r}.sock") for r in range(ranks)]
        figures = [b.finish(way, process) for process in running]
        memory = 0.0
        if server is not None:
            memory = float(high_water_mib(server.pid))
            server.send_signal(signal.SIGINT)
            server.wait()
    if not all(figures):
        return None
    return {
        "gb": sum(f["gb"] for f in figures if f), "mib": sum(f["mib"] for f in figures if f), "server": memory,
        "cpu": statistics.median(f["cpu"] for f in figures if f),
    }  # fmt: skip


def high_water_mib(pid: int) -> float:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def ranks(b: Bench) -> None:
    print("\n### Ranks, batches of 1 MiB\n")
    table("ranks", "way", "GB/s of all", "trainer µs a batch", "ours is")
    for n in (1, 2, 4, 8):
        ours = together(b, OURS, n, 1 << 20)
        other = together(b, DATALOADERS[2], n, 1 << 20)
        for way, m in ((OURS, ours), (DATALOADERS[2], other)):
            if m is not None:
                ratio = f"{ours['gb'] / m['gb']:.1f}x" if ours and way != OURS else ""
                row(n, label(way), f"{m['gb']:.2f}", f"{m['cpu'] * 1e6:.0f}", ratio)


def step(b: Bench) -> None:
    print("\n### next() in a step of 50 ms\n")
    table("cores", "batch", "way", "p50 µs", "p99 µs", "trainer µs a batch")
    for cores in ("idle", "busy"):
        spin = [sys.executable, "-c", "while True: pass"]
        spinning = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)] if cores == "busy" else []
        try:
            for text in ("1MiB", "16MiB") if b.a.quick else ("1MiB", "16MiB", "64MiB"):
                for way, m in b.rounds([OURS, *DATALOADERS[::2]], parse_size(text), "--step", "0.05").items():
                    row(cores, text, label(way), *(f"{m[k] * 1e6:.0f}" for k in ("p50", "p99", "cpu")))
        finally:
            for process in spinning:
                process.kill()
                process.wait()


def memory(b: Bench) -> None:
    print("\n### Memory of 8 ranks of one data-parallel group, batches of 16 MiB\n")
    table("way", "MiB of the trainers and their workers (PSS)", "MiB of the sidecar, highest")
    for way in (OURS, DATALOADERS[2]):
        m = together(b, way, 8, 16 << 20, "--tp", "8")
        if m is not None:
            row(label(way), f"{m['mib']:.0f}", f"{m['server']:.0f}" if way == OURS else "")


SECTIONS = {"throughput": throughput, "tensors": tensors, "ranks": ranks, "step": step, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--sizes", default="256KiB,1MiB,16MiB,64MiB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measurement")
    parser.add_argument("--quick", action="store_true", help="one round of short measurements: about 8 minutes")
    parser.add_argument("--python", required=True, help="the Python of the peers' environment")
    parser.add_argument("--server", required=True, help="the program of sidecar/sidecartest/server")
    a = parser.parse_args()
    if a.quick:
        a.rounds, a.seconds = 1, 0.7
    print("delivery.py: no copy into pinned memory is measured: that needs a GPU", file=sys.stderr)
    bench = Bench(a)
    for name in filter(None, a.sections.split(",")):
        SECTIONS[name](bench)


if __name__ == "__main__":
    main()
