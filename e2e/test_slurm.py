"""The job of examples/cluster on a real Slurm: four of five nodes train with torchrun, while processes are killed, the
job is requeued and a node is lost. `make test-slurm` runs it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from conftest import variant
from harness import DEADLINE
from lab import Etcd
from slurm import CONTROLLER, SHARED, Slurm, until
from test_cluster import program
from trainer import CLIENT

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "cluster"
pytestmark = pytest.mark.needs("MILLRACE_SLURM", "etcd", "unshare", "nsenter")

NODES = 4  # of the job, as train.sbatch says
STEPS = 150
MIXTURE = variant({"global_batch_size": 8, "micro_batch_size": 1, "stop": {"steps": STEPS}, "loaders": 1})

# Each rank writes a line for each batch, and waits after each step until all have taken it, as gradients would make it
# wait. Then rank 0 saves a checkpoint.
TRAIN = """
import json, os, sys, time
sys.path.insert(0, os.environ["CLIENT"])
import millrace
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
restart = os.environ.get("SLURM_RESTART_COUNT", "0")
checkpoint = json.load(open("checkpoint.json")) if os.path.exists("checkpoint.json") else None

def taken(by):
    try:
        return len(open(f"records-{restart}-{by}.jsonl").readlines())
    except FileNotFoundError:
        return 0

loader = millrace.connect(tensors="numpy", patience=240)
if checkpoint:
    loader.load_state_dict(checkpoint["state"])
with open(f"records-{restart}-{rank}.jsonl", "w", buffering=1) as records:
    records.write(json.dumps({"after": checkpoint["step"] if checkpoint else -1}) + "\\n")
    for number, batch in enumerate(loader, 2):
        records.write(json.dumps([batch.step, batch.microbatch, batch.digest]) + "\\n")
        time.sleep(0.1)
        if batch.microbatch < batch.num_microbatches - 1:
            continue
        while any(taken(by) < number for by in range(world)):
            time.sleep(0.02)
        if rank == 0:
            with open("checkpoint.new", "w") as new:
                json.dump({"step": batch.step, "state": loader.state_dict()}, new)
            os.replace("checkpoint.new", "checkpoint.json")
        del batch
loader.close()
"""


class Job:
    """The example's job in a directory with everything that it needs."""

    def __init__(self, slurm: Slurm, stage: Any, directory: Path, etcd: Etcd) -> None:
        self.slurm, self.directory = slurm, directory
        shutil.copytree(stage.corpus, directory)
        for name in ("train.sbatch", "node.sh"):
            shutil.copy(EXAMPLE / name, directory)
        (directory / "train.py").write_text(TRAIN)
        (directory / "mixture.yaml").write_text(json.dumps(MIXTURE))
        own = f"{SHARED}{directory.parent}/certs/{{host}}"
        (directory / "cluster.yaml").write_text(
            f"name: replaced\netcd: ['{etcd.url(CONTROLLER)}']\nlisten: 'replaced:1'\n"
            f"tls: {{ca: '{SHARED}{directory.parent}/certs/ca.pem', cert: '{own}.pem', key: '{own}-key.pem'}}\n")
        (directory / "bin").mkdir()
        torchrun = directory / "bin" / "torchrun"  # the script of the environment has the path that a /tmp may hide
        torchrun.write_text(f"#!/bin/sh\nexec {SHARED}{os.environ['MILLRACE_TORCH']} -m torch.distributed.run \"$@\"\n")
        torchrun.chmod(0o755)
        self.number = slurm.submit(directory, "train.sbatch", {
            "RANKS": "1", "MILLRACE": f"{SHARED}{stage.binary}", "CLIENT": f"{SHARED}{CLIENT}",
            "PATH": f"{SHARED}{directory}/bin:{slurm.env['PATH']}",
        })

    def said(self) -> str:
        out = self.directory / f"slurm-{self.number}.out"
        return (f"{self.slurm.job(self.number)}\n{out.read_text(errors='replace')[-6000:] if out.exists() else ''}\n"
                + self.slurm.said())

    def lives(self) -> List[List[List[Any]]]:
        """The lines of each rank, in each start of the job."""
        out: List[List[List[Any]]] = []
        while self.file(len(out), 0).exists():
            out.append([
                [json.loads(line) for line in self.file(len(out), rank).read_text().splitlines(keepends=True)
                 if line.endswith("\n")] if self.file(len(out), rank).exists() else [] for rank in range(NODES)
            ])
        return out

    def file(self, restart: int, rank: int) -> Path:
        return self.directory / f"records-{restart}-{rank}.jsonl"

    def until_step(self, restart: int, further: int = 4) -> None:
        """Waits until each rank has taken some batches since the job's start number `restart`, and since now."""

        def taken() -> List[int]:
            lives = self.lives()
            return [len(lines) for lines in lives[restart]] if len(lives) > restart else [0] * NODES

        least = [n + further for n in taken()]
        until(f"{further} batches after {restart} restarts",
              lambda: all(n >= m for n, m in zip(taken(), least)) or self.is_over(), self.said)
        assert not self.is_over(), self.said()

    def is_over(self) -> bool:
        return self.slurm.job(self.number).get("JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")

    def check(self, golden: Any, restarts: int) -> None:
        """Every rank trained on all batches of a run on one host, in order. A batch counts if the next start of the job
        went on from a checkpoint that has it."""
        until("the end of the job", self.is_over, self.said)
        job = self.slurm.job(self.number)
        assert (job["JobState"], job["Restarts"], job["ExitCode"]) == ("COMPLETED", str(restarts), "0:0"), self.said()
        lives, want = self.lives(), golden.bytes()
        assert len(lives) == restarts + 1, len(lives)
        for rank in range(NODES):
            trained: List[List[Any]] = []
            for began, *batches in (life[rank] for life in lives):
                trained = [b for b in trained if b[0] <= began["after"]] + batches
                assert all(want[step, rank, microbatch] == digest for step, microbatch, digest in batches), rank
            slots = [(step, microbatch) for step, microbatch, _ in trained]
            assert slots == sorted((step, m) for step, r, m in want if r == rank), (rank, slots)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with Slurm(Path(os.environ["MILLRACE_SLURM"]), tmp_path_factory.mktemp("slurm") / "daemons", NODES + 1) as out:
        yield out


