"""Hosts of a test: network namespaces of one machine, joined by a bridge, in a user namespace where root is not needed.

Processes of a host see its network alone. They share the file system and the process numbers of the machine, so a test
may read their files and kill them. A cut drops packets, as a broken link does: no connection is reset."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

import daytime
import needs
import relay
from harness import DEADLINE

NEEDS = ("unshare", "nsenter", "ip", "nft", "namespaces")  # of a Lab
NETWORK = "10.201.7"  # of the hosts; it exists inside the namespaces alone


class Lab:
    """A machine with hosts h1, h2, …, each with an address of its own. `clocks` are the seconds by which the monotonic
    clocks of hosts are ahead of the machine's. `days` are those by which the times of day are ahead. The kernel has one
    time of day for all, so a host has another one only in Go programs that `program` names."""

    def __init__(
        self, names: Sequence[str], clocks: Mapping[str, int] = {}, days: Mapping[str, int] = {}
    ) -> None:
        needs.use(*NEEDS)
        self.names = list(names)
        self._clocks = dict(clocks) if os.path.exists("/proc/self/ns/time") else {}
        self.days = {n: s for n, s in days.items() if s} if daytime.is_possible() else {}
        self._programs = tempfile.TemporaryDirectory(prefix="lab-")
        self._cables: Dict[str, subprocess.Popen[bytes]] = {}
        self._holder = subprocess.Popen(
            ["unshare", "-Urnm", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # it ends with its input, also if this process is killed
        try:
            self._await_namespaces()
            self._sh("mount -t tmpfs tmpfs /run && mkdir -p /run/netns && ip link add br0 type bridge && "
                     "ip link set br0 up && ip link set lo up")
            for name in self.names:
                self._sh(
                    f"ip netns add {name} && ip link add {name} type veth peer name eth0 netns {name} && "
                    f"ip link set {name} master br0 up && ip netns exec {name} sh -c '"
                    f"ip addr add {self.address(name)}/24 dev eth0 && ip link set eth0 up && ip link set lo up'"
                )
            for name, ahead in self._clocks.items():
                self._sh(f"touch /run/clock-{name} && "
                         f"unshare --time=/run/clock-{name} --monotonic {ahead} --boottime {ahead} true")
        except BaseException:
            self.close()
            raise

    def _await_namespaces(self) -> None:
        own, over = os.readlink("/proc/self/ns/net"), time.monotonic() + 5
        while True:
            if self._holder.poll() is not None:
                assert self._holder.stderr is not None
                raise RuntimeError("no network namespaces: " + self._holder.stderr.read().decode().strip())
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{self._holder.pid}/comm").read_text().strip()
                if os.readlink(f"/proc/{self._holder.pid}/ns/net") != own and command == "cat":
                    return
            assert time.monotonic() < over, "unshare makes no namespaces"
            time.sleep(0.01)

    def close(self) -> None:
        for name in list(self._cables):
            self._pull(name)
        self._holder.kill()
        self._holder.wait()
        self._programs.cleanup()

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def address(self, name: str) -> str:
        return f"{NETWORK}.{1 + self.names.index(name)}"

    def enter(self, name: str) -> List[str]:
        """The beginning of a command that runs on a host."""
        clock = ["nsenter", f"--time=/run/clock-{name}"] if name in self._clocks else []
        return [*self._enter(), "ip", "netns", "exec", name, *clock]

    def program(self, name: str, path: str) -> str:
        """The program that a host runs in place of this one."""
        ahead = self.days.get(name, 0)
        copy = Path(self._programs.name, f"{Path(path).name}{ahead:+}")
        if ahead and not copy.exists():
            daytime.ahead(Path(path), ahead, copy)
        return str(copy) if ahead else path

    def _enter(self) -> List[str]:
        return ["nsenter", "-t", str(self._holder.pid), "-U", "-n", "-m", "--preserve-credentials"]

    def _sh(self, script: str) -> str:
        done = subprocess.run([*self._enter(), "sh", "-ec", script], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=DEADLINE)
        assert done.returncode == 0, f"{script}: {done.stderr}"
        return done.stdout

    def cut(self, name: str, sources: Optional[Sequence[str]] = None) -> None:
        """Drops all packets that a host receives from others, or from some. The host can still send: for a cut in both
        directions, cut both ends or use `unplug`."""
        froms = [self.address(s) for s in (sources if sources is not None else self.names) if s != name]
        rules = "".join(f"  ip saddr {a} drop\n" for a in froms)
        table = f"table inet cut {{\n chain in {{\n  type filter hook input priority 0;\n{rules} }}\n}}\n"
        done = subprocess.run([*self.enter(name), "nft", "-f", "-"], input=table, capture_output=True, text=True,
                              timeout=DEADLINE)
        assert done.returncode == 0, done.stderr

    def heal(self, name: str) -> None:
        subprocess.run([*self.enter(name), "nft", "delete", "table", "inet", "cut"], capture_output=True,
                       timeout=DEADLINE, check=False)

    def unplug(self, name: str) -> None:
        """Takes a host from the network."""
        self._sh(f"ip link set {name} down")

    def plug(self, name: str) -> None:
        self._sh(f"ip link set {name} up")

    def slow(self, name: str, rate: str) -> None:
        """Limits the packets that a host sends, such as to 2mbit."""
        self._sh(f"ip netns exec {name} tc qdisc replace dev eth0 root tbf rate {rate} burst 16kb latency 200ms")

    def quick(self, name: str) -> None:
        """Ends the limit of `slow`."""
        self._sh(f"ip netns exec {name} tc qdisc del dev eth0 root")

    def worsen(self, name: str, faults: relay.Faults, seed: int) -> None:
        """Replaces the cable of a host by a bad one. Connections survive it."""
        needs.use("tun")
        words = [f"--{k}={v}" for k, v in dataclasses.asdict(faults).items()]
        cable = self._cables[name] = subprocess.Popen(
            [*self._enter(), sys.executable, relay.__file__, f"--host={name}", f"--seed={seed}", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        assert cable.stdout is not None and cable.stderr is not None
        if not cable.stdout.readline():
            said = cable.stderr.read().decode()
            self._pull(name)
            raise AssertionError(said)

    def mend(self, name: str) -> None:
        """Ends `worsen`."""
        self._pull(name)
        self._sh(f"ip link set {name} master br0")

    def _pull(self, name: str) -> None:
        cable = self._cables.pop(name)
        cable.kill()
        cable.communicate()


class Etcd:
    """A cluster of etcd members, one on each of some hosts."""

    def __init__(self, lab: Lab, names: Sequence[str], directory: Path, program: str, certificates: Path) -> None:
        self.lab, self.names, self.directory, self.program = lab, list(names), directory, program
        self._certificates = certificates
        self.processes: Dict[str, subprocess.Popen[bytes]] = {}
        for name in self.names:
            self.start(name)

    def url(self, name: str, port: int = 2379) -> str:
        return f"https://{self.lab.address(name)}:{port}"

    def start(self, name: str) -> None:
        own = [str(self._certificates / f"{self.lab.address(name)}{end}.pem") for end in ("", "-key")]
        authority = str(self._certificates / "ca.pem")
        with open(self.directory / f"etcd-{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.lab.enter(name), self.lab.program(name, self.program), "--name", name,
                 "--data-dir", str(self.directory / f"etcd-{name}"),
                 "--listen-client-urls", self.url(name), "--advertise-client-urls", self.url(name),
                 "--listen-peer-urls", self.url(name, 2380), "--initial-advertise-peer-urls", self.url(name, 2380),
                 "--initial-cluster", ",".join(f"{n}={self.url(n, 2380)}" for n in self.names),
                 "--cert-file", own[0], "--key-file", own[1], "--trusted-ca-file", authority, "--client-cert-auth",
                 "--peer-cert-file", own[0], "--peer-key-file", own[1], "--peer-trusted-ca-file", authority,
                 "--peer-client-cert-auth", "--log-level", "warn", "--unsafe-no-fsync"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def signal(self, name: str, which: signal.Signals) -> None:
        self.processes[name].send_signal(which)

    def close(self) -> None:
        for name in self.names:
            if self.processes[name].poll() is None:
                self.kill(name)
