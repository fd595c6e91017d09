"""A file system that fails on command: a read-only view of a directory, served through /dev/fuse.

The program `python faulty_fs.py DIRECTORY MOUNT_POINT MOUNT_FLAGS` serves until the file system is unmounted, or the
program dies. It takes orders on its standard input, one JSON object a line, and answers each with a line. No read is
served from the kernel's memory, so every read of a file comes to the program.

    {"faults": [["read", 5], …], "times": 2}  these errors in turn, each for so many operations
    {"fail": {"read": 5, "open": 5}}          these errors until the next order
    {"fail": {}}                              none
    {"told": true}                            answers alone

An answer has `left`, the number of the faults that have not come to their end, and `given`, the errors given so far.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

BETWEEN = 1  # operation that succeeds between two faults
DETACH = 2  # of umount2
DIRECT_IO = 1  # a reply's flag: nothing is read from the kernel's memory
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, GETXATTR = 1, 2, 3, 14, 15, 17, 18, 22
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = 25, 26, 27, 28, 29, 36, 38, 42
HEADER = struct.Struct("<IIQQIIII")  # of a request: its length, operation, number and node, and who asks
REPLY = struct.Struct("<IiQ")
ROOT = 1  # its node


class Faults:
    """The errors that operations get."""

    def __init__(self) -> None:
        self.fail: Dict[str, int] = {}
        self.turns: List[List[Any]] = []
        self.given = 0
        self._failed = self._served = 0  # operations since the last turn
        self._times = 1

    def take(self, order: Dict[str, Any]) -> Dict[str, int]:
        self.fail = order.get("fail", self.fail)
        if "faults" in order:
            self.turns, self._times, self._failed, self._served = list(order["faults"]), order["times"], 0, 0
        return {"left": len(self.turns), "given": self.given}

    def of(self, operation: str) -> int:
        """The error of an operation, or 0."""
        code = self.fail.get(operation, 0)
        if not code and self.turns and self.turns[0][0] == operation:
            if self._failed < self._times:
                code, self._failed = self.turns[0][1], self._failed + 1
            elif self._served < BETWEEN:
                self._served += 1
            else:
                self.turns, self._failed, self._served = self.turns[1:], 0, 0
        self.given += code != 0
        return code


class View:
    """The directory's files by the numbers that the kernel uses for them."""

    def __init__(self, directory: str) -> None:
        self.faults = Faults()
        self._paths = {ROOT: directory}
        self._nodes = {directory: ROOT}

    def answer(self, operation: int, node: int, body: bytes) -> Optional[bytes]:
        """The reply to a request, None if it gets none. An OSError is the error of the request."""
        if operation in (FORGET, BATCH_FORGET, INTERRUPT, DESTROY):
            return None
        if operation == INIT:
            return struct.pack("<IIIIHHIIHH32x", 7, 31, 0, 0, 12, 9, 1 << 17, 1, 32, 0)
        if operation in (FLUSH, RELEASEDIR):
            return b""
        if operation == STATFS:
            return struct.pack("<5Q4I24x", 1 << 20, 0, 0, 0, 0, 4096, 255, 4096, 0)
        if operation == OPENDIR:
            return struct.pack("<QII", 0, 0, 0)
        path = self._paths[node]
        if operation == LOOKUP:
            return self._lookup(os.path.join(path, os.fsdecode(body.rstrip(b"\0"))))
        if operation == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + attributes(path)
        if operation == READDIR:
            offset, size = struct.unpack_from("<8xQI", body)
            return entries(path, offset, size)
        return self._file(operation, path, body)

    def _lookup(self, path: str) -> bytes:
        self._fail("look")
        found = attributes(path)
        node = self._nodes.setdefault(path, len(self._nodes) + 1)
        self._paths[node] = path
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + found

    def _file(self, operation: int, path: str, body: bytes) -> bytes:
        if operation == OPEN:
            self._fail("open")
            (flags,) = struct.unpack_from("<I", body)
            if flags & os.O_ACCMODE != os.O_RDONLY:
                raise OSError(errno.EROFS, "")
            return struct.pack("<QII", os.open(path, os.O_RDONLY), DIRECT_IO, 0)
        if operation == READ:
            self._fail("read")
            handle, offset, size = struct.unpack_from("<QQI", body)
            return os.pread(handle, size, offset)
        if operation == RELEASE:
            os.close(*struct.unpack_from("<Q", body))
            return b""
        raise OSError(errno.ENOSYS, "")

    def _fail(self, operation: str) -> None:
        code = self.faults.of(operation)
        if code:
            raise OSError(code, "")


