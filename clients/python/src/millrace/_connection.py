"""One connection to a sidecar: its socket, its rings of shared memory, and the leases on their frames."""

from __future__ import annotations

import array
import collections
import json
import mmap
import os
import socket
import struct
import weakref
from typing import Any, Deque, Dict, Optional, Set, Tuple

import numpy as np

from . import _wire as wire
from ._errors import Lost, RunError
from ._failpoint import hit
from ._where import dial

BUFFER = 1 << 20  # bytes of socket buffer: room for large states
RECEIVE_WITHIN = 1  # seconds until a receive without a message returns
SEND_WITHIN = 10
MAP_POPULATE = 0x8000
_ANCILLARY = socket.CMSG_SPACE(array.array("i").itemsize)
_RECEIVE = socket.MSG_CMSG_CLOEXEC
_RELEASE = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL

Lease = Tuple[int, int, int]  # ring, frame, generation
Message = Tuple[wire.Header, memoryview]


class Ring:
    """A mapped memfd of the sidecar. Arrays over it keep the mapping, even if the sidecar dies."""

    def __init__(self, number: int, fd: int, size: int, frames: int) -> None:
        self.number = number
        self.frames = frames
        self.memory = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | MAP_POPULATE)
        self.leased: Set[Lease] = set()


class Connection:
    """A connected socket. One thread uses it at a time, but any thread may release leases."""

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self.ring: Optional[Ring] = None
        self.unsent: Deque[Lease] = collections.deque()
        self.left = False  # the sidecar has sent LEAVING
        self.deaf = False  # the sidecar takes no more messages; its earlier messages can still be read
        self._rest: Deque[Message] = collections.deque()  # unread messages of a stream that has ended, in order
        self._buffer = bytearray(wire.HEADER.size + wire.MAX_BODY)
        self._view = memoryview(self._buffer)
        self.sock = dial(path)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        # With kernel timeouts the socket stays blocking, and a message costs one system call.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", RECEIVE_WITHIN, 0))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_WITHIN, 0))

    def hello(self, rank: int, start: Dict[str, Any], position: Tuple[int, int, int]) -> None:
        body = json.dumps(start, separators=(",", ":")).encode()
        attempt, step, microbatch = position
        while True:
            part, body = body[: wire.MAX_BODY], body[wire.MAX_BODY :]
            flags = wire.MORE if body else 0
            head = wire.pack(
                wire.HELLO, flags=flags, attempt=attempt, step=step, microbatch=microbatch, rank=rank, body=len(part)
            )
            self.send(head + part)
            if not body:
                return

    def send(self, datagram: bytes) -> None:
        """Send a datagram. A sidecar that sent LEAVING may have closed its end: then drop the datagram. The sidecar's
        earlier messages are still valid, and the end of the stream follows.

        If the sidecar is gone without LEAVING, drop its earlier messages and raise Lost: no process would record that
        this client used them."""
        if not self.deaf:
            try:
                self.sock.send(datagram, socket.MSG_NOSIGNAL)
                return
            except (BrokenPipeError, ConnectionResetError):
                self.deaf = True
            except OSError as e:
                raise Lost(f"send: {e}") from e
        if not self._took_leave():
            raise Lost("the sidecar is gone")

    def offer(self, datagram: bytes) -> bool:
        """Send a datagram that may be lost, without waiting. Return whether it was sent."""
        try:
            self.sock.send(datagram, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
            return True
        except OSError:
            return False

    def _took_leave(self) -> bool:
        """Read the rest of a stream that has ended. Return whether the sidecar sent LEAVING."""
        try:
            while (message := self._receive()) is not None:
                header, body = message
                self._rest.append((header, memoryview(bytes(body))))
                self.left = self.left or header.kind == wire.LEAVING
        except Lost:
            pass
        return self.left

    def receive(self) -> Optional[Message]:
        """Return the next message, or None if none came in time. Its body is valid until the next call."""
        return self._rest.popleft() if self._rest else self._receive()

    def _receive(self) -> Optional[Message]:
        whole = bytearray()
        while True:
            try:
                n, ancillary, _, _ = self.sock.recvmsg_into((self._buffer,), _ANCILLARY, _RECEIVE)
            except BlockingIOError:
                if whole:
                    continue
                return None
            except OSError as e:
                raise Lost(f"receive: {e}") from e
            if n < wire.HEADER.size:
                raise Lost("the sidecar hung up")
            header = wire.Header._make(wire.HEADER.unpack_from(self._buffer))
            body = self._view[wire.HEADER.size : n]
            if header.magic != wire.MAGIC or header.version != wire.VERSION:
                raise RunError(
                    f"the sidecar speaks protocol {header.version}, this client {wire.VERSION}: "
                    "install the client of the sidecar's release"
                )
            if header.flags & wire.MORE or whole:
                whole += body
                if header.flags & wire.MORE:
                    continue
                body = memoryview(whole)
            if header.kind == wire.RING:
                self._map(header, body, ancillary)
                continue
            return header, body

    def _map(self, header: wire.Header, body: memoryview, ancillary: Any) -> None:
        fds = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        if len(fds) != 1:
            raise Lost("a ring came without its memory")
        try:
            size, _, frames, _ = wire.RING_BODY.unpack(body)
            hit("client/ring/before")
            # Arrays over an older ring keep that ring's mapping.
            self.ring = Ring(header.ring, fds[0], size, frames)
        finally:
            os.close(fds[0])

    def lease(self, header: wire.Header, offset: int, length: int) -> "np.ndarray[Any, Any]":
        """Return the frame's bytes as an array (uint8). The frame is released when the array's last view is gone."""
        ring = self.ring
        if ring is None or ring.number != header.ring:
            raise Lost("a batch came in a ring that was not announced")
        root = np.frombuffer(ring.memory, np.uint8, length, offset)
        lease = (header.ring, header.frame, header.generation)
        ring.leased.add(lease)
        # Not at exit: the sidecar takes all frames back when this process ends.
        weakref.finalize(root, give_back, self, ring, lease).atexit = False
        return root

    def flush(self) -> None:
        """Send the releases that the socket did not take before."""
        while self.unsent and not self.deaf:
            lease = self.unsent.popleft()
            try:
                self._release(lease)
            except BlockingIOError:
                self.unsent.appendleft(lease)
                return
            except (BrokenPipeError, ConnectionResetError):
                self.deaf = True
            except OSError as e:
                raise Lost(f"send: {e}") from e

    def _release(self, lease: Lease) -> None:
        ring, frame, generation = lease
        self.sock.send(wire.pack(wire.RELEASE, ring=ring, frame=frame, generation=generation), _RELEASE)

    def close(self) -> None:
        """End the connection, also for forked children that share the socket. Arrays stay valid."""
        try:
            if os.getpid() == self.pid:
                self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other end has closed it already
        self.sock.close()


def give_back(connection: Connection, ring: Ring, lease: Lease) -> None:
    """Release a frame. This function runs inside the garbage collector and on any thread: it takes no lock and never
    blocks or raises. In a forked child it does nothing, because the frame belongs to the parent."""
    if os.getpid() != connection.pid:
        return
    ring.leased.discard(lease)
    try:
        connection._release(lease)
    except OSError:
        connection.unsent.append(lease)
