"""A process of the program `millrace` that ends with the process that started it."""

from __future__ import annotations

import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from typing import BinaryIO, List, Optional, Sequence

from ._errors import RunError

log = logging.getLogger("millrace")

STOP_WITHIN = 30.0  # seconds from SIGINT to SIGKILL; longer than the program's own grace
LOOK = 0.2  # seconds between looks at the messages
SAID = 20  # lines of its messages that an error repeats
USAGE = 2  # exit status for a wrong mixture or a wrong argument


class Child:
    """A process of `millrace` in a session of its own: an interrupt of the notebook does not stop it. When this process
    dies, the child ends by itself.

    `arguments` are those of the program, and `text` is its standard input. It runs in the directory `cwd`; None: in
    that of this process. Its messages go to the end of the file `messages` and not to a pipe: a busy trainer would not
    read a pipe. The caller calls `stop`."""

    def __init__(self, arguments: Sequence[str], messages: str, text: bytes = b"", cwd: Optional[str] = None) -> None:
        command = [find_program(), *arguments]
        with open(messages, "a+b") as out, tempfile.TemporaryFile() as described:
            out.seek(0, os.SEEK_END)
            described.write(text)
            described.seek(0)
            self._messages = Messages(out)
            self.process = subprocess.Popen(
                command,
                stdin=described,
                stdout=subprocess.PIPE,
                stderr=out,
                env={**os.environ, "MILLRACE_PARENT": str(os.getpid())},
                cwd=cwd,
                start_new_session=True,
            )

    def is_ready(self, within: float = LOOK) -> bool:
        """Log new messages, and return whether the child is ready within some seconds.

        Raise ValueError if it has ended because of a wrong argument or file, and RunError if it has ended."""
        assert self.process.stdout is not None  # it stays open: the child may write to it again
        self._messages.read()
        if not select.select([self.process.stdout], [], [], within)[0]:
            return False
        if self.process.stdout.readline().startswith(b"ready"):
            self._messages.read()
            return True
        status = self.process.wait()
        self._messages.read(quiet=True)
        raise ValueError(self.reason()) if status == USAGE else RunError(self.reason())

    def has_ended(self, within: float = LOOK) -> bool:
        """Log new messages, and return whether the child has ended within some seconds."""
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            pass
        self._messages.read()
        return self.process.returncode is not None

    def reason(self) -> str:
        """Return the last messages of a child that has ended, or its status."""
        return "\n".join(self._messages.last) or f"`millrace` ended with status {self.process.returncode}"

    def stop(self) -> None:
        """Stop the child and wait for its end. If it is killed, its roles exit by themselves."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # SIGTERM would wait for trainers that are still there
            try:
                self.process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Messages:
    """The messages of a child, from a file. They are logged, and the last ones are kept."""

    def __init__(self, file: BinaryIO) -> None:
        # A descriptor of its own, because the position of `file` is also that of the child.
        self._file = os.fdopen(os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_CLOEXEC), "rb")
        self._file.seek(file.tell())
        self._rest = b""
        self.last: List[str] = []

    def read(self, quiet: bool = False) -> None:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "replace")
            self.last = self.last[1 - SAID :] + [text]
            if not quiet:
                log.log(logging.WARNING if text.startswith("warning:") else logging.INFO, "up: %s", text)


def find_program() -> str:
    """Return the program `millrace`: MILLRACE, else the script beside this interpreter, else the one on the PATH."""
    named = os.environ.get("MILLRACE")
    if named:
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"launch: MILLRACE={named} is no program that this user can run")
        return os.path.abspath(named)
    for directory in (sysconfig.get_path("scripts"), os.path.dirname(sys.executable), os.environ.get("PATH")):
        found = shutil.which("millrace", path=directory)
        if found:
            return os.path.abspath(found)
    raise FileNotFoundError(
        "launch: there is no program `millrace` beside this Python or on the PATH: install a wheel of millrace-loader, "
        "which brings it, or set MILLRACE to the path of a build (`go build ./cmd/millrace`)"
    )
