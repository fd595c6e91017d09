"""Devices that batches are copied to: the CPU's own memory, and CUDA devices."""

from __future__ import annotations

import importlib
import logging
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, Tuple

import numpy as np

from ._connection import Ring

log = logging.getLogger("millrace")

PORTABLE = 1  # cudaHostRegisterPortable: the memory is page-locked for every device of the process
READ_ONLY = 8  # cudaHostRegisterReadOnly: the process cannot write to the memory


class Done(Protocol):
    """The end of a copy. A torch.cuda.Event is one."""

    def query(self) -> bool:
        """Return whether the copy has ended."""

    def synchronize(self) -> None:
        """Wait until the copy has ended."""


class Device(Protocol):
    """Copies bytes to one device, in order, beside the trainer's work."""

    def register(self, ring: Ring) -> None:
        """Prepare a ring for copies from its frames."""

    def copy(self, memory: "np.ndarray[Any, Any]") -> Tuple[Any, Done]:
        """Start a copy. Return the torch tensor (uint8) that gets the bytes. `memory` must stay as it is until the copy
        has ended."""

    def hand_over(self, target: Any, done: Done) -> None:
        """Order all later work of the trainer on `target` after its copy."""


def find_device(name: Any) -> Device:
    """Return a device by its torch name or `torch.device`. Raises ValueError for one that this process cannot use, and
    ModuleNotFoundError without PyTorch."""
    torch = importlib.import_module("torch")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as e:
        raise ValueError(f"device={name!r}: want 'cpu', 'cuda' or 'cuda:<n>'") from e
    if device.type == "cpu":
        return Cpu()
    if device.type != "cuda":
        raise ValueError(f"device={name!r}: want 'cpu', 'cuda' or 'cuda:<n>'; move other batches by batch.to(device)")
    if not torch.cuda.is_available():
        raise ValueError(f"device={name!r}: PyTorch sees no CUDA device; torch.cuda.is_available() is False")
    if device.index is not None and device.index >= torch.cuda.device_count():
        raise ValueError(f"device={name!r}: PyTorch sees {torch.cuda.device_count()} CUDA devices, from cuda:0")
    return Cuda(device)


class Cpu:
    """The memory of this process. One thread copies in order."""

    def __init__(self) -> None:
        self._torch = importlib.import_module("torch")
        self._copier = ThreadPoolExecutor(1, "millrace-copy")

    def register(self, ring: Ring) -> None:
        pass

    def copy(self, memory: "np.ndarray[Any, Any]") -> Tuple[Any, Done]:
        source = self._torch.from_numpy(memory)
        target = self._torch.empty_like(source)
        return target, Copied(self._copier.submit(target.copy_, source))

    def hand_over(self, target: Any, done: Done) -> None:
        done.synchronize()


class Copied:
    """The end of a copy by a thread."""

    def __init__(self, future: "Future[Any]") -> None:
        self._future = future

    def query(self) -> bool:
        return self._future.done()

    def synchronize(self) -> None:
        self._future.result()


class Cuda:
    """A CUDA device. A stream of its own copies from page-locked memory."""

    def __init__(self, device: Any) -> None:
        self._torch = importlib.import_module("torch")
        index = self._torch.cuda.current_device() if device.index is None else device.index
        self._device = self._torch.device("cuda", index)
        self._stream = self._torch.cuda.Stream(self._device)
        self._is_registered = True
        self._told = False

    def register(self, ring: Ring) -> None:
        cuda = self._torch.cuda
        flags = PORTABLE | READ_ONLY if ring.is_read_only else PORTABLE
        with cuda.device(self._device):
            error = int(cuda.cudart().cudaHostRegister(ring.address, len(ring.memory), flags))
        self._is_registered = error == 0
        if error == 0:
            # The ring goes after its last copy, and its mapping after that.
            weakref.finalize(ring, _unregister, cuda.cudart(), ring.address).atexit = False
            return
        self._clear_error()
        if not self._told:
            self._told = True
            log.warning(
                "the CUDA driver cannot page-lock the ring of %d bytes (cudaError %d): each batch is copied to pinned "
                "memory first. If the limit of locked memory (ulimit -l) is low, raise it to spare that copy",
                len(ring.memory),
                error,
            )

    def _clear_error(self) -> None:
        """The runtime keeps the error of a failed call, and torch raises it at its next launch: let it do so here."""
        try:
            self._torch.zeros(1, device=self._device)
        except RuntimeError:
            pass

    def copy(self, memory: "np.ndarray[Any, Any]") -> Tuple[Any, Done]:
        torch = self._torch
        source = torch.from_numpy(memory)
        if not self._is_registered:
            source = source.pin_memory()
        with torch.cuda.stream(self._stream):
            target = torch.empty(source.shape, dtype=source.dtype, device=self._device)
            target.copy_(source, non_blocking=True)
            done: Done = torch.cuda.Event()
            done.record(self._stream)  # type: ignore[attr-defined]
        return target, done

    def hand_over(self, target: Any, done: Done) -> None:
        stream = self._torch.cuda.current_stream(self._device)
        stream.wait_event(done)
        target.record_stream(stream)  # the memory is the copying stream's, and the trainer's stream uses it


def _unregister(cudart: Any, address: int) -> None:
    cudart.cudaHostUnregister(address)