@pytest.fixture(scope="module")
def etcd(slurm: Slurm, stage: Any) -> Iterator[Etcd]:
    directory = slurm.directory.parent
    hosts = ",".join([*slurm.nodes, slurm.address(CONTROLLER)])
    subprocess.run([str(stage.binary), "certs", "init", "--dir", str(directory / "certs"), "--hosts", hosts],
                   check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE)
    member = Etcd(Here(slurm), [CONTROLLER], directory, program(), directory / "certs")
    yield member
    member.close()


class Here:
    """The controller's host, where etcd runs, in place of a lab."""

    def __init__(self, slurm: Slurm) -> None:
        self.address = slurm.address

    def enter(self, name: str) -> List[str]:
        return []


@pytest.fixture
def job(slurm: Slurm, etcd: Etcd, stage: Any, request: pytest.FixtureRequest) -> Iterator[Job]:
    out = Job(slurm, stage, slurm.directory.parent / request.node.name, etcd)
    yield out
    slurm.command("scancel", out.number)
    until("nothing of the job is left", lambda: not slurm.processes("--run-dir"), out.said)


def test_a_killed_up_starts_again(job: Job, slurm: Slurm, stage: Any) -> None:
    """kill -9 of `up` on one node, and on the next one: the trainers wait, and go on with the next batch."""
    job.until_step(0)
    for _ in range(2):
        ups = slurm.processes("up", f"{SHARED}{job.directory}/mixture.yaml")
        assert len(ups) == NODES, (ups, job.said())
        os.kill(ups[0], signal.SIGKILL)
        job.until_step(0)
    job.check(stage.delivered(MIXTURE, NODES), restarts=0)
    said = (job.directory / f"slurm-{job.number}.out").read_text()
    assert said.count("was killed (status 137), and starts again") == 2, said


def test_a_requeued_job_goes_on(job: Job, slurm: Slurm, stage: Any) -> None:
    """`scontrol requeue` in the middle: the job starts again from its checkpoint."""
    job.until_step(0)
    slurm.command("scontrol", "requeue", job.number)
    job.until_step(1)
    job.check(stage.delivered(MIXTURE, NODES), restarts=1)


def test_a_node_is_lost(job: Job, slurm: Slurm, stage: Any) -> None:
    """All processes of a node end at once. Slurm starts the job again on other nodes, one of which was idle before."""
    job.until_step(0)
    before = slurm.job(job.number)["NodeList"]
    slurm.lose("n2")
    job.until_step(1)
    assert slurm.job(job.number)["NodeList"] != before, before
    job.check(stage.delivered(MIXTURE, NODES), restarts=1)
