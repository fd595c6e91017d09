"""A run with ranks on several hosts. Each host has its own `millrace up`, and its own run directory."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

from conftest import variant
from harness import DEADLINE, Delivered, Orders, Trainers
from test_cluster import running, status

MIXTURE = variant({"global_batch_size": 8, "stop": {"steps": 40}})
HOSTS, RANKS = 2, 2  # ranks of each host
WORLD = HOSTS * RANKS


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def on_loopback(etcd: str, directory: Path) -> List[Path]:
    """The cluster files of hosts that are all this machine."""
    out = []
    for host in range(HOSTS):
        out.append(directory / f"host-{host}.yaml")
        out[-1].write_text(f"name: run-1\netcd: ['{etcd}']\nlisten: '127.0.0.1:{free_port()}'\n")
    return out


class Spread:
    """The `up` of each host, as one run."""

    def __init__(self, stage: Any, mixture: Dict[str, Any], files: Sequence[Path], launchers: Sequence[List[str]] = ()):
        self.runs = [
            stage.up(
                mixture, RANKS, first=host * RANKS, launcher=launchers[host] if launchers else (),
                args=["--world-size", str(WORLD), "--first-rank", str(host * RANKS), "--cluster", str(file)],
            )
            for host, file in enumerate(files)
        ]

    def sockets(self) -> List[str]:
        return [s for run in self.runs for s in run.sockets()]

    def start(self, orders: Any) -> Trainers:
        return Trainers(self.sockets(), [orders] * WORLD)


@contextlib.contextmanager
def spread(*args: Any, **kwargs: Any) -> Iterator[Spread]:
    out = Spread(*args, **kwargs)
    with contextlib.ExitStack() as stack:
        for run in out.runs:
            stack.enter_context(run)
        yield out


def finished(of: Spread, delivered: Delivered) -> None:
    assert delivered.ends == ["end"] * WORLD, (delivered.ends, [r.stderr() for r in of.runs])
    for run in of.runs:
        assert run.wait(DEADLINE) == 0, run.stderr()


def test_hosts_deliver_the_batches_of_one(stage: Any, tmp_path: Path) -> None:
    """Every rank receives the bytes that it receives from one host with all ranks. `status` on each host shows all."""
    golden = stage.delivered(MIXTURE, WORLD)
    with running(stage, tmp_path) as member:
        with spread(stage, MIXTURE, on_loopback(f"http://{member.address}", tmp_path)) as both:
            trainers = both.start(Orders(pause=0.05))
            trainers.collect(until=3)
            for run in both.runs:
                seen = status(stage, run)
                assert [(h["state"], h["first_rank"], h["ranks"]) for h in seen["hosts"]] == [
                    ("running", 0, RANKS), ("running", RANKS, RANKS)
                ], seen["hosts"]
                assert sum(h["leads"] for h in seen["hosts"]) == 1 and seen["step"] > 0, seen
                names = {r["name"] for r in seen["roles"]}
                assert {"sidecar-0", f"sidecar-{RANKS}", "loader-0-0", f"loader-{RANKS}-0"} <= names, names
            delivered = trainers.collect()
            finished(both, delivered)
    assert delivered.bytes() == golden.bytes()


def test_a_host_with_another_mixture_is_refused(stage: Any, tmp_path: Path) -> None:
    other = variant({"global_batch_size": 8, "seed": 12, "stop": {"steps": 40}})
    with running(stage, tmp_path) as member:
        files = on_loopback(f"http://{member.address}", tmp_path)
        args = ["--world-size", str(WORLD), "--cluster"]
        with stage.up(MIXTURE, RANKS, args=[*args, str(files[0])]):
            for wrong, mixture, code, said in (
                (["--first-rank", str(RANKS)], other, 1, "copy one mixture file to all hosts"),
                (["--first-rank", str(RANKS), "--world-size", "6"], MIXTURE, 1, "--world-size is 6, not 4"),
                (["--first-rank", "1"], MIXTURE, 2, "multiples of --ranks"),
            ):
                done = subprocess.run(
                    [str(stage.binary), "up", str(stage.mixture(mixture)), "--ranks", str(RANKS), "--run-dir",
                     str(stage.new_dir()), *args, str(files[1]), *wrong],
                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE,
                )
                assert done.returncode == code and said in done.stderr, (done.returncode, done.stderr)
