"""Batches under the names and the shapes that a framework's models expect.

A view shows tensors of the loader under other names, without a copy. It computes the few that no loader's tensor equals
when they are asked for."""

from __future__ import annotations

from typing import Any, Callable, Collection, Dict, Mapping, NamedTuple, Optional, Protocol, Tuple, Union

from ._arrays import namespace
from ._masks import attention_mask
from ._metadata import Metadata

Keys = Union[None, str, Mapping[str, str]]
Get = Callable[[str], Any]


class Source(Protocol):
    """Gives the tensors and the metadata of a batch: a frame, a copy of one, or a view."""

    def names(self) -> Collection[str]: ...

    def tensor(self, name: str) -> Any:
        """Return a tensor. Raises KeyError for another name."""

    def metadata(self) -> Metadata: ...


class Shown(NamedTuple):
    """How a view makes a tensor."""

    old: str  # a tensor of the loader, or a name in COMPUTED
    unsqueezed: bool = False  # with a new first dimension: varlen tensors as the one row of a batch

    def make(self, get: Get) -> Any:
        compute = COMPUTED.get(self.old)
        tensor = get(self.old) if compute is None else compute(get)
        return tensor[None] if self.unsqueezed else tensor


def _unshifted_labels(get: Get) -> Any:
    """The labels as models want them that shift them: each at its own token. The first token has no label, and the
    label of the last column has no place."""
    labels = get("labels")
    xp = namespace(labels)
    return xp.concatenate((xp.full_like(labels[..., :1], -100), labels[..., :-1]), -1)


def _valid_labels(get: Get) -> Any:
    """The labels with 0 in place of -100, so that each is a valid token."""
    return get("labels") * (get("labels") != -100)


def _label_segment_ids(get: Get) -> Any:
    """The segment of each label, and 0 where the label does not count in the loss."""
    return get("segment_ids") * (get("labels") != -100)


COMPUTED: Dict[str, Callable[[Get], Any]] = {
    "attention_mask": attention_mask,
    "label_segment_ids": _label_segment_ids,
    "unshifted_labels": _unshifted_labels,
    "valid_labels": _valid_labels,
}

NEEDS_LABELS = ("label_segment_ids", "unshifted_labels", "valid_labels")  # of COMPUTED

# The names of frameworks: new, then the loader's.
PRESETS: Dict[str, Mapping[str, str]] = {
    "hf": {
        "input_ids": "tokens", "position_ids": "position_ids", "labels": "unshifted_labels", "shift_labels": "labels",
    },
    "torchtitan": {"input": "tokens", "positions": "position_ids", "labels": "labels"},
    "megatron": {
        "tokens": "tokens", "labels": "valid_labels", "loss_mask": "loss_mask", "position_ids": "position_ids",
        "cu_seqlens": "cu_seqlens", "max_seqlen": "max_seqlen",
    },
    "maxtext": {
        "inputs": "tokens", "inputs_position": "position_ids", "inputs_segmentation": "segment_ids",
        "targets": "valid_labels", "targets_position": "position_ids", "targets_segmentation": "label_segment_ids",
    },
}  # fmt: skip
VARLEN_ONLY = ("cu_seqlens", "max_seqlen")  # a packed batch has none
BARE_WITHOUT = ("tokens", "labels", "loss_mask")  # a pipeline stage without tokens has none


class Names:
    """The names that `connect(keys=…)` asks for."""

    def __init__(self, keys: Union[str, Mapping[str, str]]) -> None:
        """Raises ValueError for an unknown preset, and TypeError if `keys` is no mapping of names to names."""
        if isinstance(keys, str):
            if keys not in PRESETS:
                raise ValueError(f"keys={keys!r}: want None, one of {', '.join(map(repr, PRESETS))}, or {{new: old}}")
        elif not isinstance(keys, Mapping) or not all(isinstance(n, str) for pair in keys.items() for n in pair):
            raise TypeError(f"keys={keys!r}: want a preset's name, or a mapping of new names to the loader's names")
        self._keys = keys if isinstance(keys, str) else dict(keys)
        self._resolved: Tuple[Collection[str], Dict[str, Shown]] = ((), {})

    def over(self, source: Source) -> Source:
        """Return the source under these names. A batch without tensors stays as it is. A preset leaves out the names
        that a pipeline stage without tokens cannot have. Raises ValueError if the layout of the batch cannot have one
        of the names."""
        names = source.names()
        if not names:
            return source
        if self._resolved[0] is not names:
            self._resolved = (names, self._resolve(names))
        return View(source, self._resolved[1])

    def _resolve(self, names: Collection[str]) -> Dict[str, Shown]:
        varlen, bare = "segment_ids" not in names, "tokens" not in names
        preset = isinstance(self._keys, str)
        shown: Dict[str, Shown] = {}
        for new, old in (PRESETS[self._keys] if isinstance(self._keys, str) else self._keys).items():
            if preset and not varlen and old in VARLEN_ONLY:
                continue
            if preset and bare and old in (*BARE_WITHOUT, *NEEDS_LABELS):
                continue
            if varlen and old in ("segment_ids", "label_segment_ids"):
                raise ValueError(f"keys={self._keys!r} needs `layout: packed`: a varlen batch has no segment_ids")
            if old not in names and old not in COMPUTED:
                raise ValueError(
                    f"keys: the loader has no tensor {old!r} for {new!r}. It has {', '.join(sorted(names))}, and it "
                    f"computes {', '.join(COMPUTED)}"
                )
            shown[new] = Shown(old, unsqueezed=preset and varlen)
        return shown


class View:
    """A source under other names. `base` has the tensors that the loader delivered."""

    __slots__ = ("base", "shown")

    def __init__(self, base: Source, shown: Dict[str, Shown]) -> None:
        self.base = base
        self.shown = shown

    def names(self) -> Collection[str]:
        return self.shown

    def tensor(self, name: str) -> Any:
        return self.shown[name].make(self.base.tensor)

    def metadata(self) -> Metadata:
        return self.base.metadata()


class Held:
    """Tensors that are no longer in a frame, as the base of a view."""

    __slots__ = ("_tensors", "_metadata")

    def __init__(self, tensors: Dict[str, Any], metadata: Metadata) -> None:
        self._tensors = tensors
        self._metadata = metadata

    def names(self) -> Collection[str]:
        return self._tensors

    def tensor(self, name: str) -> Any:
        return self._tensors[name]

    def metadata(self) -> Metadata:
        return self._metadata


def first_shown(source: Source) -> Optional[str]:
    """Return the first name of the loader's tensors that the source shows as they are; None if it shows none."""
    if not isinstance(source, View):
        return next(iter(source.names()), None)
    return next((s.old for s in source.shown.values() if s.old not in COMPUTED), None)
