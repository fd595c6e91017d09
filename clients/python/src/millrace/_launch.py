"""Start `millrace up` for a notebook or a script of one host, and stop it again."""

from __future__ import annotations

import atexit
import json
import logging
import os
import select
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from types import TracebackType
from typing import Any, BinaryIO, Dict, List, Mapping, Optional, Type, Union

from ._errors import RunError
from ._loader import DataLoader, connect

log = logging.getLogger("millrace")

STOP_WITHIN = 30.0  # seconds from SIGTERM to SIGKILL; longer than the program's own grace
LOOK = 0.2  # seconds between looks at the messages of an `up` that starts
SAID = 20  # lines of its messages that an error repeats
USAGE = 2  # exit status for a wrong mixture or a wrong argument


def launch(
    mixture: Union[str, "os.PathLike[str]", Mapping[str, Any]],
    ranks: int = 1,
    run_dir: "Union[str, os.PathLike[str], None]" = None,
) -> "Run":
    """Start `millrace up` on this host and return its run when every rank's socket accepts.

    `mixture` is the path of a mixture file, or its content as a dict. Relative paths of a dict are relative to the
    working directory. Without `run_dir`, the run gets a temporary directory, which `close` removes. With a `run_dir`,
    the run's history stays there, and a later launch continues the run.

    Raises ValueError if the mixture or an argument is wrong, with its place in the file. Raises RunError if the run
    fails to start, and FileNotFoundError if there is no program `millrace`."""
    return Run(mixture, ranks, run_dir)


class Run:
    """A run that `launch` started, as a context manager. `up` ends at `close`, at the end of the `with` block, when the
    interpreter exits, and when this process is killed."""

    def __init__(
        self,
        mixture: Union[str, "os.PathLike[str]", Mapping[str, Any]],
        ranks: int,
        run_dir: "Union[str, os.PathLike[str], None]",
    ) -> None:
        program = find_program()
        self.ranks = int(ranks)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._temporary = run_dir is None
        self.run_dir = tempfile.mkdtemp(prefix="millrace-") if run_dir is None else os.path.abspath(run_dir)
        atexit.register(self.close)
        try:
            os.makedirs(self.run_dir, exist_ok=True)
            self._up = self._start(program, mixture)
        except BaseException:
            self.close()
            raise

    _up: "Optional[subprocess.Popen[bytes]]" = None

    def connect(self, rank: int = 0, **options: Any) -> DataLoader:
        """Return the loader of a rank of this run. The options are those of `millrace.connect`."""
        if self._closed:
            raise RuntimeError(f"connect: the run in {self.run_dir} is closed: launch it again")
        if not 0 <= rank < self.ranks:
            raise ValueError(f"connect: rank {rank}: this run has the ranks 0 to {self.ranks - 1}: see launch(ranks=)")
        return connect(os.path.join(self.run_dir, f"rank-{rank}.sock"), **options)

    def close(self) -> None:
        """Stop the run. Loaders that are still open then raise RunError; their tensors stay valid. The method may be
        called again, and does nothing in a forked process."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._closed = True
            if self._up is not None:
                stop(self._up)
            if self._temporary:
                shutil.rmtree(self.run_dir, ignore_errors=True)
        atexit.unregister(self.close)

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<millrace.Run of {self.ranks} ranks in {self.run_dir}{', closed' if self._closed else ''}>"

    def __reduce__(self) -> Any:
        raise TypeError("a millrace run cannot be sent to another process: give that process run_dir and its rank")

    def _start(
        self, program: str, mixture: Union[str, "os.PathLike[str]", Mapping[str, Any]]
    ) -> "subprocess.Popen[bytes]":
        """Start `up` in a session of its own: an interrupt of the notebook does not stop it. Return when it is ready.

        Its messages go to a file and not to a pipe: a busy trainer would not read a pipe."""
        given = isinstance(mixture, Mapping)
        text = json.dumps(mixture, indent=1, default=os.fspath).encode() if given else b""
        name = "-" if given else os.path.abspath(os.fspath(mixture))  # type: ignore[arg-type]
        command = [program, "up", name, "--ranks", str(self.ranks), "--run-dir", self.run_dir]
        environment: Dict[str, str] = {**os.environ, "MILLRACE_PARENT": str(os.getpid())}
        with open(os.path.join(self.run_dir, "up.log"), "a+b") as messages, tempfile.TemporaryFile() as described:
            messages.seek(0, os.SEEK_END)
            described.write(text)
            described.seek(0)
            up = subprocess.Popen(
                command,
                stdin=described,
                stdout=subprocess.PIPE,
                stderr=messages,
                env=environment,
                start_new_session=True,
            )
            try:
                self._await_ready(up, Messages(messages))
            except BaseException:
                stop(up)
                raise
        return up

    def _await_ready(self, up: "subprocess.Popen[bytes]", messages: "Messages") -> None:
        assert up.stdout is not None  # it stays open: `up` may write to it again
        while not select.select([up.stdout], [], [], LOOK)[0]:
            messages.read()
        if up.stdout.readline().startswith(b"ready"):
            messages.read()
            return
        status = up.wait()
        messages.read(quiet=True)
        reason = "\n".join(messages.last) or f"`millrace up` ended with status {status}"
        raise ValueError(reason) if status == USAGE else RunError(reason)


class Messages:
    """The messages of an `up` that starts, from a file. They are logged, and the last ones are kept."""

    def __init__(self, file: BinaryIO) -> None:
        # A descriptor of its own, because the position of `file` is also that of `up`.
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


def stop(up: "subprocess.Popen[bytes]") -> None:
    """Stop `up` and wait for its end. If it is killed, its roles exit by themselves."""
    if up.poll() is None:
        up.terminate()
        try:
            up.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            up.kill()
            up.wait()


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
