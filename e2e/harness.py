"""Runs the real binary with real trainer processes and returns the batches that trainers received."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import multiprocessing.connection
import os
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from forks import processes
from trainer import Orders, Taken, train

# Seconds, generous for a slow and busy machine. A passing test does not wait for them.
DEADLINE = 60.0  # longer than this counts as a hang
SOON = 20.0  # for events that take a second on an idle machine
LOOK = 0.25  # between two looks at `status`, each of which takes 30 ms of CPU time from the run that it looks at


def before_next_look(waited: float) -> None:
    """Sleeps until the next look at `status`: the longer, the longer the test has waited."""
    time.sleep(min(1.0, max(LOOK, waited / 10)))


Segment = Tuple[str, str, int, int, int, int, int, int]
SOURCE, ID, EPOCH, ORDINAL, OFFSET, LENGTH, ROW, START = range(8)
Slot = Tuple[int, int, int]  # step, rank, microbatch


def content_digest(segments: Iterable[Segment]) -> str:
    """The content digest of a step (docs/bytes-on-disk.md), from segments in any order."""
    h = hashlib.blake2b(digest_size=16)
    for s in sorted(segments, key=lambda s: (s[SOURCE].encode(), s[ORDINAL], s[OFFSET])):
        h.update(s[SOURCE].encode() + b"\0" + struct.pack("<QQQ", s[ORDINAL], s[OFFSET], s[LENGTH]))
    return h.hexdigest()


@dataclasses.dataclass
class Delivered:
    """The batches of all ranks of a run, in order."""

    ranks: List[List[Taken]]
    ends: List[Any]  # of each rank: "end", "left", or ("error", type, reason)

    def slots(self) -> Dict[Slot, Taken]:
        """Every batch by its slot; a slot delivered twice is a failure."""
        out: Dict[Slot, Taken] = {}
        for rank, batches in enumerate(self.ranks):
            for b in batches:
                assert (b.step, rank, b.microbatch) not in out, f"slot {(b.step, rank, b.microbatch)} came twice"
                out[b.step, rank, b.microbatch] = b
        return out

    def along(self, tp: int = 1, cp: int = 1, pp: int = 1) -> "Delivered":
        """The batches of the first world rank of each data-parallel rank. The other ranks must agree on segments and
        state."""
        dp = len(self.ranks) // (tp * cp * pp)
        for rank, batches in enumerate(self.ranks):
            first = self.ranks[tp * cp * (rank // (tp * cp) % dp)]
            assert [(b.step, b.microbatch, b.segments, b.state) for b in batches] == [
                (b.step, b.microbatch, b.segments, b.state) for b in first
            ], f"rank {rank}"
            place = (rank % tp, rank // tp % cp, rank // (tp * cp) % dp, rank // (tp * cp * dp))
            assert all(b.place == place for b in batches), f"rank {rank} got another place than {place}"
        which = [tp * cp * d for d in range(dp)]
        return Delivered([self.ranks[r] for r in which], [self.ends[r] for r in which])

    def bytes(self) -> Dict[Slot, str]:
        return {slot: b.digest for slot, b in self.slots().items()}

    def steps(self) -> Dict[int, List[Segment]]:
        """The segments of each step, of all ranks."""
        out: Dict[int, List[Segment]] = {}
        for batches in self.ranks:
            for b in batches:
                out.setdefault(b.step, []).extend(b.segments)
        return dict(sorted(out.items()))

    def content(self) -> Dict[int, str]:
        return {step: content_digest(segments) for step, segments in self.steps().items()}

    def segments(self) -> List[Segment]:
        return [s for step in self.steps().values() for s in step]

    def reasons(self) -> List[str]:
        return [end[2] if isinstance(end, tuple) else "" for end in self.ends]


class Trainers:
    """One process per rank, each taking batches by its orders."""

    def __init__(self, sockets: Sequence[str], orders: Sequence[Orders]) -> None:
        self.delivered = Delivered([[] for _ in sockets], [None] * len(sockets))
        self._pipes: Dict[Any, int] = {}
        self.children: List[Any] = []
        for rank, (socket, order) in enumerate(zip(sockets, orders)):
            ours, theirs = processes().Pipe(duplex=False)
            child = processes().Process(target=train, args=(theirs, socket, order), daemon=True)
            child.start()
            theirs.close()
            self._pipes[ours] = rank
            self.children.append(child)

    def collect(self, until: Optional[int] = None, within: float = DEADLINE) -> Delivered:
        """Collects the trainers' messages until all trainers have ended or one has sent a batch of step `until`."""
        last = time.monotonic()
        while any(end is None for end in self.delivered.ends):
            ready = multiprocessing.connection.wait(list(self._pipes), timeout=1.0)
            if not ready and time.monotonic() - last > within:
                raise TimeoutError(f"nothing came for {within:.0f} s; ends: {self.delivered.ends}")
            for pipe in ready:
                last = time.monotonic()
                told = self._take(pipe)
                if told is not None and until is not None and told.step >= until:
                    return self.delivered
        return self.delivered

    def drain(self) -> None:
        """Takes the messages that have come. A trainer waits while its pipe is full, and asks for no batch."""
        while ready := multiprocessing.connection.wait(list(self._pipes), timeout=0):
            for pipe in ready:
                self._take(pipe)

    def _take(self, pipe: Any) -> Optional[Taken]:
        """Takes a message. Returns it if it is a batch."""
        rank = self._pipes[pipe]
        try:
            told = pipe.recv()
        except (EOFError, OSError):  # OSError: the trainer was killed during a send
            told = self.delivered.ends[rank] or ("error", "crash", "the trainer died")
        if isinstance(told, Taken):
            self.delivered.ranks[rank].append(told)
            return told
        self.delivered.ends[rank] = told
        del self._pipes[pipe]
        return None

    def end(self) -> Delivered:
        """Kills every remaining trainer with SIGKILL and returns their messages so far."""
        for child in self.children:
            child.kill()
            child.join()
        return self.collect()


