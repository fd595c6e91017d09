"""Programs whose time of day is ahead, or behind. A time namespace shifts the other clocks of a process, and not this
one, which the kernel has once. So this changes the program: where Go's `time.now` has read the clock, a copy adds
seconds. The program's own code, its monotonic clock and the times of its files stay as they are."""

from __future__ import annotations

import platform
import re
import struct
from pathlib import Path

# The end of `time.now` of Go on Linux (runtime/time_linux_amd64.s). Everything before the first group has read both
# clocks from the vDSO. The second group runs only without a vDSO, so its place is free for other instructions.
END_OF_NOW = re.compile(
    rb"(\x48\x8b\x44\x24\x10)"  # MOVQ 16(SP), AX: the seconds of the time of day
    rb"\x48\x8b\x7c\x24\x18\x48\x8b\x0c\x24\x48\x69\xc9\x00\xca\x9a\x3b"  # nanoseconds; monotonic seconds * 1e9
    rb".{20,90}?\xc3"  # RET
    rb"(\x48\xc7\xc0\xe4\x00\x00\x00\x0f\x05\xbf\x01\x00\x00\x00)",  # MOVQ $228, AX; SYSCALL; MOVL $1, DI
    re.DOTALL,
)
HOUR = 3600


def is_possible() -> bool:
    return platform.machine() == "x86_64"


def ahead(program: Path, seconds: int, out: Path) -> Path:
    """Writes a copy of a Go program whose time of day is ahead by a number of seconds, and its children's."""
    code = bytearray(program.read_bytes())
    found = list(END_OF_NOW.finditer(code))
    assert len(found) == 1, f"{program} has {len(found)} ends of time.now: see runtime/time_linux_amd64.s of its Go"
    load, free = found[0].span(1), found[0].start(2)
    moved = bytes(code[load[0]:load[1]])
    code[load[0]:load[1]] = jump(load[0], free)
    added = moved + b"\x48\x05" + struct.pack("<i", seconds)  # ADDQ $seconds, AX
    code[free:free + len(added)] = added
    free += len(added)
    code[free:free + 5] = jump(free, load[1])
    out.write_bytes(code)
    out.chmod(0o755)
    return out


def jump(at: int, to: int) -> bytes:
    return b"\xe9" + struct.pack("<i", to - at - 5)
