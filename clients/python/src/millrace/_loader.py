"""The loader: an iterator over one rank's batches."""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import threading
import time
import warnings
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple, Type

from ._arrays import is_installed
from ._batch import Batch
from ._copies import Copies
from ._dcp import DcpState
from ._devices import find_device
from ._errors import MisuseError, RunError
from ._failpoint import hit
from ._frames import Frames
from ._misuse import BATCH, STATE, refuse_misuse
from ._patience import Limits, read_patience
from ._reports import Reports
from ._state import read_state
from ._stream import Axes, Start, Stream
from ._views import Keys, Names
from ._where import TRAIN, find_socket, socket_of

TENSORS = (None, "numpy", "torch", "jax", "auto")
STARTS = (None, "fresh", "latest")
FIGURES_EVERY = 1.0  # seconds between two questions for the run's figures


def connect(
    path: Optional[str] = None,
    *,
    tensors: Optional[str] = None,
    start: Optional[str] = None,
    keys: Keys = None,
    device: Any = None,
    prefetch: int = 0,
    stream: str = TRAIN,
    wait: float = 5.0,
    patience: Optional[float] = None,
) -> "DataLoader":
    """Return a loader for one rank. It connects at the first `next()`.

    `path`: the rank's socket, `DIR/rank-<r>.sock`, or the run directory, for the socket of LOCAL_RANK (0 if unset),
        or of RANK in a trainer with ranks on several hosts.
        Without a path: MILLRACE_SOCKET, or MILLRACE_RUN_DIR with LOCAL_RANK.
    `tensors`: "numpy", "torch" (views of the same memory), "jax" (the same on CPUs, else copies on the default device),
        or "auto": torch if it is imported at this call, else NumPy. None is "auto", with a UserWarning if torch is
        installed and not imported: name the kind then, so that no import elsewhere decides it.
    `start`: None, "fresh" (from step 0) or "latest" (the first step that not all ranks have committed). A loaded state
        replaces it. On a run with history, None without a state is a StartError. For a stream other than "train", None
        is "fresh".
    `keys`: the names of the tensors, as models of a framework expect them: "hf", "torchtitan", "megatron", "maxtext",
        or a mapping {new: old} of the tensors to keep. None: the loader's names.
    `device`: a torch device, "cpu", "cuda" or "cuda:<n>", to which each batch is copied beside the trainer's work. Its
        tensors are torch tensors of their own memory, and the frame is released when the copy has ended. None: tensors
        are views of shared memory.
    `prefetch`: with `device`, the most batches to copy ahead of the trainer. The position, the state and the commits
        follow the batches that `next()` has returned.
    `stream`: "train", or the name of another stream of the mixture file, such as an evaluation set. Each has its own
        position. With "fresh", each `for` over the loader of such a stream begins it anew, on all ranks.
    `wait`: seconds to wait for the first `millrace up`.
    `patience`: seconds to wait for a new `millrace up` on the same run directory after one was killed; by default
        MILLRACE_PATIENCE, or 30. While `up` lives, the loader waits without a limit. After `up` has written how the
        run ended, for example by Ctrl-C, the loader waits one second.

    Raises ValueError for a wrong argument and ModuleNotFoundError if PyTorch or JAX is wanted and missing."""
    if tensors not in TENSORS:
        raise ValueError(f"tensors={tensors!r}: want one of {', '.join(map(repr, TENSORS))}")
    if start not in STARTS:
        raise ValueError(f"start={start!r}: want None, 'fresh' or 'latest'")
    if device is not None and tensors not in (None, "torch", "auto"):
        raise ValueError(f"device={device!r} gives torch tensors, and tensors={tensors!r} asks for others")
    if prefetch < 0 or prefetch > 0 and device is None:
        raise ValueError(f"prefetch={prefetch!r}: want a number from 0 on, and a device= to copy batches to")
    socket = socket_of(find_socket(path), stream)
    if tensors in ("torch", "jax"):
        importlib.import_module(tensors)  # raises now if it is missing
    kind = "torch" if device is not None else choose_kind(tensors)
    copies = None if device is None else Copies(find_device(device), prefetch)
    frames = Frames(kind, None if keys is None else Names(keys), copies)
    further = stream != TRAIN
    begin = Start("fresh" if further and start is None else start)
    limits = Limits(wait, read_patience() if patience is None else patience)
    return _loader_kind()(Stream(socket, frames, begin, limits), further)


