"""Start `millrace up` for a notebook or a script of one host, and stop it again."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import threading
from types import TracebackType
from typing import Any, Mapping, Optional, Type, Union

from ._child import Child, find_program
from ._loader import DataLoader, connect


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
        find_program()
        self.ranks = int(ranks)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._temporary = run_dir is None
        self.run_dir = tempfile.mkdtemp(prefix="millrace-") if run_dir is None else os.path.abspath(run_dir)
        atexit.register(self.close)
        try:
            os.makedirs(self.run_dir, exist_ok=True)
            given = isinstance(mixture, Mapping)
            text = json.dumps(mixture, indent=1, default=os.fspath).encode() if given else b""
            name = "-" if given else os.path.abspath(os.fspath(mixture))  # type: ignore[arg-type]
            self._up = Child(
                ["up", name, "--ranks", str(self.ranks), "--run-dir", self.run_dir],
                os.path.join(self.run_dir, "up.log"),
                text,
            )
            while not self._up.is_ready():
                pass
        except BaseException:
            self.close()
            raise

    _up: Optional[Child] = None

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
                self._up.stop()
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
