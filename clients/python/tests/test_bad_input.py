"""A wrong socket, a sidecar of another protocol and a damaged state: a clear error at once, and the run goes on."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time

import pytest

import millrace
from millrace import _wire as wire

from conftest import AT_ONCE

def refused(path, reason, error=millrace.StartError):
    began = time.monotonic()
    with pytest.raises(error, match=reason):
        next(millrace.connect(str(path)))
    assert time.monotonic() - began < AT_ONCE


def test_a_file(tmp_path):
    (tmp_path / "rank-0.sock").write_text("not a socket")
    refused(tmp_path, "rank-0.sock: it is no socket. Give connect.. a run directory")


def test_a_directory(tmp_path):
    (tmp_path / "rank-0.sock").mkdir()
    refused(tmp_path, "rank-0.sock: it is no socket")


def test_a_mixture_file_as_the_run_directory(tmp_path):
    (tmp_path / "mixture.yaml").write_text("version: 1")
    refused(tmp_path / "mixture.yaml", "mixture.yaml is no directory")


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_of_another_kind(tmp_path, kind):
    with socket.socket(socket.AF_UNIX, kind) as other:
        other.bind(str(tmp_path / "rank-0.sock"))
        if kind == socket.SOCK_STREAM:
            other.listen()
        refused(tmp_path, "it is the socket of another program")


def test_a_socket_of_another_user(tmp_path):
    with Stranger(tmp_path) as other:
        os.chmod(other.path, 0)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                if os.getuid() == 0:
                    os.setuid(65534)
                next(millrace.connect(other.path))
            except BaseException as e:
                os.write(write, repr(e).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        told = os.read(read, 4096)
        assert b"train as the user of `millrace up`, or start that with --allow-uids" in told, told


class Stranger:
    """A SEQPACKET socket whose program answers each client with the same datagrams, and then hangs up or stays."""

    def __init__(self, directory, *answers, stays=False):
        self.path = str(directory / "rank-0.sock")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen()
        self._open, self._answers, self._stays = [], answers, stays
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):  # a client that has hung up; the next one is answered, too
                for answer in self._answers:
                    client.send(answer)
            self._open.append(client) if self._stays else client.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()


@pytest.mark.parametrize("answer", [b"220 mail.example.org ESMTP\r\n", b"\0" * 64, bytes(range(256)) * 16])
def test_another_program(tmp_path, answer):
    with Stranger(tmp_path, answer):
        refused(tmp_path, "is no sidecar of millrace: give connect")


@pytest.mark.parametrize("stays", [True, False])
def test_a_sidecar_of_another_protocol(tmp_path, stays):
    body = b"the client speaks protocol 1, this sidecar 9: install the client of this release"
    head = bytearray(wire.pack(wire.ERROR, rank=wire.ERROR_PROTOCOL, body=len(body)))
    struct.pack_into("<H", head, 4, 9)
    with Stranger(tmp_path, bytes(head) + body, stays=stays):
        refused(tmp_path, "speaks protocol 9, this client .* speaks protocol 1 .*install the client", millrace.RunError)


def test_a_silent_program(tmp_path):
    """A program that accepts and never answers is not waited for, once no `up` is alive."""
    with Stranger(tmp_path, stays=True):
        began = time.monotonic()
        with pytest.raises(millrace.RunError, match="does not answer, and no `millrace up` serves this directory"):
            next(millrace.connect(str(tmp_path)))
        assert time.monotonic() - began < AT_ONCE


def test_a_refusal_of_the_first_part_of_a_state(tmp_path):
    """A sidecar refuses the state and hangs up, while the client sends the rest of it."""
    head = wire.pack(wire.ERROR, rank=wire.ERROR_START, body=10)
    with Stranger(tmp_path, head + b"it is full"):
        loader = millrace.connect(str(tmp_path))
        loader.load_state_dict({"x": "x" * (6 << 20)})
        with pytest.raises(millrace.StartError, match="it is full"):
            next(loader)


# States.


def refuses_at_once(state, error, reason):
    loader = millrace.connect("nowhere.sock")
    with pytest.raises(error, match=reason):
        loader.load_state_dict(state)


def test_states_that_json_cannot_hold():
    deep = {}
    at = deep
    for _ in range(100_000):
        at["x"] = at = {}
    refuses_at_once("state", TypeError, "a dict is wanted, not str")
    refuses_at_once(None, TypeError, "a dict is wanted, not NoneType")
    refuses_at_once({"step": object()}, TypeError, "this is no state of a run .*object.*state_dict.. unchanged")
    refuses_at_once({b"step": 1}, TypeError, "this is no state of a run")
    refuses_at_once({"step": float("nan")}, ValueError, "this is no state of a run")
    refuses_at_once({"step": 1, "x": "x" * (9 << 20)}, ValueError, "it has 94.* bytes")
    refuses_at_once({"json": "{"}, ValueError, "this is no state of a run")
    refuses_at_once({"json": 7}, TypeError, "this is no state of a run")
    refuses_at_once({"json": "[]"}, TypeError, "its text holds no object, but list")
    refuses_at_once(deep, ValueError, "this is no state of a run")
