"""The state of a loader for torch.distributed.checkpoint."""

from __future__ import annotations

from typing import Any, Dict, Protocol

from ._state import in_one_string


class Resumable(Protocol):
    """An object with a state, as a loader is."""

    def state_dict(self) -> Dict[str, Any]: ...

    def load_state_dict(self, state: Dict[str, Any]) -> None: ...


class DcpState:
    """A loader as a `Stateful` of torch.distributed.checkpoint (DCP).

    DCP loads only the keys that a state has before it is loaded, and the keys of a loader's state change at its first
    batch. So this state is one string under one key."""

    def __init__(self, loader: Resumable) -> None:
        self._loader = loader

    def state_dict(self) -> Dict[str, Any]:
        """Return the loader's state after its last returned batch, as one string under one key."""
        return in_one_string(self._loader.state_dict())

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Start the loader from a state of any rank."""
        self._loader.load_state_dict(state)
