"""A run on the hosts of a lab: certificates, an etcd cluster on hosts of its own, and an `up` with its trainers on each
other host. Faults of hosts and of the network strike it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

import relay
from harness import DEADLINE, Run, Trainers, processes_of
from lab import Etcd, Lab
from trainer import Orders

TRAINING = ("h1", "h2", "h3")
MEMBERS = ("e1", "e2", "e3")
PATIENCE = 120.0  # seconds for which a trainer waits for its host to come back
APART = 1200  # seconds; the monotonic clocks of hosts differ by up to so much
DAYS = 50 * 60  # seconds by which times of day are ahead or behind at most; certificates allow an hour


class Net:
    """A run on three hosts, with a cluster of three members on three other hosts."""

    def __init__(self, lab: Lab, stage: Any, directory: Path, program: str, ranks: int = 1) -> None:
        self.lab, self.stage, self.directory, self.ranks = lab, stage, directory, ranks
        self.certificates()
        self.etcd = Etcd(lab, MEMBERS, directory, program, directory / "certs")
        self.files = {}
        for name in TRAINING:
            self.files[name] = directory / f"{name}.yaml"
            address = lab.address(name)
            self.files[name].write_text(json.dumps({
                "name": "run-1", "etcd": [self.etcd.url(m) for m in MEMBERS], "listen": f"{address}:9400",
                "tls": {"ca": "certs/ca.pem", "cert": f"certs/{address}.pem", "key": f"certs/{address}-key.pem"},
            }))
        self.runs: Dict[str, Run] = {}
        self.trainers: Optional[Trainers] = None

    @property
    def world(self) -> int:
        return self.ranks * len(TRAINING)

    def certificates(self) -> None:
        """Makes the certificates of all hosts, or renews them."""
        hosts = ",".join(self.lab.address(name) for name in (*TRAINING, *MEMBERS))
        subprocess.run(
            [str(self.stage.binary), "certs", "init", "--dir", str(self.directory / "certs"), "--hosts", hosts],
            check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE,
        )

    def start(self, name: str, mixture: Mapping[str, Any], args: Any = ()) -> None:
        """Starts the `up` of a host, in the run directory that the host had before."""
        index = TRAINING.index(name)
        before = self.runs.get(name)
        self.runs[name] = self.stage.up(
            mixture, self.ranks, before.directory if before else None, first=index * self.ranks,
            launcher=self.lab.enter(name), binary=self.program(name), args=[
                "--world-size", str(self.world), "--first-rank", str(index * self.ranks), "--cluster",
                str(self.files[name]), *args,
            ],
        )

    def program(self, name: str) -> str:
        return self.lab.program(name, str(self.stage.binary))

    def train(self, orders: Orders) -> Trainers:
        sockets = [s for name in TRAINING for s in self.runs[name].sockets()]
        self.trainers = Trainers(sockets, [orders] * self.world)
        return self.trainers

    def status(self, name: str) -> Dict[str, Any]:
        done = subprocess.run(
            [*self.lab.enter(name), self.program(name), "status", str(self.runs[name].directory), "--json"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE,
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def leader(self) -> str:
        """The host whose orchestrator plans the run."""
        over = time.monotonic() + DEADLINE
        while True:
            for name in TRAINING:
                with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                    leads = [h["name"] for h in self.status(name).get("hosts", []) if h["leads"]]
                    if leads:
                        return next(n for n in TRAINING if self.lab.address(n) == leads[0])
            assert time.monotonic() < over, "no host plans the run"
            time.sleep(0.2)

    def processes(self, name: str, role: str = "") -> List[int]:
        """The processes of a host, or those of one role."""
        out = []
        for pid in processes_of(self.runs[name].directory):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if not role or words[1:3] == [b"role", role.encode()]:
                    out.append(pid)
        return out

    def strike(self, pids: List[int], which: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, which)

    def call(self, path: str, body: Dict[str, Any]) -> Dict[str, Any]:
        """Sends a request to the gateway of etcd, from the host of a member."""
        certs = self.directory / "certs"
        address = self.lab.address("e1")
        script = (
            "import ssl,sys,urllib.request;"
            f"c=ssl.create_default_context(cafile={str(certs / 'ca.pem')!r});"
            f"c.load_cert_chain({str(certs / (address + '.pem'))!r},{str(certs / (address + '-key.pem'))!r});"
            f"r=urllib.request.Request({self.etcd.url('e1') + path!r},data={json.dumps(body).encode()!r});"
            "print(urllib.request.urlopen(r,context=c,timeout=10).read().decode())"
        )
        done = subprocess.run([*self.lab.enter("e1"), "python3", "-c", script], capture_output=True, text=True,
                              timeout=DEADLINE)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def depose(self) -> None:
        """Deletes the election key, as an operator would who takes the lease by force."""
        self.call("/v3/kv/deleterange", {"key": base64.b64encode(b"millrace/run-1/train/leader").decode()})

    def compact(self) -> str:
        """Compacts etcd at its newest revision, which it returns."""
        key = base64.b64encode(b"millrace/run-1/train/leader").decode()
        revision = self.call("/v3/kv/range", {"key": key})["header"]["revision"]
        self.call("/v3/kv/compaction", {"revision": revision, "physical": True})
        return str(revision)

    def close(self) -> None:
        if self.trainers is not None:
            self.trainers.end()
        for run in self.runs.values():
            if getattr(run, "process", None) is not None and run.process.poll() is None:
                run.kill()
        self.etcd.close()

    def said(self) -> str:
        """What every `up` printed, for a failure."""
        out = []
        for name, run in self.runs.items():
            path = Path(f"{run.directory}.stderr")
            out.append(f"--- {name}\n{path.read_text(errors='replace')[-3000:] if path.exists() else ''}")
        return "\n".join(out)


@contextlib.contextmanager
def running(
    stage: Any, directory: Path, program: str, mixture: Mapping[str, Any], ranks: int = 1, seed: int = 1,
    days: Sequence[int] = (),
) -> Iterator[Net]:
    """A run on three hosts whose `up`s are ready. The clocks of all hosts differ, as the seed says. So do their times
    of day, if `days` does not give those of the hosts that train: one host is behind, and one is ahead. The members of
    etcd have the same ones."""
    hosts, rng = [*TRAINING, *MEMBERS], random.Random(seed)
    clocks = {name: rng.randint(0, APART) for name in hosts}
    drawn = [-rng.randint(1, DAYS), 0, rng.randint(1, DAYS)]
    of_all = [*(days or rng.sample(drawn, 3)), *rng.sample(days or drawn, 3)]
    with Lab(hosts, clocks, dict(zip(hosts, of_all))) as lab:
        net = Net(lab, stage, directory, program, ranks)
        try:
            for name in TRAINING:
                net.start(name, mixture)
                net.runs[name].__enter__()
            yield net
        finally:
            net.close()


# A fault strikes a run, returns when it is over, and names its victim. The run must go on afterwards.
Fault = Callable[[Net, random.Random], str]


def lose_host(net: Net, mixture: Mapping[str, Any], name: str, away: float) -> None:
    """Kills all processes of a host at once, and starts its `up` again later."""
    net.runs[name].kill()
    time.sleep(away)
    net.start(name, mixture)
    net.runs[name].__enter__()


def faults(mixture: Mapping[str, Any]) -> Dict[str, Fault]:
    """All faults by name."""

    def other(net: Net, rng: random.Random) -> str:
        leader = net.leader()
        return rng.choice([n for n in TRAINING if n != leader])

    def host_lost(net: Net, rng: random.Random) -> str:
        name = other(net, rng)
        lose_host(net, mixture, name, rng.uniform(0.5, 3))
        return name

    def leader_host_lost(net: Net, rng: random.Random) -> str:
        name = net.leader()
        lose_host(net, mixture, name, rng.uniform(0.5, 3))
        return name

    def host_stopped(net: Net, rng: random.Random) -> str:
        name = rng.choice(TRAINING)
        assert net.runs[name].stop() == 0
        time.sleep(rng.uniform(0, 2))
        net.start(name, mixture)
        net.runs[name].__enter__()
        return name

    def rolling_restart(net: Net, rng: random.Random) -> str:
        for name in TRAINING:
            done = subprocess.run(
                [*net.lab.enter(name), net.program(name), "restart", str(net.runs[name].directory)],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=4 * DEADLINE,
            )
            assert done.returncode == 0, done.stderr
        return "all hosts"

    def unplugged(net: Net, rng: random.Random) -> str:
        name = rng.choice(TRAINING)
        net.lab.unplug(name)
        time.sleep(rng.uniform(2, 9))
        net.lab.plug(name)
        return name

    def leader_unplugged(net: Net, rng: random.Random) -> str:
        name = net.leader()
        net.lab.unplug(name)
        time.sleep(rng.uniform(7, 10))
        net.lab.plug(name)
        return name

    def one_way(net: Net, rng: random.Random) -> str:
        name = rng.choice(TRAINING)
        sources = rng.choice([None, [n for n in TRAINING if n != name], list(MEMBERS)])
        net.lab.cut(name, sources)
        time.sleep(rng.uniform(2, 9))
        net.lab.heal(name)
        return f"{name} hears nothing of {'all' if sources is None else ', '.join(sources)}"

    def flapping(net: Net, rng: random.Random) -> str:
        name = rng.choice(TRAINING)
        for _ in range(6):
            net.lab.unplug(name)
            time.sleep(rng.uniform(0.1, 0.8))
            net.lab.plug(name)
            time.sleep(rng.uniform(0.1, 0.8))
        return name

    def slow_link(net: Net, rng: random.Random) -> str:
        name, rate = rng.choice(TRAINING), rng.choice(["2mbit", "8mbit"])
        net.lab.slow(name, rate)
        time.sleep(rng.uniform(2, 6))
        net.lab.quick(name)
        return f"{name} sends {rate}"

    def bad_cable(net: Net, rng: random.Random, faults: relay.Faults) -> str:
        name = rng.choice([*TRAINING, *MEMBERS])
        net.lab.worsen(name, faults, rng.randrange(1 << 30))
        time.sleep(rng.uniform(3, 9))
        net.lab.mend(name)
        return f"{name}, {faults}"

    def latency(net: Net, rng: random.Random) -> str:
        delay = rng.uniform(0.02, 0.15)
        return bad_cable(net, rng, relay.Faults(delay=delay, jitter=delay * rng.uniform(0, 0.1)))

    def reordered(net: Net, rng: random.Random) -> str:
        delay = rng.uniform(0.005, 0.03)
        return bad_cable(net, rng, relay.Faults(delay=delay, jitter=delay, ahead=rng.uniform(0, 0.3)))

    def packets_lost(net: Net, rng: random.Random) -> str:
        return bad_cable(net, rng, relay.Faults(loss=rng.uniform(0.01, 0.1)))

    def orchestrator_killed(net: Net, rng: random.Random) -> str:
        name = net.leader()
        net.strike(net.processes(name, "orchestrator"), signal.SIGKILL)
        return name

    def orchestrator_stopped(net: Net, rng: random.Random) -> str:
        name = net.leader()
        pids = net.processes(name, "orchestrator")
        net.strike(pids, signal.SIGSTOP)
        time.sleep(rng.uniform(6, 9))
        net.strike(pids, signal.SIGCONT)
        return name

    def role_killed(net: Net, rng: random.Random) -> str:
        name, role = rng.choice(TRAINING), rng.choice(["loader", "shadow", "sidecar"])
        net.strike(net.processes(name, role), signal.SIGKILL)
        return f"{role} of {name}"

    def loader_stopped(net: Net, rng: random.Random) -> str:
        name = rng.choice(TRAINING)
        pids = net.processes(name, "loader")
        net.strike(pids, signal.SIGSTOP)
        time.sleep(rng.uniform(0.5, 3))
        net.strike(pids, signal.SIGCONT)
        return name

    def deposed(net: Net, rng: random.Random) -> str:
        name = net.leader()
        net.depose()
        return f"{name}, by deleting its key"

    def compacted(net: Net, rng: random.Random) -> str:
        name = rng.choice(TRAINING)  # its watches go on at a revision that is gone
        net.lab.unplug(name)
        time.sleep(rng.uniform(1, 6))
        revision = net.compact()
        net.lab.plug(name)
        return f"at revision {revision}, while {name} is unplugged"

    def member_killed(net: Net, rng: random.Random) -> str:
        name = rng.choice(MEMBERS)
        net.etcd.kill(name)
        time.sleep(rng.uniform(1, 4))
        net.etcd.start(name)
        return name

    def member_stopped(net: Net, rng: random.Random) -> str:
        name = rng.choice(MEMBERS)
        net.etcd.signal(name, signal.SIGSTOP)
        time.sleep(rng.uniform(1, 5))
        net.etcd.signal(name, signal.SIGCONT)
        return name

    def quorum_lost(net: Net, rng: random.Random) -> str:
        lost = rng.sample(MEMBERS, 2)
        for name in lost:
            net.etcd.kill(name)
        time.sleep(rng.uniform(3, 9))
        for name in lost:
            net.etcd.start(name)
        return ", ".join(lost)

    def certificates_renewed(net: Net, rng: random.Random) -> str:
        net.certificates()
        name = rng.choice(TRAINING)
        net.strike(net.processes(name, "sidecar"), signal.SIGKILL)  # it connects with the new ones
        return f"and the sidecar of {name} restarted"

    own = {k: v for k, v in locals().items() if callable(v) and k not in ("other", "bad_cable")}
    return {name.replace("_", " "): fault for name, fault in own.items()}
