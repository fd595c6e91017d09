"""The state of a run as a trainer saves it."""

from __future__ import annotations

import json
from typing import Any, Dict, NamedTuple, Optional, Tuple


class State(NamedTuple):
    """The run's state after one batch. All batches of a step share `text`. Only `to_dict` parses it."""

    text: bytes  # JSON: the state before the batch's step; after it if the batch is the step's last
    middle: Optional[Tuple[int, str]]  # in the middle of a step: the next microbatch, and the step's placement digest

    def to_dict(self) -> Dict[str, Any]:
        """Return the state as a fresh dict that `json.dumps` accepts."""
        state: Dict[str, Any] = json.loads(self.text)
        if self.middle is not None:
            state["microbatch"], state["placement"] = self.middle
        return state


def read_begin(state: Optional[Dict[str, Any]]) -> State:
    """Return the state before the first batch, from the state that BEGIN carries."""
    whole = dict(state or {})
    microbatch, placement = whole.pop("microbatch", 0), whole.pop("placement", "")
    return State(json.dumps(whole).encode(), (microbatch, placement) if microbatch else None)


STRING = "json"  # the only key of a state that is one string


def in_one_string(state: Dict[str, Any]) -> Dict[str, Any]:
    """Return a state in the form whose keys are the same before and after the first batch."""
    return {STRING: json.dumps(state)}


MOST_BYTES = 8 << 20  # far more than a state of the largest mixture
_CURE = "pass the value of state_dict() unchanged"


def read_state(state: Any) -> Dict[str, Any]:
    """Return a copy of a state in either form. Raises TypeError or ValueError for a value that no `state_dict()` has
    returned."""
    if not isinstance(state, dict):
        raise TypeError(f"load_state_dict: a dict is wanted, not {type(state).__name__}")
    try:
        text = state[STRING] if set(state) == {STRING} else json.dumps(state, allow_nan=False)
        if len(text) > MOST_BYTES:
            raise ValueError(f"it has {len(text)} bytes, and {MOST_BYTES} are the most")
        copy = json.loads(text)
        if not isinstance(copy, dict):
            raise TypeError(f"its text holds no object, but {type(copy).__name__}")
        return copy
    except (TypeError, ValueError, RecursionError) as e:
        kind = TypeError if isinstance(e, TypeError) else ValueError
        raise kind(f"load_state_dict: this is no state of a run ({e}): {_CURE}") from None
