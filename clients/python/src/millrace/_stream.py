"""One rank's batches in order, over any number of connections: connect, declare a start, receive, connect again."""

from __future__ import annotations

import collections
import json
import logging
import time
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

from . import _wire as wire
from ._batch import Batch
from ._connection import Connection
from ._copies import Copies
from ._errors import Abandoned, Lost, OutOfStep, RunError, StartError
from ._failpoint import armed, hit
from ._frames import Frames
from ._patience import Limits, Patience
from ._seat import seat
from ._state import State, read_begin
from ._waits import Waits
from ._where import rank_of, refuse_stranger

log = logging.getLogger("millrace")

# Names of this module, because every batch needs them.
_BATCH, _monotonic, _new_tuple = wire.BATCH, time.monotonic, wire.new_tuple

AWAY = (
    FileNotFoundError, ConnectionRefusedError, ConnectionResetError, NotADirectoryError, TimeoutError, BlockingIOError,
)  # fmt: skip


NOTABLE = 0.001  # seconds from which on a wait may be the longest
FIGURES_WITHIN = 1.0  # seconds until a sidecar has answered a question for figures


class Place(NamedTuple):
    """The position of this rank after the last batch that `next` returned. It is replaced as a whole, so that an
    interrupt of `next` leaves either the old or the new position."""

    next: Tuple[int, int, int]  # attempt, step and microbatch of the next batch
    state: State
    uncommitted: Optional[int] = None  # a step without commit, after its last batch was returned
    last: bool = False  # the returned batch was the run's last on this rank


class Axes(NamedTuple):
    """The arrangement of the ranks on the axes tp, cp, dp and pp."""

    topology: Dict[str, int]  # the number of ranks on each axis
    coordinates: Dict[str, int]  # the place of this rank on each axis, from 0


class Start(NamedTuple):
    """The start that the trainer declares."""

    kind: Optional[str]  # None, "fresh" or "latest"
    state: Optional[Dict[str, Any]] = None  # replaces kind
    override: Tuple[str, ...] = ()

    def hello(self) -> Dict[str, Any]:
        if self.state is None:
            return {"start": self.kind or ""}
        return {"start": "state", "state": self.state, "override": list(self.override)}


