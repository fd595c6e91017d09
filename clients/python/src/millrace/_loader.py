"""The loader: one rank's batches, in order, whatever restarts on the other side."""

from __future__ import annotations

import gc
import importlib
import json
import logging
import math
import os
import sys
import threading
import time
import warnings
from types import TracebackType
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type

import numpy as np

from . import _wire as wire
from ._batch import Batch
from ._connection import Connection
from ._errors import Abandoned, Lost, OutOfStep, RunError, StartError
from ._failpoint import hit
from ._where import find_socket, is_abandoned, outcome, rank_of

log = logging.getLogger("millrace")

TENSORS = ("numpy", "torch", "auto")
STARTS = (None, "fresh", "latest")
STAY = 1.0  # seconds for which a run that said how it ended, or gave this rank all, may be without an `up` before it counts as over
PATIENCE = 30.0  # seconds for which a run that was there may be without an `up` before it counts as dead
SAY_FIRST, SAY_MOST = 2.0, 60.0  # seconds of waiting until it is said, doubling up to
REPORT_MOST = 500  # entries of one report
PAUSE_FIRST, PAUSE_MOST = 0.005, 0.25  # seconds between attempts to connect

Table = List[Tuple[str, "np.dtype[Any]", Tuple[int, ...], int]]


def connect(
    path: Optional[str] = None,
    *,
    tensors: str = "auto",
    start: Optional[str] = None,
    wait: float = 5.0,
    patience: Optional[float] = None,
) -> "DataLoader":
    """A loader for the rank whose socket is at `path` (a run directory stands for its LOCAL_RANK's socket); without a path
    MILLRACE_SOCKET, or MILLRACE_RUN_DIR with LOCAL_RANK.

    `tensors`: "numpy", "torch" (views of the same memory) or "auto" (torch where it is imported already).
    `start`: None, "fresh" or "latest" (the first step that not all ranks have acknowledged); a loaded state comes before it. It is
    declared at the first `next()`.
    `wait`: seconds to wait for a `millrace up` that is not there yet.
    `patience`: seconds to wait for a new `millrace up` on the same run directory where one was killed; then `next()` raises. Without it
    MILLRACE_PATIENCE, or 30. While `up` lives, and where it said how the run ended, this does not count.
    """
    return DataLoader(find_socket(path), tensors=tensors, start=start, wait=wait, patience=patience)


