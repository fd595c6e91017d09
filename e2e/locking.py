"""Runs a program on a machine whose kernel refuses some locks: `python locking.py ERRNO KIND PROGRAM ARGS…`.

KIND is `wait` or `try`, for locks of whole files that are waited for or not (flock), or `range` (fcntl). The kernel's
filter of system calls (seccomp) answers, so the program is the one that users have."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
import sys
from typing import List, Tuple

FLOCK, FCNTL = {"x86_64": (73, 72), "aarch64": (32, 25)}.get(platform.machine(), (-1, -1))
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _SECOND = 0, 24  # bytes into the data of a filter: of the call, and of the low half of its second argument
_SET = {  # the calls that are refused, with their second argument
    "wait": (FLOCK, [fcntl.LOCK_EX, fcntl.LOCK_SH]),
    "try": (FLOCK, [fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_SH | fcntl.LOCK_NB]),
    "range": (FCNTL, [fcntl.F_SETLK, 37]),  # 37: of an open file (F_OFD_SETLK)
}


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def rules(call: int, arguments: List[int], answer: int) -> List[Tuple[int, int, int, int]]:
    """The filter's instructions: a code, the jumps if true and if false, and a constant."""
    out = [(_LOAD, 0, 0, _NUMBER), (_EQUAL, 0, len(arguments) + 1, call), (_LOAD, 0, 0, _SECOND)]
    for left, argument in zip(range(len(arguments), 0, -1), arguments):
        out.append((_EQUAL, left, 0, argument))
    return [*out, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | answer)]


def main() -> None:
    answer, kind, *command = sys.argv[1:]
    text = b"".join(struct.pack("HBBI", *rule) for rule in rules(*_SET[kind], getattr(errno, answer)))
    program = _Program(len(text) // 8, text)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    refused = libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.addressof(program), 0, 0)  # no new privileges
    if refused:
        raise OSError(ctypes.get_errno(), "filter system calls")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
