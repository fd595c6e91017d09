"""Measures failover on real processes: takeovers from dead loaders, restarts after the death of all processes, the
trainers' waits, and the cost of shadows.

    bench/failover.sh [--sections takeover,stall,paced,restart,cost,goodput,planner,peers] [--long]

Real processes: `millrace up` on a file of documents, a Python trainer, and signals. Times come from the roles' event
records and from the time of the signal, on one clock. Each section prints its tables. `--long` repeats more.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import cost  # noqa: E402
import restart  # noqa: E402
import stall  # noqa: E402
import takeover  # noqa: E402
from rig import ROOT  # noqa: E402


def planner(a: argparse.Namespace, work: Path) -> None:
    """Measures the orchestrator's part of a restart, at run lengths that a trainer does not reach here."""
    steps = "1000000|1000" if a.long else "1000$"
    subprocess.run(
        [
            "go", "test", "./orchestrator", "-run", "^$", "-bench", f"^BenchmarkRestart$/sources=/steps=({steps})",
            "-benchtime", "5x", "-timeout", "60m",
        ],
        cwd=ROOT,
        check=True,
    )


def peers(a: argparse.Namespace, work: Path) -> None:
    subprocess.run(
        [
            a.peers_python, str(ROOT / "bench" / "resume.py"), "--millrace", a.millrace, "--rounds",
            "3" if a.long else "1",
        ],
        check=True,
    )


SECTIONS = {
    "takeover": takeover.takeover,
    "stall": stall.stall,
    "paced": stall.paced,
    "restart": restart.restart,
    "cost": cost.cost,
    "goodput": stall.goodput,
    "planner": planner,
    "peers": peers,
}


def main() -> None:
    p = argparse.ArgumentParser(
        prog="bench/failover.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--millrace", default=str(ROOT / "millrace"))
    p.add_argument("--peers-python", default=sys.executable, help="the Python that has torchdata, streaming and ray")
    p.add_argument("--sections", default=",".join(SECTIONS))
    p.add_argument("--long", action="store_true", help="hours instead of minutes: thousands of deaths")
    p.add_argument("--kills", type=int, help="deaths of loaders with a core free (150; --long: 3000)")
    p.add_argument("--stalls", type=int, help="deaths for each row of the trainer's table (15; --long: 200)")
    p.add_argument("--paced", type=int, help="deaths under a paced trainer, one every 5 s (24; --long: 1000)")
    p.add_argument("--restarts", type=int, help="restarts of everything for each number of sources (5; --long: 20)")
    p.add_argument("--rounds", type=int, help="runs of each kind; the tables have their medians (1; --long: 5)")
    p.add_argument("--seconds", type=float, help="limit for one measurement (30; --long: 600)")
    a = p.parse_args()
    for name, short, long in (
        ("kills", 150, 3000),
        ("stalls", 15, 200),
        ("paced", 24, 1000),
        ("restarts", 5, 20),
        ("rounds", 1, 5),
        ("seconds", 30.0, 600.0),
    ):
        if getattr(a, name) is None:
            setattr(a, name, long if a.long else short)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    print(
        f"{datetime.date.today()}, {commit}, {os.cpu_count()} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}: bench/failover.sh {' '.join(sys.argv[1:])}"
    )
    with tempfile.TemporaryDirectory(prefix="failover-") as d:
        for section in a.sections.split(","):
            began = time.monotonic()
            SECTIONS[section](a, Path(d))
            print(f"({section} took {time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
