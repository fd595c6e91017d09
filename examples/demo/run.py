"""`millrace up` as a child process, and the other commands."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Optional, Set, Type

PATIENCE = 60.0  # seconds within which a run must begin, and must end after a signal


class RunFailed(Exception):
    """`millrace` failed; the message is its last line."""


def millrace(binary: Path, *args: object, allowed: int = 0) -> str:
    """Runs a command to its end and returns its output."""
    done = subprocess.run([binary, *map(str, args)], capture_output=True, text=True)
    if done.returncode not in (0, allowed):
        raise RunFailed(f"millrace {args[0]} ended with status {done.returncode}: {last_line(done.stderr)}")
    return done.stdout


def last_line(text: str) -> str:
    """Returns the last line of stderr, which has the reason of a failure."""
    return ([line for line in text.splitlines() if line.strip()] or ["it printed no reason"])[-1]


class Run:
    """A run from "ready" to its end. The end of the context stops it in every case."""

    def __init__(self, binary: Path, mixture: Path, ranks: int, directory: Path) -> None:
        self.directory = directory
        self._binary = binary
        self._seen: Set[int] = set()  # every known process of the run
        self._log = directory.with_suffix(".log")
        with open(self._log, "w") as log:
            # A session of its own: a Ctrl-C reaches this program alone, which then stops the run cleanly.
            self._up = subprocess.Popen(
                [binary, "up", mixture, "--ranks", str(ranks), "--run-dir", directory],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> "Run":
        try:
            assert self._up.stdout is not None
            line = self._up.stdout.readline()
            if not line.startswith("ready"):
                self._up.wait(PATIENCE)
                raise RunFailed(f"millrace up did not begin: {self.reason()}")
            self.roles()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.stop()
        except (RunFailed, subprocess.TimeoutExpired):
            self._kill()
            if value is None:
                raise

    def status(self) -> Dict[str, Any]:
        """Returns `millrace status --json`."""
        out: Dict[str, Any] = json.loads(millrace(self._binary, "status", self.directory, "--json", allowed=1))
        return out

    def roles(self) -> List[Dict[str, Any]]:
        """Returns the processes of the run."""
        out: List[Dict[str, Any]] = self.status().get("roles", [])
        self._seen.update(r["pid"] for r in out if r["pid"])
        return out

    def alive(self) -> bool:
        """Returns whether `up` runs."""
        return self._up.poll() is None

    def stop(self) -> None:
        """Asks a running run to stop, and waits for its end."""
        if self.alive():
            self._up.send_signal(signal.SIGINT)
        self.wait()

    def wait(self) -> None:
        """Waits until the run ends by itself."""
        try:
            status = self._up.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"millrace up did not end within {PATIENCE:.0f} s; see {self._log}") from None
        if status != 0:
            raise RunFailed(f"millrace up ended with status {status}: {self.reason()}")

    def reason(self) -> str:
        """Returns the last line of `up` on stderr."""
        return last_line(self._log.read_text())

    def left_behind(self) -> List[str]:
        """Returns the processes and sockets that are left after the end of the run."""
        end = time.monotonic() + 2
        while (pids := [p for p in self._seen if _is_millrace(p)]) and time.monotonic() < end:
            time.sleep(0.02)
        return [f"process {p}" for p in pids] + [str(p) for p in self.directory.rglob("*.sock")]

    def _kill(self) -> None:
        if self.alive():
            self._up.kill()  # its children notice and exit
        self._up.wait()


def _is_millrace(pid: int) -> bool:
    try:
        return (
            "millrace" in Path(f"/proc/{pid}/comm").read_text()
            or b"millrace" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
    except OSError:
        return False