class DataLoader:
    """An iterator over the microbatches of one rank. Use one for each rank, in the process that trains. `connect`
    returns it.

    A step counts as consumed when the trainer asks for the batch after the step's last one."""

    def __init__(self, stream: Stream, further: bool) -> None:
        """`further`: whether the stream is another one than "train"."""
        self._pid = os.getpid()
        self._stream = stream
        self._further = further
        self._reports = Reports(stream.offer_report)
        self._lock = threading.Lock()
        self._checked = False  # whether refuse_misuse has passed
        self._figures: Tuple[float, Dict[str, Any]] = (-FIGURES_EVERY, {})  # when asked, newest answer

    # Taking batches.

    def __iter__(self) -> Iterator[Batch]:
        self._guard()
        self._checked = False
        self._check()
        stream = self._stream
        if self._further and stream.start.kind == "fresh" and stream.place is not None:
            if stream.ended or stream.start.state is None:
                with self._lock:
                    stream.restart(Start("fresh"))
        return self

    def __next__(self) -> Batch:
        stream = self._stream
        if stream.closed or not self._checked or self._pid != os.getpid():
            self._guard()
            self._check()
            stream = self._stream
        before = stream.place
        try:
            with self._lock:
                return stream.next()
        except StopIteration:
            raise
        except BaseException as e:
            # An interrupt may have lost a message or the batch. The next call connects again and continues here.
            stream.hang_up()
            if before is not None:
                stream.place = before
            if isinstance(e, RunError):
                # The frames of the client say nothing to the author of a trainer.
                raise e.with_traceback(None)  # noqa: B904
            raise

    def __len__(self) -> int:
        raise TypeError(
            "a millrace loader has no length: the run's `stop` decides when it ends. For torch's DataLoader import "
            "torch before millrace.connect(), and use DataLoader(loader, batch_size=None)"
        )

    # The state.

    def state_dict(self) -> Dict[str, Any]:
        """Return the state after the last returned batch. `json.dumps` accepts it. At a step's end it is equal on all
        ranks.

        Before the first batch it is the loaded state, or a note of the declared start. If a framework fetches batches
        ahead of training, save `batch.state_dict()` of the last batch that was trained on instead.

        For torch.distributed.checkpoint use `dcp_state()`."""
        hit("client/state/before")
        refuse_misuse(STATE)
        stream = self._stream
        if stream.place is not None:
            return stream.place.state.to_dict()
        if stream.start.state is not None:
            copy: Dict[str, Any] = json.loads(json.dumps(stream.start.state))
            return copy
        return {"start": stream.start.kind or "fresh"}

    def dcp_state(self) -> DcpState:
        """Return this loader as a `Stateful` of torch.distributed.checkpoint:
        `dcp.save({"model": …, "loader": loader.dcp_state()})`, and `dcp.load` of the same keys."""
        return DcpState(self)

    def load_state_dict(self, state: Dict[str, Any], override: Sequence[str] = ()) -> None:
        """Start from a state of any rank, saved under any topology. Every rank must load the same state.

        `state` is a `state_dict()`, or the one that `dcp_state()` has saved.

        `override` lists the parts of the run's identity that may differ from the state's. The StartError of a refused
        state names these parts. Raises TypeError or ValueError if `state` is no dict that JSON can hold. If the run
        refuses the state, the next `next()` raises StartError."""
        copy = read_state(state)
        stream = self._stream
        with self._lock:
            start = Start(stream.start.kind, copy, tuple(str(name) for name in override))
            if set(copy) == {"start"} and copy["start"] in STARTS:  # saved before the first batch
                start = Start(copy["start"], None, start.override)
            stream.restart(start)

    def checkpoint_saved(self, step: int) -> None:
        """Report that the model's checkpoint of this step is durable. The run may then drop data that only older
        checkpoints need."""
        self._guard()
        self._stream.save(int(step))

    # Topology, reports and counts.

    @property
    def topology(self) -> Dict[str, int]:
        """The number of ranks on each axis: tp, cp, dp, pp. Raises RuntimeError before the first `next()`."""
        return dict(self._begun("topology").topology)

    @property
    def coordinates(self) -> Dict[str, int]:
        """The place of this rank on each axis: tp, cp, dp, pp, from 0. Raises RuntimeError before the first `next()`.

        Ranks count along tp first, then cp, dp and pp. Compare the coordinates with your process groups: with another
        arrangement, the trainer would train on the wrong batches."""
        return dict(self._begun("coordinates").coordinates)

    def report_losses(self, step: int, losses: Mapping[str, Tuple[float, float]]) -> None:
        """Report this rank's loss of a step by source: `{source: (loss_sum, tokens)}`, the sum over that many tokens.

        An `adaptive:` mixture computes weights from it. The call never waits, and the report may be lost."""
        self._guard()
        self._reports.losses(step, losses)

    def report_time(self, step: int, microbatch: int, seconds: float) -> None:
        """Report the time of forward and backward of a microbatch on this rank, without the wait for other ranks.

        The run compares predicted costs with these times and calibrates costs from them. A step's times are sent at the
        first report of the next step. The call never waits, and the report may be lost."""
        self._guard()
        self._reports.time(step, microbatch, seconds)

    def stats(self) -> Dict[str, Any]:
        """Return counts since the loader was made, and the run's figures.

        `batches`, `bytes`, `copied_batches`, `connections`; `wait_seconds` spent in `next()`, of them
        `first_batch_seconds` for the first batch; without the first: `longest_wait_seconds`, and `long_waits` of more
        than a second; `last_wait_seconds`. `last_cause`: activity, source, shard, role, pid and text of the newest wait
        that the sidecar explained, or None. Of the ring now: `frames`, and the `held_frames` among them.

        `run`: the run's figures as `millrace status --json` has them under `delivery`; at most a second old if the
        roles answer, and empty before the first batch. docs/metrics.md explains them."""
        stream = self._stream
        ring = stream.conn.ring if stream.conn is not None else None
        return {
            "wait_seconds": stream.waited,
            "last_wait_seconds": stream.last,
            **stream.waits.to_dict(),
            "run": self._run_figures(stream),
            "batches": stream.frames.batches,
            "bytes": stream.frames.bytes,
            "copied_batches": stream.frames.copied,
            "connections": stream.connections,
            "frames": ring.frames if ring else 0,
            "held_frames": len(ring.leased) if ring else 0,
        }

    def _run_figures(self, stream: Stream) -> Dict[str, Any]:
        """Return the run's figures. Ask at most once a second, and not while another thread is in `next`."""
        now = time.monotonic()
        if now - self._figures[0] >= FIGURES_EVERY and self._pid == os.getpid() and self._lock.acquire(blocking=False):
            try:
                self._figures = (now, stream.ask_figures() or self._figures[1])
            finally:
                self._lock.release()
        return self._figures[1]

    # Leaving.

    def close(self) -> None:
        """Leave the run. Tensors stay valid. The last step counts as consumed only if the trainer has asked for the
        batch after it."""
        self._stream.closed = True
        hit("client/close/before")
        self._stream.hang_up()

    def __enter__(self) -> "DataLoader":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():  # otherwise the globals of the modules may be gone, and the system closes the socket
            self._stream.hang_up()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a millrace loader cannot be sent to another process: call millrace.connect() in the process that trains, "
            "and use num_workers=0"
        )

    def _begun(self, name: str) -> Axes:
        """Return the axes of the run. The sidecar sends them when all ranks have declared their starts, and this rank
        declares its own at the first `next()`. A question for them does not declare it: a state may still be loaded,
        and the answer would wait for the other ranks."""
        axes = self._stream.axes
        if axes is None:
            raise RuntimeError(
                f"loader.{name} is not known yet: the run has it when every rank has declared its start, at the first "
                "next(loader). Read it after the first batch"
            )
        return axes

    def _guard(self) -> None:
        if os.getpid() != self._pid:
            raise MisuseError(
                f"this loader belongs to process {self._pid} and was forked to process {os.getpid()}: call "
                "millrace.connect() in the process that trains, and use num_workers=0 with torch's DataLoader"
            )
        if self._stream.closed:
            raise RuntimeError("the loader is closed")

    def _check(self) -> None:
        refuse_misuse(BATCH)
        self._checked = True


