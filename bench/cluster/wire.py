"""Hosts that are all on the loopback device of one network namespace, and the cost of TLS between them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import corpora
from bed import ROOT, clock, percentile, table, until
from conftest import Stage
from harness import Run
from lab import Etcd, Lab
from processes import cpu_seconds, family, spread

ETCD = "127.0.0.1:12379"
ROWS, LENGTH = 8, 2048


class Loopback:
    """A run whose hosts are `up`s on the loopback device. Nothing else uses that device."""

    def __init__(self, a: Any, lab: Lab, work: Path, mix: Dict[str, Any], hosts: int, ranks: int, tls: bool) -> None:
        self.lab, self.work, self.ranks = lab, work, ranks
        stage, enter = Stage(Path(a.millrace), work, work), lab.enter("h1")
        self._clean = contextlib.ExitStack()
        self.logs: List[Path] = []
        self._trainers: List[subprocess.Popen] = []
        self._url = f"http://{ETCD}"
        if tls:
            self._certified(a)
        elif hosts > 1:
            self._plain(a, enter)
        self.runs: List[Run] = []
        for host in range(hosts):
            args: List[str] = []
            if hosts > 1:
                args = ["--world-size", str(hosts * ranks), "--first-rank", str(host * ranks), "--cluster",
                        str(self._file(host, tls))]
            self.runs.append(stage.up(mix, ranks, first=host * ranks, launcher=enter, args=args))

    def _certified(self, a: Any) -> None:
        """Makes certificates, and an etcd that asks for them: a run with TLS takes no other."""
        hosts, certs = f"127.0.0.1,{self.lab.address('h1')}", self.work / "certs"
        subprocess.run([a.millrace, "certs", "init", "--dir", str(certs), "--hosts", hosts], check=True,
                       capture_output=True)
        etcd = Etcd(self.lab, ["h1"], self.work, a.etcd, certs)
        self._clean.callback(etcd.close)
        self._url = etcd.url("h1")

    def _plain(self, a: Any, enter: List[str]) -> None:
        command = [*enter, a.millrace, "etcd", "--dir", str(self.work / "etcd"), "--listen", ETCD, "--program", a.etcd]
        member = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self._clean.callback(lambda: (member.kill(), member.wait()))
        assert member.stdout is not None and member.stdout.readline().startswith("ready"), "etcd did not start"

    def _file(self, host: int, tls: bool) -> Path:
        path = self.work / f"host-{host}.yaml"
        keys = {"name": "run-1", "etcd": [self._url], "listen": f"127.0.0.1:{9400 + host}"}
        pair = {"ca": "certs/ca.pem", "cert": "certs/127.0.0.1.pem", "key": "certs/127.0.0.1-key.pem"}
        path.write_text(json.dumps({**keys, "tls": pair} if tls else keys))
        return path

    def start(self) -> None:
        for run in self.runs:
            run.__enter__()
            self._clean.callback(run.kill)

    def close(self) -> None:
        self._clean.close()

    def train(self, pause: float) -> None:
        for number, socket in enumerate(s for run in self.runs for s in run.sockets()):
            self.logs.append(self.work / f"trainer-{number}.log")
            trainer = subprocess.Popen(
                [sys.executable, str(ROOT / "bench" / "failover" / "trainer.py"), socket, "--pause", str(pause),
                 "--log", str(self.logs[-1])], stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT / "clients" / "python" / "src")},
            )
            self._trainers.append(trainer)
            self._clean.callback(lambda t=trainer: (t.kill(), t.wait()))
        for log in self.logs:
            until(lambda log=log: log.exists() and log.read_bytes().count(b"\n") > 3, f"steps in {log}", 300, 0.05)

    def roles(self) -> List[int]:
        return [pid for run in self.runs for pid in family(run.process.pid)]

    def trainers(self) -> List[int]:
        return [t.pid for t in self._trainers]

    def batches(self, begin: float, end: float) -> List[float]:
        """The waits of all trainers for batches that they received within a time."""
        lines = [line.split() for log in self.logs for line in log.read_text().splitlines()[:-1]]
        return [float(b) - float(a) for a, b, _ in lines if begin <= float(b) <= end]

    def sent(self) -> int:
        """Bytes on the loopback device."""
        text = subprocess.run([*self.lab.enter("h1"), "cat", "/proc/net/dev"], check=True, capture_output=True,
                              text=True).stdout
        return int(text.split("lo:")[1].split()[0])


@contextlib.contextmanager
def loopback(a: Any, work: Path, *args: Any) -> Iterator[Loopback]:
    work.mkdir()
    with Lab(["h1"]) as lab:
        out = Loopback(a, lab, work, *args)
        try:
            out.start()
            yield out
        finally:
            out.close()


def speed(a: Any, work: Path, mix: Dict[str, Any], hosts: int, tls: bool) -> Dict[str, float]:
    with loopback(a, work, mix, hosts, 2 // hosts, tls) as run:
        run.train(0)
        time.sleep(2)
        pids = [pid for pid in family(os.getpid()) if pid != os.getpid()]  # etcd and the trainers, too
        spent, sent, begin = cpu_seconds(pids), run.sent(), clock()
        time.sleep(a.seconds / 9)
        spent, sent, end = cpu_seconds(pids) - spent, run.sent() - sent, clock()
        waits = run.batches(begin, end)
    tokens = len(waits) * ROWS * LENGTH / 1e6
    return {
        "M tokens/s": tokens / (end - begin), "CPU s/M tokens": spent / tokens,
        "MB between hosts/M tokens": sent / tokens / 1e6, "wait p99 ms": 1e3 * percentile(waits, 99),
    }


def tls(a: Any, work: Path) -> None:
    data = corpora.megatron(work / "tokens", 20_000_000, 4)
    mix = token_mixture(work, {f"s{n}": {"format": "megatron", "path": str(data / f"s{n:04}" / "0")} for n in range(4)})
    sides = {"one host, 2 ranks, Unix sockets": (1, False), "two hosts, plaintext": (2, False),
             "two hosts, TLS": (2, True)}
    seen: Dict[str, List[Dict[str, float]]] = {name: [] for name in sides}
    for turn in range(1 if a.quick else 3):
        for k, (name, (hosts, secure)) in enumerate(sides.items()):
            seen[name].append(speed(a, work / f"tls-{turn}-{k}", mix, hosts, secure))
    keys = list(next(iter(seen.values()))[0])
    table("Two ranks at full speed, token files; median (range) of the turns", ["", *keys], [
        [name, *(spread([r[k] for r in rows]) for k in keys)] for name, rows in seen.items()
    ])


def token_mixture(work: Path, sources: Dict[str, Any], ranks: Optional[int] = 2) -> Dict[str, Any]:
    return {
        "version": 1, "seed": 1, "tokenizer": {"name": "gpt2"}, "sequence_length": LENGTH, "micro_batch_size": ROWS,
        "global_batch_size": ROWS * (ranks or 1), "mixture": {"weights": {s: 1 for s in sources}},
        "index_dir": str(work / "index"), "sources": sources,
    }
