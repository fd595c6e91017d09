"""One connection to a sidecar: its socket, its rings of shared memory, and the leases on their frames."""

from __future__ import annotations

import array
import collections
import json
import mmap
import os
import resource
import socket
import struct
import sys
import time
import warnings
import weakref
from typing import Any, Callable, Deque, Dict, Optional, Tuple

import numpy as np

from . import _wire as wire
from ._errors import Lost, RunError, StartError
from ._failpoint import hit
from ._version import VERSION
from ._where import dial

BUFFER = 1 << 20  # bytes of socket buffer: room for large states
RECEIVE_WITHIN = 0.5  # seconds until a receive without a message returns
SEND_WITHIN = 10
MAP_POPULATE = 0x8000
_STRANGER = (
    "the program at this socket is no sidecar of millrace: give connect() a run directory, or its DIR/rank-<r>.sock"
)
_ANCILLARY = socket.CMSG_SPACE(array.array("i").itemsize)
_RECEIVE = socket.MSG_CMSG_CLOEXEC
_AT_ONCE = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL

_UINT8 = np.dtype(np.uint8)

# Names of this module, because every batch needs them.
_MAGIC, _VERSION, _MORE, _RING, _RELEASE = wire.MAGIC, wire.VERSION, wire.MORE, wire.RING, wire.RELEASE
_BODY, _pack, _read_header, _new_tuple = wire.HEADER.size, wire.HEADER.pack, wire.HEADER.unpack_from, wire.new_tuple

Message = Tuple[wire.Header, bytes]
Use = Tuple[int, int, int]  # of a frame: number of the ring, number of the frame, generation


class Ring:
    """A mapped memfd of the sidecar. Arrays over it keep the mapping, even if the sidecar dies."""

    def __init__(self, number: int, fd: int, size: int, frames: int, access: int) -> None:
        self.number = number
        self.frames = frames
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        self.is_read_only = bool(access & wire.RING_READ_ONLY)
        if self.is_read_only:
            protection = mmap.PROT_READ
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # of torch.from_numpy
        try:
            self.memory = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | MAP_POPULATE, prot=protection)
        except OSError as e:
            raise RunError(f"map the {size} bytes of shared memory with the batches: {e}: {_bound(size)}") from None
        self.address = int(np.frombuffer(self.memory, np.uint8, 1).__array_interface__["data"][0])
        self.leased: Dict[int, Lease] = {}  # by frame