def attributes(path: str) -> bytes:
    s = os.lstat(path)
    times = [s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns]
    return struct.pack(
        "<6Q10I", s.st_ino, s.st_size, s.st_blocks, *(t // 10**9 for t in times), *(t % 10**9 for t in times),
        s.st_mode, s.st_nlink, s.st_uid, s.st_gid, 0, 4096, 0,
    )


def entries(path: str, offset: int, size: int) -> bytes:
    out = b""
    for place, entry in enumerate(sorted(os.scandir(path), key=lambda e: e.name)):
        name = os.fsencode(entry.name)
        kind = stat.S_IFMT(entry.stat().st_mode) >> 12
        one = struct.pack("<QQII", entry.inode(), place + 1, len(name), kind) + name
        one += bytes(-len(one) % 8)
        if place >= offset and len(out) + len(one) <= size:
            out += one
    return out


def serve(directory: str, at: str, flags: int) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    call("mount", b"faulty", at.encode(), b"fuse.faulty", flags,
         f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions".encode())
    view = View(directory)
    print(json.dumps({}), flush=True)
    while True:
        ready, _, _ = select.select([device, sys.stdin], [], [])
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if not line:  # the test has ended, perhaps by a kill
                call("umount2", at.encode(), DETACH)
                return
            print(json.dumps(view.faults.take(json.loads(line))), flush=True)
        if device in ready and not one(device, view):
            return


def one(device: int, view: View) -> bool:
    """Answers one request. False: the file system is unmounted."""
    try:
        request = os.read(device, 1 << 18)
    except OSError as e:
        return e.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN)  # the request was taken back
    _, operation, number, node, *_ = HEADER.unpack_from(request)
    code = 0
    try:
        body = view.answer(operation, node, request[HEADER.size :])
    except OSError as e:
        body, code = b"", e.errno or errno.EIO
    if body is not None:
        try:
            os.write(device, REPLY.pack(REPLY.size + len(body), -code, number) + body)
        except OSError as e:
            return e.errno == errno.ENOENT  # the asker has died
    return True


def call(name: str, *args: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


class Mount:
    """The file system at a mount point, as a context manager. The test needs `fuse`."""

    def __init__(self, directory: Path, at: Path) -> None:
        self.directory, self.at = directory, at
        at.mkdir()

    def __enter__(self) -> "Mount":
        self.mount()
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.unmount()

    def mount(self, directory: Optional[Path] = None, is_read_only: bool = False) -> None:
        """Serves the directory, or another one in its place."""
        self._program = subprocess.Popen(
            [sys.executable, __file__, str(directory or self.directory), str(self.at), str(int(is_read_only))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        self._answer()

    def kill(self) -> None:
        """The program dies: all that was open is dead, and so is the mount."""
        self._program.kill()
        self._program.wait()

    def unmount(self) -> None:
        """Unmounts lazily: processes keep their dead descriptors."""
        self.kill()
        call("umount2", str(self.at).encode(), DETACH)

    def _answer(self) -> Dict[str, int]:
        assert self._program.stdout is not None
        answer: Dict[str, int] = json.loads(self._program.stdout.readline())
        return answer

    def order(self, **order: Any) -> Dict[str, int]:
        assert self._program.stdin is not None
        self._program.stdin.write(json.dumps(order) + "\n")
        self._program.stdin.flush()
        return self._answer()

    def fail(self, **fail: int) -> None:
        """Fails operations until the next order: by `read=5` all reads."""
        self.order(fail=fail)

    def in_turn(
        self, faults: Sequence[Tuple[str, int]], times: int, within: float, meanwhile: Callable[[], None]
    ) -> None:
        """Gives errors in turn, until all have come, each within so many seconds. Calls `meanwhile` again and again."""
        before = left = self.order(faults=faults, times=times)["left"]
        until = time.monotonic() + within
        while left > 0:
            assert time.monotonic() < until, f"these did not come: {faults[-left:]}"
            time.sleep(0.05)
            meanwhile()
            left = self.order(told=True)["left"]
            if left < before:
                before, until = left, time.monotonic() + within

    def given(self) -> int:
        """The number of errors given so far."""
        return self.order(told=True)["given"]


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
