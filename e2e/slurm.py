"""Slurm on nodes of a test: real daemons, each node with a network, a host name, processes and a /tmp of its own.

The file system of the machine is the one that all nodes see; they see it below SHARED, because their /tmp hides a part
of it. Call it as root in a PID, mount and network namespace: tools/test_slurm.sh makes one."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping

from harness import DEADLINE

NETWORK = "10.201.8"
CONTROLLER = "ctl"
SHARED = Path("/mnt")
PATIENCE = 4 * DEADLINE  # for Slurm's own delays, such as 30 seconds without an answer of a node


class Slurm:
    """A controller and its nodes."""

    def __init__(self, unpacked: Path, directory: Path, nodes: int) -> None:
        self.unpacked, self.directory = unpacked, directory
        self.nodes = [f"n{i + 1}" for i in range(nodes)]
        plugins = next(unpacked.glob("usr/lib/*/slurm-wlm"))
        self.env = {
            **os.environ, "SLURM_CONF": f"{SHARED}{directory}/slurm.conf",
            "LD_LIBRARY_PATH": f"{SHARED}{plugins}:{SHARED}{plugins.parent}",
            "PATH": f"{SHARED}{unpacked}/usr/bin:{os.environ['PATH']}",
        }
        directory.mkdir()
        directory.chmod(0o755)
        (directory / "slurm.conf").write_text(f"""
ClusterName=test
SlurmctldHost={CONTROLLER}({self.address(CONTROLLER)})
SlurmUser=root
SlurmdUser=root
PluginDir={SHARED}{plugins}
AuthType=auth/munge
AuthInfo=socket={SHARED}{directory}/munge,cred_expire=10
StateSaveLocation={directory}/state
SlurmdSpoolDir={SHARED}{directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={SHARED}{directory}/slurmd-%n.pid
SlurmdParameters=config_overrides
SlurmdTimeout=30
MessageTimeout=60
KillWait=10
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
""" + "".join(f"NodeName={n} NodeAddr={self.address(n)} CPUs=32\n" for n in self.nodes)
            + "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")
        self._processes: Dict[str, subprocess.Popen[bytes]] = {}

    def address(self, name: str) -> str:
        return f"{NETWORK}.{100 if name == CONTROLLER else 1 + self.nodes.index(name)}"

    def __enter__(self) -> "Slurm":
        (self.directory / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
            f"{self.address(n)} {n}\n" for n in (CONTROLLER, *self.nodes)))
        (self.directory / "key").write_bytes(os.urandom(1024))
        (self.directory / "key").chmod(0o400)
        self._sh(f"mount --rbind / {SHARED}; mount --bind {self.directory}/hosts /etc/hosts; mkdir -p /run/netns; "
                 f"hostname {CONTROLLER}; ip link add br0 type bridge; ip link set br0 up; "
                 f"ip addr add {self.address(CONTROLLER)}/24 dev br0")
        for name in self.nodes:
            self._sh(f"ip netns add {name}; ip link add {name} type veth peer name eth0 netns {name}; "
                     f"ip link set {name} master br0 up; ip netns exec {name} sh -c '"
                     f"ip addr add {self.address(name)}/24 dev eth0; ip link set eth0 up; ip link set lo up'")
        sbin = self.unpacked / "usr" / "sbin"
        self._start("munged", [str(sbin / "munged"), "-F", "--force", "--key-file", str(self.directory / "key"), *(
            f"--{of}={self.directory}/munge{end}" for of, end in (
                ("socket", ""), ("pid-file", ".pid"), ("seed-file", ".seed"), ("log-file", ".log")))])
        until("munged listens", lambda: (self.directory / "munge").exists())
        self._start("slurmctld", [str(sbin / "slurmctld-wlm"), "-D"])
        for name in self.nodes:
            self.boot(name)
        until("all nodes are idle", lambda: self.command("sinfo", "-h", "-o", "%T %D").split() == [
            "idle", str(len(self.nodes))] or self._is_dead(), self.said)
        assert not self._is_dead(), self.said()
        return self

    def __exit__(self, *_: Any) -> None:
        for process in reversed(list(self._processes.values())):
            process.kill()
            process.wait()

    def boot(self, name: str) -> None:
        """Starts a node, which has its slurmd and nothing else."""
        sbin = self.unpacked / "usr" / "sbin"
        self._start(name, [
            "nsenter", f"--net=/run/netns/{name}", "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child",
            "--mount-proc", "sh", "-ec", f"hostname {name}; mount -t tmpfs tmpfs /tmp; exec \"$@\"", name,
            str(SHARED) + str(sbin / "slurmd-wlm"), "-D", "-N", name,
            "-d", str(SHARED) + str(sbin / "slurmstepd-wlm"),
        ])

    def lose(self, name: str) -> None:
        """Ends every process of a node at once, as a power cut does."""
        self._processes[name].kill()
        self._processes[name].wait()

    def processes(self, *words: str) -> List[int]:
        """The processes of all nodes whose command line has these words one after the other."""
        wanted, out = b"\0".join(w.encode() for w in words), []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if b"\0" + wanted + b"\0" in b"\0" + Path(f"/proc/{pid}/cmdline").read_bytes():
                    out.append(int(pid))
        return out

    def submit(self, directory: Path, script: str, env: Mapping[str, str]) -> str:
        """Submits a job from a directory as the nodes see it, and returns its number."""
        done = subprocess.run(["sbatch", "--parsable", script], cwd=f"{SHARED}{directory}", env={**self.env, **env},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, number: str) -> Dict[str, str]:
        """What Slurm says of a job, such as its JobState."""
        said = self.command("scontrol", "show", "job", number, "--oneliner")
        return dict(re.findall(r"(\w+)=(\S*)", said))

    def command(self, *words: str) -> str:
        done = subprocess.run(words, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=DEADLINE)
        return done.stdout if done.returncode == 0 else f"{words}: {done.stderr}"

    def said(self) -> str:
        """The ends of all logs, for a failure."""
        logs = sorted(self.directory.glob("*.log"))
        return "\n".join(f"--- {p.name}\n{p.read_text(errors='replace')[-1500:]}" for p in logs)

    def _is_dead(self) -> bool:
        return any(p.poll() is not None for p in self._processes.values())

    def _start(self, name: str, words: List[str]) -> None:
        with open(self.directory / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(words, env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                                                     stderr=log)

    def _sh(self, script: str) -> None:
        subprocess.run(["sh", "-ec", script], check=True, stdin=subprocess.DEVNULL, timeout=DEADLINE)


def until(what: str, is_true: Callable[[], bool], said: Callable[[], str] = lambda: "") -> None:
    over = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < over, f"{what}: not within {PATIENCE:.0f} s\n{said()}"
        time.sleep(0.5)
