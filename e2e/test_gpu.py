"""The sidecar and the GPUs of its ranks, with a library in place of the driver's, and without a driver."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

import millrace
from conftest import variant
from harness import command

ENDLESS = variant(
    {"stop": {"steps": 1_000_000}, "global_batch_size": 8, "micro_batch_size": 2, "sequence_length": 192}
)


def train(path: str, over: threading.Event) -> None:
    with millrace.connect(path, tensors="numpy", start="latest") as loader:
        for _ in loader:
            if over.wait(0.02):
                return


def cpus_of(process: int) -> List[str]:
    """The CPUs on which each thread of a process may run."""
    out = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        lines = (thread / "status").read_text().splitlines()
        out.append(next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list")))
    return out


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a library in place of the driver's."""
    at = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("nvml.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(at / "libnvidia-ml.so.1"), str(source)], check=True)
    return at


@pytest.mark.needs("cc")
def test_gpus_of_ranks(stage: Any, driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = max(os.sched_getaffinity(0))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")  # of the trainers
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    env = {"LD_LIBRARY_PATH": str(driver), "NVML_CPU": str(last)}
    with stage.up(ENDLESS, 1, env=env) as run:
        over = threading.Event()
        trainer = threading.Thread(target=train, args=(str(run.directory / "rank-0.sock"), over))
        trainer.start()
        try:
            end = time.monotonic() + 30
            status: Dict[str, Any] = {}
            # Idle time is split after at least five seconds.
            while time.monotonic() < end and not any(g["idle_other_seconds"] for g in status.get("gpus", [])):
                time.sleep(0.5)
                status = json.loads(command(stage.binary, "status", str(run.directory), "--json"))
            (gpu,) = status["gpus"]
            sidecar = next(r["pid"] for r in status["roles"] if r["role"] == "sidecar")
            assert set(cpus_of(sidecar)) == {str(last)}
        finally:
            over.set()
            trainer.join()
    assert (gpu["rank"], gpu["index"], gpu["uuid"], gpu["name"]) == (0, 1, "GPU-1111", "Test GPU")
    assert gpu["busy"] == 0.5 and gpu["memory_used"] == 60 << 30 and gpu["memory"] == 80 << 30
    assert (gpu["clock_mhz"], gpu["most_clock_mhz"], gpu["throttled"]) == (1500, 1980, ["heat"])
    assert gpu["cpus"] == str(last) and gpu["pcie_transmitted"] == 2_000_000
    idle = gpu["idle_data_seconds"] + gpu["idle_other_seconds"]
    assert 2 < idle < 20 and gpu["idle_data_seconds"] < idle / 2, gpu


@pytest.mark.needs("no-gpu-driver")
def test_a_host_without_a_driver_says_so_once(stage: Any) -> None:
    with stage.up(ENDLESS, 1, env={"MILLRACE_LOG": "info"}) as run:
        over = threading.Event()
        trainer = threading.Thread(target=train, args=(str(run.directory / "rank-0.sock"), over))
        trainer.start()
        time.sleep(3)
        status = json.loads(command(stage.binary, "status", str(run.directory), "--json"))
        over.set()
        trainer.join()
        told = run.stderr()
    assert status["gpus"] == [] and status["step"] > 0
    assert told.count("GPUs are not watched") == 1, told
