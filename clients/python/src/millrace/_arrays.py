"""Functions that NumPy, torch and JAX have under one name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any, Callable, Dict, Optional

import numpy as np


def namespace(array: Any) -> Any:
    """Return the module whose functions take the array: numpy, torch or jax.numpy."""
    if isinstance(array, np.ndarray):
        return np
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch
    return importlib.import_module("jax.numpy")


def is_installed(module: str) -> bool:
    """Return whether a module can be imported. It is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # its package, or a stand-in without a specification
        return module in sys.modules


def count_up(length: int, like: Any) -> Any:
    """Return 0, 1, … length-1 as int32, on the device of `like`."""
    xp = namespace(like)
    where = {"device": like.device} if xp.__name__ == "torch" else {}
    return xp.arange(length, dtype=xp.int32, **where)


def jax_from_numpy() -> Callable[[Any], Any]:
    """Return the function that makes a JAX array of a NumPy array. It is a view of the same memory on CPUs, if JAX has
    the dtype and the memory is writable; otherwise a copy on the default device. The NumPy array lives until JAX needs
    it no more."""
    jax = importlib.import_module("jax")
    if jax.default_backend() == "cpu":
        # DLPack as JAX reads it cannot mark memory as read-only.
        return lambda array: jax.dlpack.from_dlpack(array if array.flags.writeable else array.copy())
    put: Callable[[Any], Any] = jax.device_put
    return put


def torch_from_numpy() -> Callable[[Any], Any]:
    """Return the function that makes a torch tensor of a NumPy array, a view of the same memory."""
    function: Callable[[Any], Any] = importlib.import_module("torch").from_numpy
    return function


# For each kind of tensors, a function that returns the function that makes one of an array; None: an array is one.
FROM_NUMPY: Dict[str, Callable[[], Optional[Callable[[Any], Any]]]] = {
    "numpy": lambda: None,
    "torch": torch_from_numpy,
    "jax": jax_from_numpy,
}
