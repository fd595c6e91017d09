"""One run of the real binary and real trainers under planned faults. Its driver does the work of a cluster's launcher.
It restarts a dead `up`. When a trainer dies, it restarts all trainers from a checkpoint."""

from __future__ import annotations

import json
import os
import random
import resource
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import stub
from faults import Plan
from forks import processes
from harness import DEADLINE, SOON, processes_of
from millrace._connection import Connection
from millrace._errors import Lost

TICK = 0.005  # seconds between two turns of the driver
STOPPED = (0.02, 0.5)  # seconds for which a process is stopped
STAYS = 0.5  # seconds that a second client waits for its refusal
PATIENCE = 60.0  # a run without a batch, death or fault for this number of seconds counts as hung


def written(events: Path) -> int:
    """The progress of a run's trainers, as bytes of their records."""
    return sum(p.stat().st_size for p in events.glob("trainer-*.jsonl"))


def send(pid: int, number: int) -> None:
    """Sends a signal, unless the process has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Ordeal:
    """A run directory and its driver. `run` returns the problems that the history does not show."""

    def __init__(
        self,
        binary: Path,
        mixture: Path,
        directory: Path,
        ranks: int,
        plan: Plan,
        seed: int,
        pause: float,
        size: int = 0,
    ) -> None:
        self.binary, self.mixture, self.directory, self.ranks, self.plan, self.pause, self.size = (
            binary, mixture, directory, ranks, plan, pause, size,
        )
        self.events, self.marks, self.checkpoints = (
            Path(f"{directory}.{what}") for what in ("events", "marks", "states")
        )
        for made in (self.events, self.marks, self.checkpoints):
            made.mkdir(parents=True)
        self.spec = ";".join(plan.armed).replace("{marks}", str(self.marks))
        self._rng = random.Random(seed)
        self._record = stub.Record(str(self.events), "driver")
        self._due: List[Tuple[float, Callable[[], None]]] = []
        self._up: Optional[subprocess.Popen[bytes]] = None
        self._trainers: List[Any] = []
        self._strangers: List[Connection] = []
        self._dying: Set[int] = set()
        self._finished = False
        self._outlived: Optional[float] = (
            None  # when to restart all trainers, if `up` ended without one of them
        )
        self.paused = 0.0  # seconds for which processes were stopped
        self.stderr = Path(f"{directory}.stderr")

    def run(self) -> List[str]:
        """Runs to the end."""
        try:
            self._start_up()
            self._start_trainers(start=None)
            return self._watch()
        finally:
            self._end()

    def said(self) -> str:
        return self.stderr.read_text(encoding="utf-8", errors="replace")

    # Restarting processes.

    def _watch(self) -> List[str]:
        last, size, moments = time.monotonic(), -1, list(self.plan.moments)
        while True:
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                self._due.pop(0)[1]()
            moved = self._keep_up() | self._keep_trainers()
            wrote = written(self.events)
            if moments and wrote >= moments[0][0] * self.size:
                _, what, number = moments.pop(0)
                self._due.append(
                    (
                        now + random.Random(number).uniform(0, 0.03),
                        lambda what=what, number=number: self._happen(what, number),
                    )
                )
                self._due.sort(key=lambda d: d[0])
            if moved or wrote != size:
                last, size = now, wrote
            if self._trainers and all(t.exitcode == 0 for t in self._trainers):
                ended = self._ended()
                if ended is not None:
                    return ended
            elif now - last > PATIENCE:
                self._stacks()
                return [
                    f"nothing happened for {PATIENCE:.0f} s; stacks are in {self.directory}/crash-*.log "
                    f"and {self.events}/*.log; `up` printed:\n{self.said()}"
                ]
            time.sleep(TICK)

    def _keep_up(self) -> bool:
        assert self._up is not None
        code = self._up.poll()
        if code is None or self._finished:
            return False
        self._finished = code == 0 and all(t.exitcode == 0 for t in self._trainers)
        if code > 0:
            raise AssertionError(f"`up` ended with {code}:\n{self.said()}")
        if not self._finished:
            if code == 0:  # every rank had finished, but a trainer died before it knew, and is back alone
                self._outlived = time.monotonic() + 1
            self._start_up()
        return True

    def _ended(self) -> Optional[List[str]]:
        """Waits for the end after every rank has finished. A restarted `up` gets SIGTERM, because no rank
        connects to it."""
        assert self._up is not None
        self._due.clear()
        try:
            if self._ups > 1:
                self._wait_ready(self._up.pid)
                self._up.terminate()
            code = self._up.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            return [f"`up` did not end within {DEADLINE:.0f} s after the last rank; it printed:\n{self.said()}"]
        if code < 0:  # a failpoint killed it during its end
            self._start_up()
            return None
        if code > 0:
            return [f"`up` ended with {code}:\n{self.said()}"]
        return []

    def _wait_ready(self, pid: int) -> None:
        """Waits until an `up` owns the run directory or has ended."""
        record, until = self.events / f"up-{pid}.jsonl", time.monotonic() + DEADLINE
        while time.monotonic() < until and self._up is not None and self._up.poll() is None:
            if record.exists() and '"ready"' in record.read_text():
                return
            time.sleep(TICK)

    def _keep_trainers(self) -> bool:
        """Restarts all ranks from one checkpoint after one rank's death, as launchers do."""
        dead = [t for t in self._trainers if t.exitcode not in (None, 0)]
        over = self._outlived is not None and time.monotonic() > self._outlived
        if not dead and not over:
            return False
        self._outlived = None
        for t in self._trainers:
            t.kill()
            t.join()
        states = stub.checkpoints(str(self.checkpoints), self.ranks)
        choice = self._rng.random()
        if choice * 10 % 1 < 0.2 or self._early:
            self._early = False
            self._stranger(0)  # rank 0 has no claim: the sidecar reads its start and refuses it
        self._clear_seats()
        if states and choice < 0.6:
            self._start_trainers(state=states[-1])
        elif states and choice < 0.85:
            self._start_trainers(state=self._rng.choice(states))
        else:
            self._start_trainers(start="latest")
        return True

    _ups = 0
    _early = False  # a second client comes before the next trainers

    def _start_up(self) -> None:
        env = {**os.environ, "MILLRACE_FAILPOINTS": self.spec}
        command = [
            str(self.binary), "up", str(self.mixture), "--ranks", str(self.ranks), "--run-dir", str(self.directory),
            "--events", str(self.events),
        ]
        with open(self.stderr, "ab") as err:
            self._up = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                env=env,
                start_new_session=True,
            )
        self._ups += 1

    def _start_trainers(self, start: Optional[str] = None, state: Optional[Dict[str, Any]] = None) -> None:
        first = not self._trainers
        self._trainers = []
        for rank in range(self.ranks):
            orders = stub.Orders(
                rank,
                str(self.directory / f"rank-{rank}.sock"),
                str(self.events),
                str(self.checkpoints),
                start,
                state,
                self.pause,
                naps=self.plan.naps if first else (),
                cuts=self.plan.cuts,
                failpoints=self.spec,
            )
            child = processes().Process(target=stub.train, args=(orders,), daemon=True)
            child.start()
            self._trainers.append(child)

    def _stacks(self) -> None:
        """Makes every process write its stacks. This ends roles, but not trainers."""
        for pid in [pid for _, pid in self._roles()] + [t.pid for t in self._trainers if t.exitcode is None]:
            send(pid, signal.SIGQUIT)
        time.sleep(1)

    # Faults at random moments.

    def _happen(self, what: str, number: float) -> None:
        rng = random.Random(number)
        if what == "stranger":
            rank = rng.randrange(self.ranks)
            if self._seated(rank):
                self._stranger(rank)
            else:
                self._due.append((time.monotonic() + 0.05, lambda: self._happen(what, number)))
                self._due.sort(key=lambda d: d[0])
            return
        if what == "up":
            assert self._up is not None
            self._strike("kill", "up", self._up.pid)
            return
        if what in ("trainer", "early"):
            self._early |= what == "early"
            rank = rng.randrange(self.ranks)
            if self._trainers[rank].exitcode is None:
                self._strike("kill", f"trainer-{rank}", self._trainers[rank].pid)
            return
        roles = self._roles()
        if what == "leave":
            roles, what = [(name, pid) for name, pid in roles if name.startswith("sidecar")], "term"
        for name, pid in rng.sample(roles, min(len(roles), 2 if what == "pair" else 1)):
            self._strike(
                "kill" if what == "pair" else what, name, pid, rng.uniform(*STOPPED), "pair" if what == "pair" else ""
            )

    def _roles(self) -> List[Tuple[str, int]]:
        """The living children by name, so that a seed draws the same ones."""
        try:
            listed = json.loads((self.directory / "run" / "roles.json").read_text())
        except (OSError, ValueError):
            return []
        # The list of a dead `up` may contain ended children, and the kernel may have reused a pid.
        return sorted(
            (r["name"], r["pid"])
            for r in listed
            if r["pid"] in processes_of(self.directory, [r["pid"]]) and r["state"] == "running"
        )

    def _stranger(self, rank: int) -> None:
        """Connects a second client that claims a rank, with a state that no run saved. The sidecar refuses it."""
        try:
            caller = Connection(str(self.directory / f"rank-{rank}.sock"))
            caller.hello(rank, {"start": "state", "state": {"no": "state"}}, (0, 0, 0))
        except (OSError, Lost):
            return  # no sidecar listens
        self._record.write(
            "fault",
            key="stranger",
            name="sidecar-0",
            victim=next((pid for name, pid in self._roles() if name == "sidecar-0"), 0),
        )
        self._strangers.append(caller)
        self._due.append((time.monotonic() + STAYS, caller.close))
        self._due.sort(key=lambda d: d[0])

    def _seated(self, rank: int) -> bool:
        """Whether a rank's trainer has received a batch. Before its first batch, another client may hold the claim."""
        record = self.events / f"trainer-{rank}-{self._trainers[rank].pid}.jsonl"
        return record.exists() and '"batch"' in record.read_text()

    def _clear_seats(self) -> None:
        """Disconnects second clients without an answer, so that trainers can claim their ranks. They have no answer
        while the orchestrator is away."""
        for caller in self._strangers:
            if caller.sock.fileno() >= 0 and not select.select([caller.sock], [], [], STAYS)[0]:
                caller.close()
        self._strangers.clear()

    def _strike(self, what: str, name: str, pid: int, seconds: float = 0.0, also: str = "") -> None:
        if pid in self._dying:
            return
        if what in ("kill", "term", "memory"):
            self._dying.add(pid)
        self._record.write("fault", key=also or what, name=name, victim=pid)
        try:
            if what == "memory":  # the address space cannot grow: the next large allocation ends the process
                resource.prlimit(pid, resource.RLIMIT_AS, (1 << 20, 1 << 20))
                return
            os.kill(pid, {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}[what])
        except (ProcessLookupError, PermissionError):
            return  # the victim has ended
        if what == "stop":
            self.paused += seconds
            self._due.append((time.monotonic() + seconds, lambda: send(pid, signal.SIGCONT)))
            self._due.sort(key=lambda d: d[0])

    # Ending the run.

    def _end(self) -> None:
        for t in self._trainers:
            t.kill()
            t.join()
        if self._up is not None and self._up.poll() is None:
            for pid in processes_of(self.directory):
                send(pid, signal.SIGKILL)
            self._up.kill()
            self._up.wait()
        for left in self.leftovers():
            self._record.write("left", key=left)

    def leftovers(self) -> Sequence[str]:
        """The processes, sockets, temporary files and directories that the run left."""
        until = time.monotonic() + SOON
        while processes_of(self.directory) and time.monotonic() < until:
            time.sleep(0.02)
        found = [f"process {pid}" for pid in processes_of(self.directory)]
        found += [f"socket {p.name}" for p in self.directory.glob("*.sock")]
        found += [f"temporary file {p.name}" for p in self.directory.rglob("*.tmp")]
        if (self.directory / "run").exists():
            found.append("the runtime directory")
        return found