def choose_kind(tensors: Optional[str]) -> str:
    """Return the kind of tensors, decided now: a later import does not change it."""
    if tensors is not None and tensors != "auto":
        return tensors
    if "torch" in sys.modules:
        return "torch"
    if tensors is None and is_installed("torch"):
        warnings.warn(
            "connect() has no tensors=, and torch is installed but not imported: batches are NumPy arrays. Write "
            "tensors=\"torch\" or tensors=\"numpy\", so that no import elsewhere decides it",
            stacklevel=3,
        )
    return "numpy"


def _loader_kind() -> Type[DataLoader]:
    """Return the class of a new loader: if torch is imported, the subclass that is also torch's IterableDataset.

    torch's DataLoader asks every other object for a length and for items, and Lightning asks a loader for its length.
    A virtual subclass is not enough: IterableDataset of older PyTorch is no abstract class."""
    dataset = getattr(sys.modules.get("torch.utils.data"), "IterableDataset", None)
    return DataLoader if dataset is None else _iterable_kind(dataset)


@functools.lru_cache(maxsize=None)
def _iterable_kind(dataset: type) -> Type[DataLoader]:
    """Return the subclass of DataLoader and torch's IterableDataset. It has the name of DataLoader."""
    return type("DataLoader", (DataLoader, dataset), {"__module__": "millrace", "__doc__": DataLoader.__doc__})
