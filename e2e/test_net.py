"""A run on hosts with a network of their own, which fails. `make chaos-net` injects more faults."""

from __future__ import annotations

import datetime
import json
import random
import re
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any, Iterator, List

import pytest

import daytime
import net
from conftest import variant
from harness import DEADLINE
from lab import NEEDS, Lab
from relay import Faults
from test_cluster import program
from trainer import Orders

MIXTURE = variant({"global_batch_size": 6, "micro_batch_size": 1, "stop": {"steps": 60}, "loaders": 1})


@pytest.mark.needs("etcd", *NEEDS)
def test_faults_change_no_byte(stage: Any, tmp_path: Path) -> None:
    """The leader is unplugged, and after that a host hears nothing."""
    golden = stage.delivered(MIXTURE, len(net.TRAINING))
    with net.running(stage, tmp_path, program(), MIXTURE) as run:
        trainers, step, done = run.train(Orders(pause=0.2, patience=net.PATIENCE)), 0, []
        for name in ("leader unplugged", "one way"):
            trainers.collect(until=step + 3)
            step = max(b.step for batches in trainers.delivered.ranks for b in batches)
            assert step < MIXTURE["stop"]["steps"] - 5, f"the run is at step {step} before the fault {name}"
            done.append((name, net.faults(MIXTURE)[name](run, random.Random(1))))
            trainers.drain()
            step = max(b.step for batches in trainers.delivered.ranks for b in batches)
        delivered = trainers.collect()
        assert delivered.ends == ["end"] * run.world, (done, delivered.ends, run.said())
        for up in run.runs.values():
            assert up.wait(DEADLINE) == 0, run.said()
        assert delivered.bytes() == golden.bytes(), done


DAYS = (2 * 60, -7 * 60, 9 * 60)  # seconds by which the times of day of the hosts are ahead


@pytest.mark.needs("etcd", "x86-64", *NEEDS)
def test_times_of_day_differ(stage: Any, tmp_path: Path) -> None:
    """The host that plans is lost with all its processes. The next one has a time of day that is minutes away from that
    of the first, and of the third. The logs of each host show it."""
    golden = stage.delivered(MIXTURE, len(net.TRAINING))
    began = time.time()
    with net.running(stage, tmp_path, program(), MIXTURE, days=DAYS) as run:
        trainers = run.train(Orders(pause=0.05, patience=net.PATIENCE))
        trainers.collect(until=3)
        lost = run.leader()
        run.runs[lost].kill()
        run.start(lost, MIXTURE)
        run.runs[lost].__enter__()
        delivered = trainers.collect()
        assert delivered.ends == ["end"] * run.world, (delivered.ends, run.said())
        for up in run.runs.values():
            assert up.wait(DEADLINE) == 0, run.said()
        shown = {name: logged(up.stderr()) for name, up in run.runs.items()}
    assert delivered.bytes() == golden.bytes()
    assert any(shown[name] for name in net.TRAINING if name != lost), "no host logs that a loader was lost"
    for ahead, (name, times) in zip(DAYS, shown.items()):
        assert all(began - 1 <= t - ahead <= time.time() for t in times), (name, ahead, [t - began for t in times])


def logged(text: str) -> List[float]:
    """The times of the lines of a log, in seconds since 1970."""
    found = re.findall(r"^time=(\S+)\.\d+(Z|[+-]\d\d:\d\d) ", text, re.MULTILINE)
    return [datetime.datetime.strptime(t + zone, "%Y-%m-%dT%H:%M:%S%z").timestamp() for t, zone in found]


# An echo of every datagram, and a client that notes the number of each answer, and the times since its question and
# since the first one.
ECHO = "import socket\ns=socket.socket(type=2);s.bind(('',7));print('',flush=True)\nwhile 1: s.sendto(*s.recvfrom(99))"
ASK = """
import json, socket, sys, time
s = socket.socket(type=2)
s.connect((sys.argv[1], 7))
s.settimeout(2)
sent, got = [], []
for i in range(100):
    sent.append(time.monotonic())
    s.send(b"%d" % i)
    time.sleep(0.002)
try:
    while len(got) < 100:
        i = int(s.recv(99))
        got.append((i, time.monotonic() - sent[i], time.monotonic() - sent[0]))
except TimeoutError:
    pass
print(json.dumps(got))
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(["h1", "h2"], {"h1": 0, "h2": 600}, {"h2": 540}) as out:
        yield out


FRAME = 14 + 20 + 8 + 1  # bytes of the shortest
CABLES = {"delay": Faults(delay=0.2), "ahead": Faults(delay=0.02, ahead=0.3), "loss": Faults(loss=0.2),
          "rate": Faults(rate=4e3)}


@pytest.mark.needs("tun", *NEEDS)
@pytest.mark.parametrize("faults", CABLES.values(), ids=list(CABLES))
def test_a_bad_cable(lab: Any, faults: Faults) -> None:
    """The cable has the faults that it is asked for, and no others."""
    echo = subprocess.Popen([*lab.enter("h1"), "python3", "-c", ECHO], stdout=subprocess.PIPE)
    try:
        assert echo.stdout is not None and echo.stdout.readline()

        def ask() -> List[Any]:
            done = subprocess.run([*lab.enter("h2"), "python3", "-c", ASK, lab.address("h1")], capture_output=True,
                                  text=True, timeout=DEADLINE)
            assert done.returncode == 0, done.stderr
            return list(json.loads(done.stdout))

        lab.worsen("h1", faults, seed=1)
        try:
            got = ask()
            numbers = [number for number, _, _ in got]
            assert len(set(numbers)) == len(numbers)
            assert (len(numbers) < 90) == bool(faults.loss), numbers
            assert (numbers != sorted(numbers)) == bool(faults.ahead), numbers
            assert min(took for _, took, _ in got) >= 2 * faults.delay * (not faults.ahead), got
            if faults.rate:
                assert got[-1][2] >= 99 * FRAME / faults.rate, got
        finally:
            lab.mend("h1")
        assert [number for number, _, _ in ask()] == list(range(100))
    finally:
        echo.kill()
        echo.communicate()


@pytest.mark.needs("time-namespaces", *NEEDS)
def test_clocks_of_hosts_differ(lab: Any) -> None:
    def now(name: str) -> float:
        read = "import time; print(time.monotonic())"
        return float(subprocess.check_output([*lab.enter(name), "python3", "-c", read], timeout=DEADLINE))

    before = time.monotonic()
    assert 600 <= now("h2") - before < 600 + DEADLINE and 0 <= now("h1") - before < DEADLINE


@pytest.mark.needs("x86-64", *NEEDS)
def test_times_of_day_of_programs_differ(stage: Any, lab: Any, tmp_path: Path) -> None:
    """The time of day of a host's program is ahead by exactly the seconds that were asked for."""
    for name in ("h1", "h2"):
        certs = tmp_path / name
        before = time.time()
        subprocess.run([lab.program(name, str(stage.binary)), "certs", "init", "--dir", str(certs), "--hosts", name],
                       check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(str(certs / "ca.pem"))
        valid = ssl.cert_time_to_seconds(str(context.get_ca_certs()[0]["notBefore"])) + daytime.HOUR
        assert int(before) <= valid - lab.days.get(name, 0) <= time.time(), name
