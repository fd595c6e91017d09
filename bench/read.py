"""Reads the files of each format with our reader and with the format's own, in turns, and prints one table a format.

    bench/read.sh [--only mds,arrow] [--quick] [--rounds 3]

All figures are medians over the rounds, for one process. Samples and MB a second are a second of CPU time, of all
threads of the process. PSS is the peak of the process, with imports; the part in brackets is anonymous memory. The rest
is mapped files. Allocations are those of our reader, for a record. Every reader's documents have the same CRC-32.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import readers  # noqa: E402

READERS = pathlib.Path(readers.__file__)


@dataclasses.dataclass
class Side:
    """A command that reads, and its figures of each round."""

    name: str
    command: list[str]
    rows: list[dict[str, float]] = dataclasses.field(default_factory=list)
    reason: str = ""  # it failed

    def run(self, patience: float) -> None:
        if self.reason:
            return
        with subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        ) as process:
            peak, anonymous, until = 0.0, 0.0, time.monotonic() + patience
            while process.poll() is None and time.monotonic() < until:
                now = memory(process.pid)
                peak, anonymous = max(peak, now[0]), max(anonymous, now[1])
                time.sleep(0.05)
            if process.poll() is None:
                process.kill()
                self.reason = "it was not through in time"
                return
            out, err = process.communicate()
        if process.returncode:
            self.reason = (err.strip().splitlines() or ["it failed without a message"])[-1]
            return
        row = json.loads(out.strip().splitlines()[-1])
        row["samples/s"] = row["records"] / row["cpu_seconds"]
        row["MB/s"] = row["bytes"] / row["cpu_seconds"] / 1e6
        row["PSS"], row["anonymous"] = peak, anonymous
        self.rows.append(row)

    def median(self, key: str) -> float:
        return statistics.median(row[key] for row in self.rows)


def environment() -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return os.environ | threads | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}


def memory(pid: int) -> tuple[float, float]:
    """Returns the proportional set size of a process and its anonymous part in MiB, 0 if it has ended."""
    found = {}
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            words = line.split()
            found[words[0]] = int(words[1]) / 1024 if words[-1] == "kB" else 0.0
    except OSError:
        return 0.0, 0.0
    return found.get("Pss:", 0.0), found.get("Pss_Anon:", 0.0)


def made(a: argparse.Namespace, name: str) -> pathlib.Path:
    """Returns the folder of a format's files. It writes them if they are not there."""
    folder = a.data / f"{name}-{a.megabytes}"
    done = folder.with_suffix(".done")
    if not done.exists():
        command = [a.python, str(READERS), "write", name, str(folder), "--megabytes", str(a.megabytes)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment())
        done.touch()
    return folder


def sides(a: argparse.Namespace, name: str, folder: pathlib.Path, at_random: bool) -> list[Side]:
    """Returns our reader and the peers. Peers that cannot read at random are left out."""
    kind = readers.FORMATS[name]
    ours = [a.readbench, "-format", name, "-text", kind.field, "-time", f"{a.seconds}s"]
    if at_random:
        ours += ["-random", "-group", str(kind.group)]
    out = [Side("millrace", [*ours, str(folder)])]
    for peer in kind.randoms if at_random else kind.scans:
        command = [a.python, str(READERS), "read", name, peer, str(folder), "--seconds", str(a.seconds)]
        if at_random:
            command.append("--random")
        out.append(Side(peer, command))
    return out


def compare(a: argparse.Namespace, name: str, folder: pathlib.Path, at_random: bool) -> bool:
    """Measures and prints one table. It returns whether all readers read the same documents."""
    compared = sides(a, name, folder, at_random)
    for _ in range(a.rounds):
        for side in compared:
            side.run(a.patience)
    group = readers.FORMATS[name].group
    way = ("in file order", "at random, one by one" if group == 1 else f"at random, {group} at a time")[at_random]
    print(f"\n### {name}, {way}: load average {os.getloadavg()[0]:.1f}\n", flush=True)
    print("| | samples/s a core | MB/s a core | ours beside it | PSS MiB | allocations, bytes a record |")
    print("|---|---|---|---|---|---|")
    ours = compared[0]
    for side in compared:
        if side.reason:
            print(f"| {side.name} | failed: {side.reason} | | | | |")
            continue
        ratio = "" if side is ours or ours.reason else f"{ratios(ours, side)} ×"
        spent = ""
        if side is ours:
            spent = " ".join(f"{side.median(k) / side.median('records'):.3g}" for k in ("allocs", "allocated_bytes"))
        speed = f"{side.median('samples/s'):,.0f} | {side.median('MB/s'):,.0f}"
        pss = f"{side.median('PSS'):.0f} ({side.median('anonymous'):.0f})"
        print(f"| {side.name} | {speed} | {ratio} | {pss} | {spent} |")
    sys.stdout.flush()
    return same(name, compared)


def ratios(ours: Side, peer: Side) -> str:
    """Returns the median and the range of the ratios of the rounds."""
    each = [o["MB/s"] / p["MB/s"] for o, p in zip(ours.rows, peer.rows, strict=True)]
    return f"{statistics.median(each):.3g} ({min(each):.3g}-{max(each):.3g})"


def same(name: str, compared: list[Side]) -> bool:
    found = {(row["documents"], row["crc"]) for side in compared for row in side.rows}
    if len(found) > 1:
        print(f"{name}: the readers read different documents: {sorted(found)}", file=sys.stderr)
    return len(found) == 1 and not compared[0].reason


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--readbench", required=True, help="the program bench/readbench")
    p.add_argument("--python", required=True, help="of the peers' environment")
    p.add_argument("--data", type=pathlib.Path, required=True, help="folder of the files; kept for the next run")
    p.add_argument("--only", default="", help="formats, with commas between them")
    p.add_argument("--quick", action="store_true", help="8 MB a format, one round")
    p.add_argument("--megabytes", type=int, default=64)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--patience", type=float, default=300, help="seconds that one measurement may take")
    a = p.parse_args()
    if a.quick:
        a.megabytes, a.rounds, a.seconds = 8, 1, 1
    names = a.only.split(",") if a.only else list(readers.FORMATS)
    if unknown := set(names) - set(readers.FORMATS):
        p.error(f"--only: no format {', '.join(unknown)}; there are {', '.join(readers.FORMATS)}")
    good = True
    for name in names:
        folder = made(a, name)
        good &= compare(a, name, folder, False)
        if readers.FORMATS[name].randoms:
            good &= compare(a, name, folder, True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