class Run:
    """`millrace up` on a run directory, or the command of one role, as a context manager. It is ready on entry. On
    exit it has ended, and the test fails if it left anything behind."""

    def __init__(
        self,
        binary: Path,
        mixture: Path,
        directory: Path,
        ranks: int = 1,
        env: Optional[Mapping[str, str]] = None,
        args: Sequence[str] = (),
        launcher: Sequence[str] = (),
        first: int = 0,
        role: str = "up",
    ) -> None:
        self.directory, self.ranks, self.first = Path(directory), ranks, first
        has_ranks = ["--ranks", str(ranks)] if role in ("up", "sidecar") else []
        self._command = [
            *launcher, str(binary), role, str(mixture), *has_ranks, "--run-dir", str(directory), *args,
        ]
        self._env = {**os.environ, **(env or {})}
        self._trainers: List[Trainers] = []
        self._killed = False

    def __enter__(self) -> "Run":
        self._stderr = open(f"{self.directory}.stderr", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=self._env,
            start_new_session=True,
        )
        try:
            self._wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def _wait_ready(self) -> None:
        assert self.process.stdout is not None
        ready = multiprocessing.connection.wait([self.process.stdout.fileno()], timeout=DEADLINE)
        line = self.process.stdout.readline() if ready else ""
        assert line.startswith("ready"), f"`up` printed {line!r}, and on stderr:\n{self.stderr()}"

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        for trainers in self._trainers:
            trainers.end()
        code = self.stop()
        self._stderr.close()
        if kind is None:
            assert code in (0, 1) or self._killed, f"`up` ended with {code}"
            assert self._killed or not self.leftovers(), f"left behind: {self.leftovers()}"

    def stderr(self) -> str:
        self._stderr.flush()
        with open(self._stderr.name, encoding="utf-8", errors="replace") as f:
            return f.read()

    def sockets(self) -> List[str]:
        return [str(self.directory / f"rank-{self.first + r}.sock") for r in range(self.ranks)]

    def start(self, orders: Any = None, **kwargs: Any) -> Trainers:
        """Starts a trainer for each rank, with one set of orders for all or one for each."""
        if orders is None:
            orders = Orders(**kwargs)
        if isinstance(orders, Orders):
            orders = [orders] * self.ranks
        trainers = Trainers(self.sockets(), orders)
        self._trainers.append(trainers)
        return trainers

    def train(self, orders: Any = None, **kwargs: Any) -> Delivered:
        """Trains on every rank until each has ended."""
        trainers = self.start(orders, **kwargs)
        try:
            return trainers.collect()
        except TimeoutError as e:
            raise AssertionError(f"{e}; `up` printed:\n{self.stderr()}") from None

    def wait(self, within: float = DEADLINE) -> int:
        """The exit status of an `up` that ends by itself."""
        return self.process.wait(within)

    def stop(self) -> int:
        """Sends SIGINT, as a user would, unless `up` has ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"`up` did not stop within {DEADLINE:.0f} s:\n{self.stderr()}") from None

    def kill(self) -> None:
        """Kills `up` and all its children at once with SIGKILL."""
        self._killed = True
        pids = [self.process.pid, *self.children()]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # the process has ended
        self.process.wait()

    def kill_up(self) -> None:
        """Kills `up` alone with SIGKILL."""
        self._killed = True
        self.process.kill()
        self.process.wait()

    def children(self) -> List[int]:
        return [pid for pid in processes_of(self.directory) if pid != self.process.pid]

    def leftovers(self) -> List[str]:
        """The processes and sockets that the run left, and its runtime directory if it still exists."""
        until = time.monotonic() + SOON
        while True:  # a killed process may take a moment to disappear
            found = [f"process {pid}" for pid in processes_of(self.directory)]
            found += [str(p) for p in self.directory.glob("*.sock")]
            if (self.directory / "run").exists():
                found.append(str(self.directory / "run"))
            if not found or time.monotonic() > until:
                return found
            time.sleep(0.05)


def processes_of(directory: Path, among: Optional[Iterable[int]] = None) -> List[int]:
    """The living processes with the run directory in their command line. Trainers are not among them."""
    wanted, out = str(directory).encode(), []
    for pid in among if among is not None else [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]:
        try:
            arguments = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in arguments and b"--run-dir" in arguments:
            out.append(pid)
    return out


def command(
    binary: Path, *args: str, code: int = 0, launcher: Sequence[str] = (), env: Optional[Mapping[str, str]] = None
) -> str:
    """Runs another command to its end and returns its standard output."""
    done = subprocess.run(
        [*launcher, str(binary), *map(str, args)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == code, f"{' '.join(map(str, args))}: exit {done.returncode}, want {code}:\n{done.stderr}"
    return done.stdout


def write_mixture(directory: Path, mixture: Mapping[str, Any], name: str = "mixture.yaml") -> Path:
    """Writes a mixture file (JSON is YAML). Its paths are relative to the directory."""
    path = Path(directory) / name
    path.write_text(json.dumps(mixture, indent=1, ensure_ascii=False), encoding="utf-8")
    return path


def tokens_by_source(segments: Iterable[Segment]) -> Dict[str, int]:
    out: Dict[str, int] = collections.Counter()
    for s in segments:
        out[s[SOURCE]] += s[LENGTH]
    return out