def _bound(size: int) -> str:
    """Return the limit that keeps a process from mapping memory, and its cure."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        return f"this process may have {most >> 20} MiB of addresses (ulimit -v): raise `ulimit -v` by {size} bytes"
    return (
        "the host gives this process no more: give the trainer's cgroup more memory, raise the sysctl "
        "vm.max_map_count, or lower micro_batch_size or sequence_length"
    )


class Lease(weakref.ref):  # type: ignore[type-arg]
    """A frame's use, as a weak reference to the array over its bytes. The frame is released when the array's last view
    is gone. `weakref.finalize` does the same, at several times the cost."""

    __slots__ = ("connection", "ring", "frame", "generation")

    connection: "Connection"
    ring: Ring
    frame: int
    generation: int


class Connection:
    """A connected socket. One thread uses it at a time, but any thread may release leases."""

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self.ring: Optional[Ring] = None
        self.unsent: Deque[Use] = collections.deque()  # releases that the socket did not take
        self.left = False  # the sidecar has sent LEAVING
        self.deaf = False  # the sidecar takes no more messages; its earlier messages can still be read
        self._rest: Deque[Message] = collections.deque()  # unread messages of a stream that has ended, in order
        self._buffer = bytearray(wire.HEADER.size + wire.MAX_BODY)
        self._buffers = (self._buffer,)
        self._view = memoryview(self._buffer)
        self.sock = dial(path)
        self._recvmsg_into = self.sock.recvmsg_into
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        # With kernel timeouts the socket stays blocking, and a message costs one system call.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, int(RECEIVE_WITHIN * 1e6)))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_WITHIN, 0))

    def hello(self, rank: int, start: Dict[str, Any], position: Tuple[int, int, int]) -> None:
        body = json.dumps({**start, "read_only": True, "client": VERSION}, separators=(",", ":")).encode()
        attempt, step, microbatch = position
        while True:
            part, body = body[: wire.MAX_BODY], body[wire.MAX_BODY :]
            flags = wire.MORE if body else 0
            head = wire.pack(
                wire.HELLO, flags=flags, attempt=attempt, step=step, microbatch=microbatch, rank=rank, body=len(part)
            )
            try:
                self.send(head + part)
            except Lost:
                if any(header.kind == wire.ERROR for header, _ in self._rest):
                    return  # the sidecar refused the first part and hung up
                raise
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
        rest: Deque[Message] = collections.deque()
        try:
            while (message := self.receive()) is not None:
                rest.append(message)
                self.left = self.left or message[0].kind == wire.LEAVING
        except Lost:
            pass
        self._rest = rest
        return self.left

    def ask(self, datagram: bytes, flags: int, within: float) -> Optional[bytes]:
        """Send a WAIT and return the body of the STATUS with these flags that answers it. Other messages stay unread,
        in order. Return None if no answer comes in time."""
        self.send(datagram)
        held, self._rest = self._rest, collections.deque()
        until = time.monotonic() + within
        try:
            while time.monotonic() < until:
                message = self.receive()
                if message is None:
                    continue
                if message[0].kind == wire.STATUS and message[0].flags & flags:
                    return message[1]
                held.append(message)
                if message[0].kind in (wire.END, wire.ERROR):
                    break
            return None
        finally:
            held.extend(self._rest)
            self._rest = held

    def receive(self, wait: bool = True) -> Optional[Message]:
        """Return the next message, or None if none came in time. Without `wait`, return at once."""
        if self._rest:
            return self._rest.popleft()
        whole, flags = b"", _RECEIVE if wait else _RECEIVE | socket.MSG_DONTWAIT
        while True:
            try:
                n, ancillary, _, _ = self._recvmsg_into(self._buffers, _ANCILLARY, flags)
            except BlockingIOError:
                if whole:
                    continue
                return None
            except OSError as e:
                raise Lost(f"receive: {e}") from e
            if n == 0:
                raise Lost("the sidecar hung up")
            if n < _BODY:
                raise StartError(_STRANGER)
            header: wire.Header = _new_tuple(wire.Header, _read_header(self._buffer))
            body = bytes(self._view[_BODY:n])
            if header.magic != _MAGIC or header.version != _VERSION:
                if header.magic != _MAGIC:
                    raise StartError(_STRANGER)
                raise RunError(_other_protocol(header, body))
            if header.flags & _MORE or whole:
                whole += body
                if header.flags & _MORE:
                    flags = _RECEIVE  # the rest follows at once
                    continue
                body = whole
            if header.kind == _RING:
                self._map(header, body, ancillary)
                continue
            return header, body

    def unread(self, message: Message) -> None:
        """Give a message back: `receive` returns it next."""
        self._rest.appendleft(message)

    def _map(self, header: wire.Header, body: bytes, ancillary: Any) -> None:
        fds = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        if len(fds) != 1:
            raise Lost("a ring came without its memory")
        try:
            size, _, frames, access = wire.RING_BODY.unpack(body)
            hit("client/ring/before")
            # Arrays over an older ring keep that ring's mapping.
            self.ring = Ring(header.ring, fds[0], size, frames, access)
        finally:
            os.close(fds[0])

    def lease(self, header: wire.Header, offset: int, length: int) -> "Tuple[np.ndarray[Any, Any], Ring]":
        """Return the frame's bytes as an array (uint8), and its ring."""
        ring = self.ring
        if ring is None or ring.number != header.ring:
            raise Lost("a batch came in a ring that was not announced")
        # The base is no array, so NumPy lets views of `root` keep `root`, not the array below it.
        root: np.ndarray[Any, Any] = np.ndarray((length,), _UINT8, ring.memory, offset)
        lease = Lease(root, give_back)
        lease.connection, lease.ring, lease.frame, lease.generation = self, ring, header.frame, header.generation
        ring.leased[lease.frame] = lease
        return root, ring

    def flush(self) -> None:
        """Send the releases that the socket did not take before."""
        while self.unsent and not self.deaf:
            use = self.unsent.popleft()
            try:
                self.release(use)
            except BlockingIOError:
                self.unsent.appendleft(use)
                return
            except (BrokenPipeError, ConnectionResetError):
                self.deaf = True
            except OSError as e:
                raise Lost(f"send: {e}") from e

    def release(self, use: Use) -> None:
        ring, frame, generation = use
        datagram = _pack(_MAGIC, _VERSION, _RELEASE, 0, 0, 0, 0, 0, 0, ring, frame, generation, 0, 0)
        self.sock.send(datagram, _AT_ONCE)

    def close(self) -> None:
        """End the connection, also for forked children that share the socket. Arrays stay valid."""
        try:
            if os.getpid() == self.pid:
                self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other end has closed it already
        self.sock.close()


def _other_protocol(header: wire.Header, body: bytes) -> str:
    """Return the reason why this client and the peer do not understand each other, with the remedy."""
    told = f" (it says: {body.decode('utf-8', 'replace')})" if header.kind == wire.ERROR else ""
    return (
        f"the sidecar speaks protocol {header.version}, this client {VERSION} speaks protocol {wire.VERSION}{told}: "
        "install the client of the sidecar's release; `millrace version` prints it"
    )


def give_back(
    lease: Lease, getpid: Callable[[], int] = os.getpid, ending: Callable[[], bool] = sys.is_finalizing
) -> None:
    """Release a frame. This function runs inside the garbage collector and on any thread: it takes no lock and never
    blocks or raises. In a forked child it does nothing, because the frame belongs to the parent. When the interpreter
    ends it does nothing, because the sidecar takes all frames back; the globals of this module may be gone by then."""
    connection = lease.connection
    if ending() or getpid() != connection.pid:
        return
    lease.ring.leased.pop(lease.frame, None)
    use = lease.ring.number, lease.frame, lease.generation
    try:
        connection.release(use)
    except OSError:
        connection.unsent.append(use)
