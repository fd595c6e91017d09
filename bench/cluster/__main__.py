"""Measures runs on several hosts, on one machine: network namespaces stand for hosts, or the loopback device does.

    bench/cluster.sh [--sections takeover,election,tls,fanout,memory,rivals,ray] [--quick] [--long]

Each section prints its tables, and a row when it is measured. Times of events are on one clock. The machine's load
average is in the title, or in the row. Trials of takeover and election are on standard error, one in a line.

    takeover  a loader on another host is lost: the time to the first rows of its standby
    election  the leader is lost: the time to the next leader's first record and first plan
    tls       the speed and cost of two hosts with TLS, without, and of one host
    fanout    hundreds and thousands of clients of four loaders, at one rate of bytes; with and without constructors
    memory    PSS with 306 sources and 8 ranks a host, beside PyTorch's DataLoader
    rivals    tokens/s and CPU on four hosts, beside tf.data service and Ray Data
    ray       waits of trainers while actors and a node of Ray are killed
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(d) for d in (HERE, HERE.parents[1] / "e2e", HERE.parent / "failover", HERE.parent)]

import election  # noqa: E402
import memory  # noqa: E402
import rivals  # noqa: E402
import takeover  # noqa: E402
import wire  # noqa: E402
from bed import ROOT  # noqa: E402


def fanout(a: argparse.Namespace, work: Path) -> None:
    """Thousands of clients of four loaders, in bench/cluster/fanout."""
    clients = "64,256" if a.quick else "256,1024,4096" if a.long else "256,1024"
    print(f"\nClients that fetch from 4 loaders at 8 MB/s in all; load average {os.getloadavg()[0]:.1f}\n", flush=True)
    command = ["go", "run", "./bench/cluster/fanout", "-clients", clients, "-groups", clients,
               "-span", f"{a.seconds / 6:.0f}s"]
    subprocess.run(command, cwd=ROOT, check=True)


def ray(a: argparse.Namespace, work: Path) -> None:
    """Trainers on a Ray of three nodes, in bench/cluster/raystall.py: in a PID namespace, so that nothing is left."""
    if not a.ray:
        print("there is no environment of Ray, and the section is left out", file=sys.stderr)
        return
    own = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--net", "--mount-proc"]
    own += [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    command = [a.ray, str(HERE / "raystall.py"), "--kills", str(max(3, a.trials // 3))]
    print(f"\nTrainers on a Ray of three nodes; load average {os.getloadavg()[0]:.1f}\n", flush=True)
    path = f"{Path(a.etcd).parent}:{os.environ['PATH']}"
    subprocess.run([*own, "sh", "-c", 'ip link set lo up && exec "$@"', "ray", *command], check=True,
                   env={**os.environ, "PATH": path, "MILLRACE": a.millrace})


SECTIONS = {
    "takeover": takeover.takeover,
    "election": election.election,
    "tls": wire.tls,
    "fanout": fanout,
    "memory": memory.memory,
    "rivals": rivals.rivals,
    "ray": ray,
}


def main() -> None:
    p = argparse.ArgumentParser(
        prog="bench/cluster.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--millrace", required=True)
    p.add_argument("--etcd", required=True, help="the program of tools/etcd.sh")
    p.add_argument("--torch", help="Python of the environment of requirements-torch.txt; none: no DataLoader")
    p.add_argument("--tensorflow", help="Python of the environment of requirements-tensorflow.txt; none: no tf.data")
    p.add_argument("--ray", help="Python of the environment of make test-ray; none: no Ray Data")
    p.add_argument("--vocabulary", help="gpt2's ranks, as tokenbench exports them")
    p.add_argument("--sections", default=",".join(SECTIONS))
    p.add_argument("--quick", action="store_true", help="few trials")
    p.add_argument("--long", action="store_true", help="4,096 clients, too")
    p.add_argument("--trials", type=int, help="faults of each kind (30; --quick: 5)")
    p.add_argument("--faults", default="", help=f"those of takeover ({','.join(takeover.FAULTS)}) and of election "
                   f"({','.join(election.FAULTS)}) that are measured; all by default")
    p.add_argument("--seconds", type=float, help="limit for one measurement (90; --quick: 30)")
    a = p.parse_args()
    unknown = set(filter(None, a.faults.split(","))) - {*takeover.FAULTS, *election.FAULTS}
    if unknown:
        p.error(f"--faults: there is no fault {', '.join(sorted(unknown))}: choose of "
                + ", ".join(sorted({*takeover.FAULTS, *election.FAULTS})))
    a.trials = a.trials or (5 if a.quick else 30)
    a.seconds = a.seconds or (30.0 if a.quick else 90.0)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    print(
        f"{datetime.date.today()}, {commit}, {os.cpu_count()} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}: bench/cluster.sh {' '.join(sys.argv[1:])}", flush=True,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the end of each context ends its processes
    with tempfile.TemporaryDirectory(prefix="cluster-") as d:
        for section in a.sections.split(","):
            began = time.monotonic()
            SECTIONS[section](a, Path(d))
            print(f"({section} took {time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
