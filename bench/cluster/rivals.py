"""Millrace beside tf.data service and Ray Data on four hosts: the same rows of tokens to batches [8, 2048] of int64
tokens and labels, one consumer a host, all at full speed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
from bed import ROOT, table, until
from conftest import Stage
from corpora import once
from lab import Etcd, Lab
from processes import cpu_seconds, spread

HOSTS, MEMBER = ("h1", "h2", "h3", "h4"), "e1"
ROWS, LENGTH, SHARDS, SHARD_ROWS = 8, 2048, 128, 512
MICROBATCHES = 8  # of a rank in a step of Millrace
HERE = ROOT / "bench" / "cluster"
AGAIN = ["sh", "-c", 'until "$@"; do sleep 2; done', "again"]  # until the head of Ray is there
PATIENCE = 480.0  # seconds until the first batches, on a busy machine
STORE = 256 << 20  # bytes of the object store of a node of Ray


def rows(folder: Path) -> Path:
    """Writes documents of one row each: Megatron pairs, whose .bin files are rows of uint16, and the rows as .npy."""

    def make(folder: Path) -> None:
        rng, count = np.random.default_rng(3), SHARD_ROWS
        for n in range(SHARDS):
            data = rng.integers(0, 50_257, (count, LENGTH), dtype=np.uint16)
            data.tofile(folder / f"{n:03}.bin")
            np.save(folder / f"{n:03}.npy", data)
            lengths, ends = np.full(count, LENGTH, np.int32), np.arange(count + 1, dtype=np.int64)
            head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, count, count + 1)
            at = ends[:-1] * 2 * LENGTH
            (folder / f"{n:03}.idx").write_bytes(head + lengths.tobytes() + at.tobytes() + ends.tobytes())

    return once(folder, make)


class Hosts:
    """Four hosts with a consumer each, and the processes that run on them."""

    def __init__(self, lab: Lab, work: Path) -> None:
        self.lab, self.work = lab, work
        self.counters = [work / f"count-{name}" for name in HOSTS]
        spaces = (subprocess.run([*lab.enter(n), "readlink", "/proc/self/ns/net"], check=True, capture_output=True,
                                 text=True).stdout.strip() for n in (*HOSTS, MEMBER))
        self._spaces = set(spaces)

    def start(self, name: str, command: List[str], **env: str) -> subprocess.Popen:
        with open(self.work / "said", "a") as said:
            return subprocess.Popen(
                [*self.lab.enter(name), *command], stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                env={**os.environ, **env},
            )

    def pids(self) -> List[int]:
        """All processes on the network of a host, also those that have left their parent."""
        out = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{entry}/ns/net") in self._spaces:
                    out.append(int(entry))
        return out

    def tokens(self) -> List[int]:
        return [int(np.memmap(c, np.uint64, "r")[0]) if c.exists() and c.stat().st_size else 0 for c in self.counters]

    def close(self) -> None:
        for which in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, which)
            time.sleep(1)


def millrace(a: Any, hosts: Hosts, data: Path, clean: contextlib.ExitStack) -> None:
    lab, work = hosts.lab, hosts.work
    addresses = ",".join(lab.address(n) for n in (*HOSTS, MEMBER))
    command = [a.millrace, "certs", "init", "--dir", str(work / "certs"), "--hosts", addresses]
    subprocess.run(command, check=True, capture_output=True)
    etcd = Etcd(lab, [MEMBER], work, a.etcd, work / "certs")
    clean.callback(etcd.close)
    mix = {
        "version": 1, "seed": 1, "tokenizer": {"name": "gpt2"}, "sequence_length": LENGTH, "micro_batch_size": ROWS,
        "global_batch_size": ROWS * len(HOSTS) * MICROBATCHES, "mixture": {"weights": {"rows": 1}},
        "index_dir": str(data / "index"), "sources": {"rows": {"format": "megatron", "path": str(data / "*.bin")}},
    }
    stage = Stage(Path(a.millrace), work, work)
    for k, name in enumerate(HOSTS):
        own = f"certs/{lab.address(name)}"
        (work / f"{name}.yaml").write_text(json.dumps({
            "name": "run-1", "etcd": [etcd.url(MEMBER)], "listen": f"{lab.address(name)}:9400",
            "tls": {"ca": "certs/ca.pem", "cert": f"{own}.pem", "key": f"{own}-key.pem"},
        }))
        run = stage.up(mix, 1, first=k, launcher=lab.enter(name), args=[
            "--world-size", str(len(HOSTS)), "--first-rank", str(k), "--cluster", str(work / f"{name}.yaml"),
        ])
        run.__enter__()
        clean.callback(run.kill)
        hosts.start(name, [sys.executable, str(HERE / "consumers.py"), run.sockets()[0], str(hosts.counters[k])])


def tfdata(a: Any, hosts: Hosts, data: Path, clean: contextlib.ExitStack) -> None:
    program = [a.tensorflow, str(HERE / "tfdata.py")]
    dispatcher = f"{hosts.lab.address(HOSTS[0])}:5000"
    hosts.start(HOSTS[0], [*program, "dispatcher", "--address", dispatcher])
    for name in HOSTS:
        address = f"{hosts.lab.address(name)}:5001"
        hosts.start(name, [*program, "worker", "--address", address, "--dispatcher", dispatcher])
    for name, counter in zip(HOSTS, hosts.counters):
        hosts.start(name, [*program, "consumer", "--dispatcher", dispatcher, "--corpus", str(data), "--counter",
                           str(counter)])


def raydata(a: Any, hosts: Hosts, data: Path, clean: contextlib.ExitStack) -> None:
    env = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0"}
    head = hosts.lab.address(HOSTS[0])
    for name in HOSTS:
        where = ["--address", f"{head}:6379"]
        if name == HOSTS[0]:
            where = ["--head", "--port", "6379", "--include-dashboard", "false", "--temp-dir", str(hosts.work / "r")]
        retry = [] if name == HOSTS[0] else AGAIN
        hosts.start(name, [*retry, str(Path(a.ray).with_name("ray")), "start", "--block", "--node-ip-address",
                           hosts.lab.address(name), "--num-cpus", "1", "--object-store-memory", str(STORE),
                           "--disable-usage-stats", *where], **env)
        # The nodes share a directory of sockets. Two that start together choose the same names, and one of them dies.
        until(lambda: len(list(hosts.work.glob("r/session_latest/sockets/raylet*"))) > HOSTS.index(name),
              f"the node {name} of Ray", PATIENCE, 0.2)
    hosts.start(HOSTS[0], [*AGAIN, a.ray, str(HERE / "raydata.py"), "--address", f"{head}:6379", "--corpus", str(data),
                           "--counters", *map(str, hosts.counters)], **env)


def measure(a: Any, work: Path, side: Any, data: Path) -> Dict[str, float]:
    work.mkdir()
    with Lab([*HOSTS, MEMBER]) as lab, contextlib.ExitStack() as clean:
        hosts = Hosts(lab, work)
        clean.callback(hosts.close)
        try:
            side(a, hosts, data, clean)
            until(lambda: min(hosts.tokens()) > 32 * ROWS * LENGTH, "batches of every consumer", PATIENCE, 0.2)
            time.sleep(5)
        except BaseException:
            print((work / "said").read_text()[-3000:] if (work / "said").exists() else "", file=sys.stderr)
            raise
        pids = hosts.pids()
        spent, before, began = cpu_seconds(pids), hosts.tokens(), time.monotonic()
        time.sleep(a.seconds / 6)
        spent, took = cpu_seconds(pids) - spent, time.monotonic() - began
        after = hosts.tokens()
    each = [(n - m) / 1e6 for m, n in zip(before, after)]
    return {
        "M tokens/s": sum(each) / took, "CPU s/M tokens": spent / sum(each),
        "slowest / fastest host": min(each) / max(each), "processes": len(pids), "load": os.getloadavg()[0],
    }


def rivals(a: Any, work: Path) -> None:
    data = rows(work / "rows")
    sides = {"millrace, TLS": millrace}
    sides |= {"tf.data service": tfdata} if a.tensorflow else {}
    sides |= {"Ray Data": raydata} if a.ray else {}
    seen: Dict[str, List[Dict[str, float]]] = {name: [] for name in sides}
    for turn in range(1 if a.quick else 3):
        for k, (name, side) in enumerate(sides.items()):
            seen[name].append(measure(a, work / f"rivals-{turn}-{k}", side, data))
            print(name, seen[name][-1], flush=True)
    keys = list(next(iter(seen.values()))[0])
    table("Rows of 2,048 tokens to four hosts at full speed; median (range) of the turns", ["", *keys], [
        [name, *(spread([r[k] for r in runs]) for k in keys)] for name, runs in seen.items()
    ])
