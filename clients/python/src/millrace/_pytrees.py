"""Batches as nodes of the tree libraries (torch, optree, JAX), so that `tree_map` keeps their metadata."""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterable, List, Tuple

from ._batch import Batch


def register_trees() -> None:
    """Register Batch with each tree library that was imported since the last call. A call for every batch is cheap."""
    modules = sys.modules
    for name in _MISSING:
        if name in modules:
            _MISSING.remove(name)
            _LIBRARIES[name](modules[name])
            return register_trees()


def _flatten(batch: Batch) -> Tuple[Tuple[Any, ...], "Context"]:
    return tuple(batch.values()), Context(batch)


class Context:
    """A batch without its tensors. Two contexts are equal if they have the same names: trees compare by structure."""

    __slots__ = ("names", "empty")

    def __init__(self, batch: Batch) -> None:
        self.names = tuple(batch)
        self.empty = batch.with_tensors({})

    def rebuild(self, tensors: Iterable[Any]) -> Batch:
        return self.empty.with_tensors(zip(self.names, tensors))

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Context) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)


def _register_torch(pytree: Any) -> None:
    register = getattr(pytree, "register_pytree_node", None) or pytree._register_pytree_node  # before 2.2
    register(
        Batch, lambda batch: (list(batch.values()), Context(batch)), lambda tensors, context: context.rebuild(tensors)
    )


def _register_optree(optree: Any) -> None:
    everywhere = optree.registry.__GLOBAL_NAMESPACE
    optree.register_pytree_node(
        Batch, _flatten, lambda context, tensors: context.rebuild(tensors), namespace=everywhere
    )


def _register_jax(tree_util: Any) -> None:
    tree_util.register_pytree_node(Batch, _flatten, lambda context, tensors: context.rebuild(tensors))


_LIBRARIES: Dict[str, Any] = {
    "torch.utils._pytree": _register_torch,
    "optree": _register_optree,
    "jax.tree_util": _register_jax,
}
_MISSING: List[str] = list(_LIBRARIES)  # not registered yet