class Stream:
    """The rank's side of docs/protocol.md. One thread uses it at a time."""

    def __init__(self, path: str, frames: Frames, start: Start, limits: Limits) -> None:
        self.conn: Optional[Connection] = None
        self.path = path
        self.start = start
        self.place: Optional[Place] = None  # None until the run has begun
        self.ended = False
        self.closed = False  # another thread may set it while this one waits
        self.saved: Optional[int] = None  # the newest step with a durable checkpoint
        self.frames = frames
        self._ahead: Deque[Tuple[Any, Place]] = collections.deque()  # copies that were not returned, and positions
        self.axes: Optional[Axes] = None  # None until the run has begun
        self.connections = 0
        self.waited = self.last = 0.0  # seconds: of all waits, of the newest
        self.waits = Waits()
        self._limits = limits
        self._began = 0.0  # of the present wait
        self._patience: Optional[Patience] = None  # the same
        self._failure: Optional[RunError] = None
        self._source: Optional[int] = None  # the rank that broadcasts the tensors; None: this rank has them
        self._alerts: List[Tuple[str, str]] = []

    def restart(self, start: Start) -> None:
        """Forget the position of the rank. The next batch is the first one after `start`."""
        self.hang_up()
        self.start, self.place, self._failure, self.ended = start, None, None, False

    def next(self) -> Batch:
        """Wait for the next batch and return it. Raises StopIteration at the end of the run, RunError if the run
        failed."""
        if self.ended:
            raise StopIteration
        if self._failure is not None:
            raise self._failure
        if armed:
            hit("client/next/before")
        self._began = began = _monotonic()
        self._patience = None
        while True:
            try:
                batch = self._take()
            except Lost as e:
                hit("client/lost")
                self.hang_up()
                self._stop_if_closed()
                self._wait().lost(e)
                continue
            except Abandoned as e:
                if self.place is None or not self.place.last:
                    raise RunError(str(e)) from None
                batch = None  # this rank has consumed everything, and the run is over
            self.last = spent = _monotonic() - began
            self.waited += spent
            if spent > NOTABLE:
                self.waits.add(spent, self._patience)
            if self._patience is not None and self._patience.said:
                self._patience.over()
            if batch is None:
                self.ended = True
                raise StopIteration
            return batch

    def offer_report(self, step: int, text: bytes) -> None:
        """Send a measurement if the socket takes it at once."""
        if self.conn is not None and self.place is not None and len(text) <= wire.MAX_BODY:
            self.conn.offer(wire.pack(wire.REPORT, attempt=self.place.next[0], step=step, body=len(text)) + text)

    def save(self, step: int) -> None:
        """Report that the checkpoint of a step is durable, now and on every new connection."""
        self.saved = max(step, self.saved or 0)
        if self.conn is not None and self.place is not None:
            try:
                hit("client/saved/before")
                self._send_saved(self.conn, self.place, self.saved)
                hit("client/saved/after")
            except Lost:
                pass  # the next connection repeats it

    def ask_figures(self) -> Optional[Dict[str, Any]]:
        """Return the figures of the run as the sidecar has them, None without a connection or an answer."""
        if self.conn is None or self.place is None or self.ended:
            return None
        try:
            body = self.conn.ask(wire.pack(wire.WAIT, flags=wire.FED), wire.FED, FIGURES_WITHIN)
        except Lost:
            return None  # the next batch finds the loss, too
        figures: Optional[Dict[str, Any]] = json.loads(body).get("delivery") if body else None
        return figures

    def hang_up(self) -> None:
        conn, self.conn = self.conn, None
        self._ahead.clear()
        if self.frames.copies is not None:
            self.frames.copies.settle()
        if conn is not None:
            conn.close()

    # Receiving.

    def _wait(self) -> Patience:
        """Return the patience of the present wait. Most waits end at once and need none."""
        if self._patience is None:
            place = self.place
            last = place is not None and place.last
            self._patience = Patience(
                self.path, self._limits, self._goal, self._began, place is not None, last, self.waited
            )
        return self._patience

    def _take(self) -> Optional[Batch]:
        """Return the next batch, None at the end of the run. Commit the step before it first."""
        conn = self.conn or self._open()
        if conn.unsent:
            conn.flush()
        place = self.place
        if place is not None and place.uncommitted is not None:
            hit("client/commit/before")
            waited = int(self.waited * 1e6)
            conn.send(wire.pack(wire.COMMIT, attempt=place.next[0], step=place.uncommitted, generation=waited))
            self.place = Place(place.next, place.state, None, place.last)
            hit("client/commit/after")
        batch: Optional[Batch] = None
        if self.frames.copies is not None:
            batch = self._take_copy(conn, self.frames.copies)
        elif (taken := self._receive(conn)) is not None:
            batch, self.place = taken
        if armed and batch is not None:
            hit("client/batch/after")
        return batch

    def _take_copy(self, conn: Connection, copies: Copies) -> Optional[Batch]:
        """Return the next batch on its device, and start copies of the batches behind it that the sidecar has pushed.

        The position follows the batch that is returned. After a loss, copies that were not returned are dropped with
        the connection: the next one continues behind the returned batch."""
        ahead = self._ahead
        copies.release()
        if not ahead:
            if conn.ring is not None:
                copies.wait_for_room(conn.ring)
            taken = self._receive(conn)
            if taken is None:
                return None
            ahead.append(taken)
        while len(ahead) <= copies.prefetch and conn.ring is not None and copies.make_room(conn.ring):
            taken = self._receive_pushed(conn)
            if taken is None:
                break
            ahead.append(taken)
        copy, place = ahead[0]
        batch = self.frames.finish(copy)
        ahead.popleft()
        self.place = place
        return batch

    def _receive_pushed(self, conn: Connection) -> Optional[Tuple[Any, Place]]:
        """Return the next batch if the sidecar has pushed it. Leave all other messages, and the loss of the connection,
        to the call that finds no batch ahead."""
        try:
            message = conn.receive(wait=False)
            if message is not None and message[0].kind == _BATCH:
                return self._batch(conn, *message)
        except Lost:
            return None
        if message is not None:
            conn.unread(message)
        return None

    def _receive(self, conn: Connection) -> Optional[Tuple[Any, Place]]:
        """Return the next batch, or its copy on the way, and the position after it; None at the end of the run."""
        while True:
            message = conn.receive()
            if message is None:
                self._wait().ask(conn)
                continue
            header, body = message
            if header.kind == _BATCH:
                return self._batch(conn, header, body)
            if header.kind == wire.END:
                hit("client/end")
                if self.frames.batches == 0:
                    log.warning(
                        "the run is finished: its %d steps have been taken and nothing is left for this rank; "
                        'connect(..., start="fresh") takes them again', header.step,
                    )  # fmt: skip
                return None
            if header.kind == wire.STATUS:
                self._wait().hear(header, body)
                self.waits.cause = self._wait().cause
            elif header.kind == wire.ALERTS:
                self.tell_alerts(json.loads(body))
            elif header.kind == wire.LEAVING:
                self._wait().left = conn.left = True
            elif header.kind == wire.ERROR:
                raise self._error(header, body)

    def _batch(self, conn: Connection, header: wire.Header, body: bytes) -> Tuple[Any, Place]:
        if armed:
            hit("client/batch/before")
        place = self._ahead[-1][1] if self._ahead else self.place
        if place is None or place.next != (header.attempt, header.step, header.microbatch):
            expected = None if place is None else place.next
            raise OutOfStep(f"batch {header.attempt}/{header.step}/{header.microbatch} came, {expected} was next")
        batch, state = self.frames.read(conn, header, body, place.state, self._source)
        if header.microbatch + 1 < header.microbatches:
            place = _new_tuple(Place, ((header.attempt, header.step, header.microbatch + 1), state, None, False))
        else:
            last = bool(header.flags & wire.LAST)
            place = Place((header.attempt, header.step + 1, 0), state, uncommitted=header.step, last=last)
        return batch, place

    def _error(self, header: wire.Header, body: bytes) -> RunError:
        reason = str(body, "utf-8", "replace")
        if header.rank == wire.ERROR_START:
            return StartError(reason)
        error = RunError(reason)
        if header.rank == wire.ERROR_RUN:
            self._failure = error
        return error

    def tell_alerts(self, alerts: List[Dict[str, Any]]) -> None:
        """Log each alert once when it begins and once when it is over."""
        now = [(str(a["kind"]), str(a["text"])) for a in alerts]
        for alert in now:
            if alert not in self._alerts:
                log.warning("alert (%s): %s", *alert)
        for alert in self._alerts:
            if alert not in now:
                log.warning("alert is over (%s): %s", *alert)
        self._alerts = now

    # Connecting.

    def _open(self) -> Connection:
        """Connect and declare this rank's start, or its position. Return after every rank has declared its start."""
        hit("client/connect/before")
        while True:
            try:
                conn = Connection(self.path)
                break
            except OSError as e:
                refuse_stranger(self.path, e)
                if not isinstance(e, AWAY):
                    raise
                self._stop_if_closed()
                self._wait().pause()
        self.conn = conn
        hit("client/connect/after")
        start, position = self.start.hello(), (0, 0, 0)
        if self.place is not None:
            start, position = {"start": "continue"}, self.place.next
        conn.hello(rank_of(self.path), dict(start, gpu=seat()), position)
        hit("client/hello/after")
        header, body = self._greeting(conn)
        hit("client/begin/after")
        self.connections += 1
        self._wait().arrived = True
        self._begin(header, json.loads(body))
        if self.saved is not None and self.place is not None:
            self._send_saved(conn, self.place, self.saved)
        return conn

    def _greeting(self, conn: Connection) -> Tuple[wire.Header, bytes]:
        while True:
            message = conn.receive()
            if message is None:
                self._wait().ask(conn)
                continue
            header, body = message
            if header.kind == wire.BEGIN:
                return header, body
            if header.kind == wire.STATUS:
                self._wait().hear(header, body)
            elif header.kind == wire.ERROR:
                raise self._error(header, body)
            else:
                raise Lost(f"message {header.kind} came before BEGIN")

    def _begin(self, header: wire.Header, begin: Dict[str, Any]) -> None:
        self.axes, self._source = Axes(begin["topology"], begin["coordinates"]), begin["broadcast_source"]
        if begin.get("notice"):
            log.warning("%s", begin["notice"])
        here = (header.attempt, header.step, header.microbatch)
        if self.place is None:
            self.place = Place(here, read_begin(begin["state"]))
        elif self.place.next != here:
            raise OutOfStep(f"the run continues at {here}, this rank is at {self.place.next}")
        # A rank that continues at a step thereby commits all earlier steps.
        self.place = self.place._replace(uncommitted=None)

    @staticmethod
    def _send_saved(conn: Connection, place: Place, step: int) -> None:
        conn.send(wire.pack(wire.SAVED, attempt=place.next[0], step=step))

    def _stop_if_closed(self) -> None:
        if self.closed:
            raise RuntimeError("the loader was closed")

    def _goal(self) -> str:
        if self.place is None:
            return "the run to begin"
        _, step, microbatch = self.place.next
        return f"step {step} microbatch {microbatch}"
