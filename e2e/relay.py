"""A bad cable: it carries the frames between a host of a lab and its bridge late, out of order, not at all, or slowly.

    python relay.py --host h1 --seed 1 [--delay 0.05] [--jitter 0.02] [--ahead 0.1] [--loss 0.01] [--rate 1e6]

It reads and writes whole Ethernet frames at the device HOST, whose other end is `eth0` of the host, and at a new TAP
device, which joins the bridge in place of HOST. It prints a line when it carries frames, and ends with its input. The
kernels of test machines often have no netem, which does the same."""

from __future__ import annotations

import argparse
import array
import ctypes
import dataclasses
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from typing import Dict, List, Tuple

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
ALL_PROTOCOLS, SOL_PACKET, PACKET_IGNORE_OUTGOING = 0x0003, 263, 23
SIOCETHTOOL, ETHTOOL_STXCSUM, CLONE_NEWNET = 0x8946, 0x17, 0x40000000
MOST_WAITING = 4 << 20  # bytes for each direction; a cable of any rate loses what comes on top
LARGEST = 1 << 16


@dataclasses.dataclass(frozen=True)
class Faults:
    """The faults of a cable. Times are in seconds, shares between 0 and 1."""

    delay: float = 0.0  # of every frame
    jitter: float = 0.0  # up to so much more or less; frames overtake each other
    ahead: float = 0.0  # share of frames that wait for no delay, and overtake the others
    loss: float = 0.0  # share of frames
    rate: float = 0.0  # bytes per second in each direction; 0 is without limit

    def __str__(self) -> str:
        return ", ".join(f"{k} {v:.3g}" for k, v in dataclasses.asdict(self).items() if v)


class Direction:
    """The frames of one direction, each with the time at which it leaves."""

    def __init__(self, faults: Faults, rng: random.Random) -> None:
        self._faults, self._rng = faults, rng
        self._waiting: List[Tuple[float, int, bytes]] = []
        self._bytes = self._number = 0
        self._free = 0.0  # when the cable has carried what came before

    def take(self, frame: bytes, now: float) -> None:
        """Takes a frame, or loses it."""
        of = self._faults
        if self._rng.random() < of.loss or self._bytes + len(frame) > MOST_WAITING:
            return
        self._free = max(self._free, now) + (len(frame) / of.rate if of.rate else 0.0)
        due = self._free
        if self._rng.random() >= of.ahead:
            due += max(0.0, of.delay + self._rng.uniform(-of.jitter, of.jitter))
        self._number += 1
        self._bytes += len(frame)
        heapq.heappush(self._waiting, (due, self._number, frame))

    def due(self, now: float) -> List[bytes]:
        """The frames that leave now."""
        out = []
        while self._waiting and self._waiting[0][0] <= now:
            out.append(heapq.heappop(self._waiting)[2])
            self._bytes -= len(out[-1])
        return out

    def next(self, now: float) -> float:
        """The seconds until a frame leaves, at most one."""
        return min(1.0, max(0.0, self._waiting[0][0] - now)) if self._waiting else 1.0


def open_port(name: str) -> int:
    """A socket for all frames that the device receives. Frames written to it leave by the device."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MOST_WAITING)
    port.bind((name, 0))
    return port.detach()


def compute_checksums(host: str) -> None:
    """Makes the kernel of a host compute checksums and cut large packets, before they reach the cable."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as own, open(f"/run/netns/{host}") as other:
        assert libc.setns(other.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        value = array.array("I", [ETHTOOL_STXCSUM, 0])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCETHTOOL, struct.pack("16sP16x", b"eth0", value.buffer_info()[0]))
        assert libc.setns(own.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


def open_tap(name: str) -> int:
    """A new device of this process. It computes checksums, and cuts large packets, before they are read."""
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def carry(port: int, tap: int, faults: Faults, seed: int) -> None:
    """Carries frames until standard input ends."""
    other = {port: tap, tap: port}
    ways: Dict[int, Direction] = {fd: Direction(faults, random.Random(2 * seed + i)) for i, fd in enumerate(other)}
    for fd in other:
        os.set_blocking(fd, False)
    while True:
        now = time.monotonic()
        ready = select.select([*other, sys.stdin], [], [], min(way.next(now) for way in ways.values()))[0]
        if sys.stdin in ready:
            return
        for fd in ready:
            for _ in range(64):
                try:
                    frame = os.read(fd, LARGEST)
                except OSError:  # there is no further frame, or the end is unplugged
                    break
                ways[fd].take(frame, time.monotonic())  # not earlier, or a busy machine shortens the delay
        now = time.monotonic()
        for fd, way in ways.items():
            for frame in way.due(now):
                try:
                    os.write(other[fd], frame)
                except OSError:  # the other end is full or unplugged: the frame is lost, as on a cable
                    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", required=True)
    parser.add_argument("--seed", type=int, required=True)
    for field in dataclasses.fields(Faults):
        parser.add_argument(f"--{field.name}", type=float, default=field.default)
    args = parser.parse_args()
    faults = Faults(**{f.name: getattr(args, f.name) for f in dataclasses.fields(Faults)})
    compute_checksums(args.host)
    tap = open_tap(f"cable-{args.host}")
    port = open_port(args.host)
    subprocess.run(["sh", "-ec", f"ip link set {args.host} nomaster promisc on; "
                    f"ip link set cable-{args.host} master br0 up"], check=True, stdin=subprocess.DEVNULL)
    print("ready", flush=True)
    carry(port, tap, faults, args.seed)


if __name__ == "__main__":
    main()