class DataLoader:
    """Iterates over one rank's microbatches. Use one per process and rank; see `connect`."""

    def __init__(
        self,
        path: str,
        *,
        tensors: str = "auto",
        start: Optional[str] = None,
        wait: float = 5.0,
        patience: Optional[float] = None,
    ) -> None:
        self._conn: Optional[Connection] = None
        if tensors not in TENSORS:
            raise ValueError(f"tensors={tensors!r}: want one of {', '.join(map(repr, TENSORS))}")
        if start not in STARTS:
            raise ValueError(f"start={start!r}: want None, 'fresh' or 'latest'")
        if tensors == "torch":
            importlib.import_module("torch")  # say now that it is missing
        self._path = path
        self._tensors = tensors
        self._wait = wait
        self._patience = _patience() if patience is None else patience
        self._alerts: List[Tuple[str, str]] = []
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = self._ended = self._last = False
        self._failure: Optional[RunError] = None
        self._start = start
        self._loaded: Optional[Dict[str, Any]] = None
        self._override: List[str] = []
        # The next batch: (attempt, step, microbatch). None until the run has begun.
        self._position: Optional[Tuple[int, int, int]] = None
        self._uncommitted: Optional[int] = None  # the step whose last batch was yielded
        self._saved: Optional[int] = None
        self._times: Optional[Tuple[int, List[Tuple[int, float]]]] = None  # of the newest step, not reported yet
        self._state = b"{}"  # JSON: before the step of the last batch, or after it where it was the step's last
        self._middle: Optional[Tuple[int, str]] = None  # microbatch and placement digest, in the middle of a step
        self._table = b""
        self._parsed: Table = []
        self._shapes: Dict[str, Tuple[Tuple[int, ...], "np.dtype[Any]"]] = {}
        self._source: Optional[int] = None  # the rank that has the tensors
        self._axes: Tuple[Dict[str, int], Dict[str, int]] = ({}, {})
        self._collect = _Backoff()
        self._warned = False
        self._counts = {"batches": 0, "bytes": 0, "copied_batches": 0, "connections": 0}
        self._waited = 0.0

    # The trainer's side.

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        self._guard()
        before = self._position, self._middle, self._uncommitted, self._last, self._state
        try:
            with self._lock:
                return self._next()
        except StopIteration:
            raise
        except BaseException:
            # An interrupt may have swallowed a message or the batch itself: the next call connects anew and goes on here.
            self._hang_up()
            if before[0] is not None:
                self._position, self._middle, self._uncommitted, self._last, self._state = before
            raise

    def __len__(self) -> int:
        raise TypeError("a millrace DataLoader has no length: the run's `stop` decides, and may be open")

    def state_dict(self) -> Dict[str, Any]:
        """The state after the last batch yielded: JSON-serialisable, equal on all ranks at a step's boundary. Before the first batch it
        is the loaded state, or where none was loaded a note of the declared start."""
        hit("client/state/before")
        if self._position is None:
            if self._loaded is not None:
                copy: Dict[str, Any] = json.loads(json.dumps(self._loaded))
                return copy
            return {"start": self._start or "fresh"}
        state: Dict[str, Any] = json.loads(self._state)
        if self._middle is not None:
            state["microbatch"], state["placement"] = self._middle
        return state

    def load_state_dict(self, state: Dict[str, Any], override: Sequence[str] = ()) -> None:
        """Start from a state, of any rank and saved under any topology; every rank must do the same. `override` names parts of the
        run's identity (as the error names them) that may differ from the state's."""
        if not isinstance(state, dict):
            raise TypeError(f"load_state_dict: a dict is wanted, not {type(state).__name__}")
        copy = json.loads(json.dumps(state))
        with self._lock:
            self._hang_up()
            self._position = self._uncommitted = self._middle = self._failure = None
            self._ended = self._last = False
            self._override = [str(name) for name in override]
            self._loaded = copy
            if set(copy) == {"start"}:  # saved before the first batch
                self._loaded, self._start = None, copy["start"]

    def checkpoint_saved(self, step: int) -> None:
        """The model's checkpoint of this step is durable: what is older than it may be forgotten."""
        self._guard()
        self._saved = max(int(step), self._saved or 0)
        conn = self._conn
        if conn is not None and self._position is not None:
            try:
                hit("client/saved/before")
                conn.send(wire.pack(wire.SAVED, attempt=self._position[0], step=self._saved))
                hit("client/saved/after")
            except Lost:
                pass  # said again on the next connection

    @property
    def topology(self) -> Dict[str, int]:
        """How many ranks there are along each axis: tp, cp, dp, pp. Empty before the first batch."""
        return dict(self._axes[0])

    @property
    def coordinates(self) -> Dict[str, int]:
        """Where this rank is along each axis: tp, cp, dp, pp. Ranks count along tp first, then cp, dp and pp: trainers whose process groups
        are arranged otherwise would train on the wrong batches, so compare. Empty before the first batch."""
        return dict(self._axes[1])

    def report_losses(self, step: int, losses: Mapping[str, Tuple[float, float]]) -> None:
        """What this rank's loss of a step was, by source: `{source: (loss_sum, tokens)}`, the sum over that many tokens. An adaptive policy in the
        mixture file makes weights of it. It never waits, and may be lost: nothing but the next weights depends on it."""
        self._guard()
        items = [(str(s), [float(total), float(n)]) for s, (total, n) in losses.items() if math.isfinite(total) and n > 0]
        for first in range(0, max(len(items), 1), REPORT_MOST):
            self._report(step, {"losses": dict(items[first : first + REPORT_MOST])})

    def report_time(self, step: int, microbatch: int, seconds: float) -> None:
        """What a microbatch took this rank, forward and backward, without waiting for others. Predicted costs are compared with it, and fitted to it
        where the mixture file or `millrace mix DIR costs --refit` says so. It is sent with the next step's first; it never waits, and may be lost."""
        self._guard()
        if not math.isfinite(seconds) or seconds <= 0:
            return
        if self._times and self._times[0] != step:
            self._report(self._times[0], {"times": self._times[1]})
            self._times = None
        if self._times is None:
            self._times = (int(step), [])
        if len(self._times[1]) < REPORT_MOST:
            self._times[1].append((int(microbatch), float(seconds)))

    def _report(self, step: int, body: Dict[str, Any]) -> None:
        conn = self._conn
        if conn is None or self._position is None:
            return
        text = json.dumps(body, separators=(",", ":")).encode()
        if len(text) <= wire.MAX_BODY:
            conn.offer(wire.pack(wire.REPORT, attempt=self._position[0], step=int(step), body=len(text)) + text)

    def stats(self) -> Dict[str, Any]:
        """Counts since the loader was made: batches, bytes, copied_batches, connections, wait_seconds, and frames and held_frames of
        the ring now."""
        ring = self._conn.ring if self._conn is not None else None
        return dict(
            self._counts,
            wait_seconds=self._waited,
            frames=ring.frames if ring else 0,
            held_frames=len(ring.leased) if ring else 0,
        )

    def close(self) -> None:
        """Leave the run. Arrays stay valid. The last step counts as taken only if the batch after it was asked for."""
        self._closed = True
        hit("client/close/before")
        self._hang_up()

    def __enter__(self) -> "DataLoader":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        self._hang_up()

    def __reduce__(self) -> Any:
        raise TypeError("a millrace DataLoader cannot be sent to another process: connect there (DataLoader workers are not needed)")

    # Taking batches.

    def _guard(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(f"this loader belongs to process {self._pid}: call millrace.connect() in the process that uses it")
        if self._closed:
            raise RuntimeError("the loader is closed")

    def _next(self) -> Batch:
        if self._ended:
            raise StopIteration
        if self._failure is not None:
            raise self._failure
        hit("client/next/before")
        began = time.monotonic()
        patience = _Patience(self)
        while True:
            try:
                conn = self._conn or self._open(patience)
                conn.flush()
                if self._uncommitted is not None and self._position is not None:
                    hit("client/commit/before")
                    conn.send(wire.pack(wire.COMMIT, attempt=self._position[0], step=self._uncommitted))
                    self._uncommitted = None
                    hit("client/commit/after")
                batch = self._receive(conn, patience)
            except Lost as e:
                hit("client/lost")
                self._hang_up()
                patience.lost(e)
                continue
            except Abandoned as e:
                if not self._last:
                    raise RunError(str(e)) from None
                batch = None  # everything was taken, and the run has gone home
            self._waited += time.monotonic() - began
            patience.over()
            if batch is None:
                self._ended = True
                raise StopIteration
            return batch

    def _receive(self, conn: Connection, patience: "_Patience") -> Optional[Batch]:
        """The next batch, None at the end of the run."""
        while True:
            message = conn.receive()
            if message is None:
                patience.ask(conn)
                continue
            header, body = message
            if header.kind == wire.BATCH:
                hit("client/batch/before")
                return self._batch(conn, header, body)
            if header.kind == wire.END:
                hit("client/end")
                return None
            if header.kind == wire.STATUS:
                patience.say(str(body, "utf-8", "replace"))
            elif header.kind == wire.ALERTS:
                self._alert(json.loads(bytes(body)))
            elif header.kind == wire.LEAVING:
                patience.left = conn.left = True
            elif header.kind == wire.ERROR:
                raise self._error(header, body)

    def _alert(self, alerts: List[Dict[str, Any]]) -> None:
        """Say once what the run lacks, and once when that is over."""
        now = [(str(a["kind"]), str(a["text"])) for a in alerts]
        for alert in now:
            if alert not in self._alerts:
                log.warning("alert (%s): %s", *alert)
        for alert in self._alerts:
            if alert not in now:
                log.warning("alert is over (%s): %s", *alert)
        self._alerts = now

    def _error(self, header: wire.Header, body: memoryview) -> RunError:
        reason = str(body, "utf-8", "replace")
        if header.rank == wire.ERROR_START:
            return StartError(reason)
        error = RunError(reason)
        if header.rank == wire.ERROR_RUN:
            self._failure = error
        return error

    def _batch(self, conn: Connection, header: wire.Header, body: memoryview) -> Batch:
        if self._position != (header.attempt, header.step, header.microbatch):
            raise OutOfStep(f"batch {header.attempt}/{header.step}/{header.microbatch} came where {self._position} was next")
        offset, length, lineage_at, lineage_length, state_at, state_length, placement, count, _ = wire.BATCH_FIXED.unpack_from(body)
        root = self._root(conn, header, offset, length)
        ends = wire.BATCH_FIXED.size + count * wire.TENSOR.size
        if body[wire.BATCH_FIXED.size : ends] != self._table:
            self._table = bytes(body[wire.BATCH_FIXED.size : ends])
            self._parsed = _parse_table(self._table)
            self._shapes = {name: (shape, dtype) for name, dtype, shape, _ in self._parsed}
        absent = bool(header.flags & wire.ABSENT)
        tensors = {} if absent else {name: np.ndarray(shape, dtype, root, at) for name, dtype, shape, at in self._parsed}
        if self._tensors == "torch" or self._tensors == "auto" and "torch" in sys.modules:
            from_numpy = sys.modules["torch"].from_numpy
            tensors = {name: from_numpy(a) for name, a in tensors.items()}
        batch = Batch(
            tensors, header.step, header.microbatch, header.microbatches, root[lineage_at : lineage_at + lineage_length],
            *wire.BATCH_LOSS.unpack_from(body, ends), self._shapes, self._source if absent else None,
        )  # fmt: skip
        state = root[state_at : state_at + state_length].tobytes()
        # From here on the batch counts as yielded.
        self._middle = (header.microbatch + 1, placement.hex())
        self._position = (header.attempt, header.step, header.microbatch + 1)
        if header.microbatch + 1 == header.microbatches:
            self._middle, self._uncommitted = None, header.step
            self._position = (header.attempt, header.step + 1, 0)
            self._last = bool(header.flags & wire.LAST)
            if state:
                self._state = state
        self._counts["batches"] += 1
        self._counts["bytes"] += length
        hit("client/batch/after")
        return batch

    def _root(self, conn: Connection, header: wire.Header, offset: int, length: int) -> "np.ndarray[Any, Any]":
        """The frame's bytes; a copy of them where the trainer holds so many frames that the run would stand still."""
        root = conn.lease(header, offset, length)
        ring = conn.ring
        assert ring is not None
        if len(ring.leased) < ring.frames:
            return root
        if self._collect.is_due():  # a cycle may hold batches that nobody can reach
            gc.collect()
            if len(ring.leased) < ring.frames:
                self._collect.reset()
                return root
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the trainer holds {ring.frames - 1} batches of a ring of {ring.frames}: further ones are copied. "
                "Drop batches (and views of them) when they are used, or copy what is to be kept.",
                RuntimeWarning,
                stacklevel=6,  # the trainer's loop
            )
        self._counts["copied_batches"] += 1
        copy: np.ndarray[Any, Any] = root.copy()
        return copy

    # Connecting.

    def _open(self, patience: "_Patience") -> Connection:
        """Connect and say where this rank starts, or goes on; returns when every rank has."""
        hit("client/connect/before")
        while True:
            try:
                conn = Connection(self._path)
                break
            except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, NotADirectoryError, TimeoutError, BlockingIOError):
                patience.pause()
        self._conn = conn
        hit("client/connect/after")
        start: Dict[str, Any] = {"start": self._start or ""}
        if self._position is not None:
            start = {"start": "continue"}
        elif self._loaded is not None:
            start = {"start": "state", "state": self._loaded, "override": self._override}
        conn.hello(rank_of(self._path), start, self._position or (0, 0, 0))
        hit("client/hello/after")
        header, body = self._greeting(conn, patience)
        hit("client/begin/after")
        self._counts["connections"] += 1
        patience.arrived = True
        begin = json.loads(bytes(body))
        self._axes, self._source = (begin["topology"], begin["coordinates"]), begin["broadcast_source"]
        if self._position is None:
            self._position = (header.attempt, header.step, header.microbatch)
            self._begin(begin["state"] or {})
        elif self._position != (header.attempt, header.step, header.microbatch):
            raise OutOfStep(f"the run goes on at {header.attempt}/{header.step}/{header.microbatch}, this rank is at {self._position}")
        self._uncommitted = None  # whoever goes on at a step has taken all before it
        if self._saved is not None:
            conn.send(wire.pack(wire.SAVED, attempt=self._position[0], step=self._saved))
        return conn

    def _greeting(self, conn: Connection, patience: "_Patience") -> Tuple[wire.Header, memoryview]:
        while True:
            message = conn.receive()
            if message is None:
                patience.ask(conn)
                continue
            header, body = message
            if header.kind == wire.BEGIN:
                return header, body
            if header.kind == wire.STATUS:
                patience.say(str(body, "utf-8", "replace"))
            elif header.kind == wire.ERROR:
                raise self._error(header, body)
            else:
                raise Lost(f"message {header.kind} came before BEGIN")

    def _begin(self, state: Dict[str, Any]) -> None:
        microbatch, placement = state.pop("microbatch", 0), state.pop("placement", "")
        self._middle = (microbatch, placement) if microbatch else None
        self._state = json.dumps(state).encode()

    def _hang_up(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()


class _Patience:
    """One wait of the trainer's: how long it lasts, when it is said, and when nothing is left to wait for."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._began = time.monotonic()
        self._say = SAY_FIRST
        self._pause = PAUSE_FIRST
        self._alone: Optional[float] = None  # since when there is no `up`
        self._lost = 0
        self._said = False
        self.left = False  # the sidecar said that it goes and another comes
        self.arrived = loader._position is not None

    def is_due(self) -> bool:
        """Whether the wait is to be said (again)."""
        if time.monotonic() - self._began < self._say:
            return False
        self._say = min(self._say * 2, self._say + SAY_MOST)
        return True

    def ask(self, conn: Connection) -> None:
        """Nothing came for a while: make sure that no release is stuck here, and ask what the sidecar waits for."""
        conn.flush()
        if self.is_due():
            conn.send(wire.pack(wire.WAIT))

    def lost(self, why: Lost) -> None:
        """A connection broke. The first time the next one may be made at once."""
        if self._loader._closed:
            raise RuntimeError("the loader was closed")
        log.debug("connection to %s %s: %s", self._loader._path, "left" if self.left else "lost", why)
        if self._lost > 0:
            if isinstance(why, OutOfStep):
                raise RunError(str(why))
            if self.is_due():
                self.say(str(why))
            self._rest()
        self._lost += 1

    def say(self, status: str) -> None:
        self._said = True
        log.warning("waiting for %s for %.0f s: %s", self._goal(), time.monotonic() - self._began, status)

    def over(self) -> None:
        """It is here."""
        if self._said:
            log.warning("waiting is over after %.1f s", time.monotonic() - self._began)

    def pause(self) -> None:
        """Wait a little for the socket to come (back), or raise where nobody is left to bring it."""
        path, now = self._loader._path, time.monotonic()
        if self._loader._closed:
            raise RuntimeError("the loader was closed")
        if not is_abandoned(path):
            self._alone = None
        elif self._alone is None:
            self._alone = now
        elif now - self._alone >= self._stay(path):
            told = outcome(path)
            raise Abandoned(f"no `millrace up` serves {os.path.dirname(path)}" + (f" any more: {told}" if told else ""))
        if self.is_due():
            self.say(f"the sidecar at {path} is away")
        self._rest()

    def _stay(self, path: str) -> float:
        """How long to go on without an `up`: it may just be being started again."""
        if not self.arrived:
            return self._loader._wait
        if self._loader._last or outcome(path):
            return min(STAY, self._loader._patience)
        return self._loader._patience

    def _rest(self) -> None:
        time.sleep(self._pause)
        self._pause = min(self._pause * 1.5, PAUSE_MOST)

    def _goal(self) -> str:
        position = self._loader._position
        return "the run to begin" if position is None else f"step {position[1]} microbatch {position[2]}"


class _Backoff:
    """Lets something dear happen at the 1st, 2nd, 4th, 8th … chance."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._chances, self._next = 0, 1

    def is_due(self) -> bool:
        self._chances += 1
        if self._chances < self._next:
            return False
        self._next = min(self._next * 2, self._next + 4096)
        return True


def _patience() -> float:
    said = os.environ.get("MILLRACE_PATIENCE")
    try:
        return float(said) if said else PATIENCE
    except ValueError:
        raise ValueError(f"MILLRACE_PATIENCE={said!r}: want a number of seconds") from None


def _parse_table(table: bytes) -> Table:
    out: Table = []
    for name, dtype, dims, _, *rest in wire.TENSOR.iter_unpack(table):
        shape = tuple(rest[:dims])
        out.append((name.rstrip(b"\0").decode(), np.dtype(dtype.rstrip(b"\0").decode()), shape, rest[4]))
    return out
