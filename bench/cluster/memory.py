"""Memory with 306 sources and 8 ranks a host, beside a torch.utils.data.DataLoader over the same sources."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import corpora
from bed import ROOT, table
from processes import family, memory_mib
from wire import loopback, token_mixture

RANKS, SOURCES = 8, 306
WORKERS = (1, 4)  # of a DataLoader
ROOM = 5000.0  # MiB that a measurement leaves free on the machine
EACH = 350.0  # MiB of a rank or a worker, at most: so many ranks are measured as fit
CORPORA = {"2 shards of 40 documents": (2, 40), "a shard of 1,000 documents": (1, 1000)}
LIMITS: Dict[str, Dict[str, Any]] = {
    "default": {},
    "least": {"limits": {"loader_memory": "64MiB", "sidecar_memory": "64MiB", "sample_bytes": "8MiB"}, "loaders": 1},
}
CLIENT = "import sys, numpy, millrace; print('ready', flush=True); sys.stdin.read()"  # a trainer without a run


def memory(a: Any, work: Path) -> None:
    for name, (shards, rows) in CORPORA.items():
        compare(a, work, name, corpora.small_sources(work / f"sources-{rows}", SOURCES, shards, rows))


def compare(a: Any, work: Path, name: str, data: Path) -> None:
    """Measures all sides over the same files. A host counts as a machine: it has program files of its own."""
    peers = {w: dataloader(a, work, data, w) for w in WORKERS} if a.torch else {}
    sources = {f"s{n:04}": {"path": str(data / f"s{n:04}" / "*")} for n in range(SOURCES)}
    bare, rows = trainers_mib(), []
    for hosts in (1, 4) if a.quick else (1, 2, 4):
        for limits, settings in LIMITS.items():
            mix = {**token_mixture(work, sources, RANKS * hosts), **settings, "index_dir": str(data / "index")}
            with loopback(a, work / f"{data.name}-{limits}-{hosts}", mix, hosts, RANKS, False) as run:
                run.train(1.0)
                mib = peak(a, lambda: run.roles() + run.trainers(), hosts) - hosts * bare
            ratios = [f"{hosts * peers[w] / mib:.1f}" if peers else "-" for w in WORKERS]
            print(f"{hosts} hosts, {limits} limits: {mib:.0f} MiB", flush=True)
            rows.append([hosts, limits, f"{mib:.0f}", f"{mib / hosts:.0f}", *ratios, f"{os.getloadavg()[0]:.0f}"])
    table(
        f"{SOURCES} sources of {name}, {RANKS} ranks a host, steps of a second: PSS beside trainers without a loader",
        ["hosts", "limits", "MiB", "a host", *(f"DataLoader, {w} workers / millrace" for w in WORKERS), "load"], rows,
    )


def peak(a: Any, pids: Any, hosts: int = 1) -> float:
    """The highest PSS of processes within a quarter of the limit of a measurement."""
    mib, over = 0.0, time.monotonic() + a.seconds / 4
    while time.monotonic() < over:
        mib = max(mib, memory_mib(pids(), hosts))
        time.sleep(1)
    return mib


def trainers_mib() -> float:
    """The PSS of the trainers of a host that have the client and no run."""
    path = {**os.environ, "PYTHONPATH": str(ROOT / "clients" / "python" / "src")}
    with contextlib.ExitStack() as clean:
        pids = [clean.enter_context(ready([sys.executable, "-c", CLIENT], env=path)).pid for _ in range(RANKS)]
        return memory_mib(pids)


def dataloader(a: Any, work: Path, data: Path, workers: int) -> float:
    """The MiB of the DataLoaders of a host. If those of 8 ranks do not fit, fewer ranks are measured and multiplied."""
    def of(ranks: int, workers: int) -> float:
        command = [a.torch, str(ROOT / "bench" / "cluster" / "dataloader.py"), "--corpus", str(data), "--vocabulary",
                   str(a.vocabulary), "--ranks", str(ranks), "--workers", str(workers)]
        with ready(command, stderr=subprocess.DEVNULL) as p:
            return peak(a, lambda: family(p.pid)[1:])

    ranks = RANKS
    while ranks > 1 and ranks * (1 + workers) * EACH > available() - ROOM:
        ranks //= 2
    loaders, bare = of(ranks, workers), of(ranks, 0)
    out = (loaders - bare) * RANKS / ranks
    print(f"DataLoader, {workers} workers, {data.name}: {loaders:.0f} MiB of {ranks} ranks, {bare:.0f} of them without "
          f"a loader: {out:.0f} MiB for {RANKS} ranks; load {os.getloadavg()[0]:.0f}", flush=True)
    return out


def available() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 1024


@contextlib.contextmanager
def ready(command: List[str], **kwargs: Any) -> Iterator[subprocess.Popen]:
    """A process that prints "ready", and ends with its input."""
    p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **kwargs)
    try:
        assert p.stdout is not None and p.stdout.readline().startswith("ready"), f"{' '.join(command)} did not start"
        yield p
    finally:
        assert p.stdin is not None
        p.stdin.close()
        p.wait()
