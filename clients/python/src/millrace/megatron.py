"""Millrace for Megatron: datasets for `--dataloader-type external`, saved and restored as Megatron and Bridge do.

The contract is that of Megatron-LM's `pretrain` and of `RerunDataIterator` in Megatron Core 0.16.

    pretrain(millrace.megatron.provider(run), model_provider, ModelType.encoder_or_decoder, forward_step)

The run serves all ranks of Megatron. Its mixture file repeats Megatron's sizes:

    parallelism: {tp: TP * CP, pp: PP}    # Megatron itself slices the batch for context parallelism
    broadcast: [tp, pp]                   # optional: ranks that Megatron does not ask for data get no tensors
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Union

from ._batch import Batch
from ._errors import MisuseError
from ._loader import DataLoader, connect

log = logging.getLogger("millrace")

Saved = Union[None, str, Path, Callable[[], Union[None, str, Path]]]
Datasets = Tuple[Optional["Iterator"], Optional["Iterator"], Optional["Iterator"]]
Provider = Callable[..., Datasets]


class Iterator:
    """Iterates over the microbatches of one rank, as dicts that Megatron may change.

    `loader`: this rank's loader, connected with `keys="megatron"` and `tensors="torch"`.
    `attention_mask`: add the mask that `--create-attention-mask-in-dataloader` asks for: bool [n, 1, L, L], True where
        a token must not look. It needs `layout: packed`.

    The first microbatch of each step is checked against Megatron's groups and its number of microbatches. Raises
    MisuseError if they differ: the model would train on the wrong batches."""

    def __init__(self, loader: DataLoader, attention_mask: bool = False) -> None:
        self._loader = loader
        self._attention_mask = attention_mask
        self._last: Optional[Batch] = None  # the last yielded batch, without tensors

    def __iter__(self) -> "Iterator":
        iter(self._loader)
        return self

    def __next__(self) -> Dict[str, Any]:
        batch = next(self._loader)
        if batch.microbatch == 0:
            _check_groups(self._loader.coordinates)
            _check_microbatches(batch)
        self._last = batch.with_tensors({})
        tensors = dict(batch)
        if self._attention_mask:
            tensors["attention_mask"] = ~batch.attention_mask()
        return tensors

    @property
    def last(self) -> Batch:
        """The last yielded batch, without its tensors: its step, its segments and the counts for the loss. Raises
        AttributeError before the first batch."""
        if self._last is None:
            raise AttributeError("the iterator has not yielded a batch yet")
        return self._last

    def save_state(self) -> Dict[str, Any]:
        """Return the state after the last yielded batch. It is equal on all ranks after an iteration."""
        return self._loader.state_dict() if self._last is None else self._last.state_dict()

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of any rank, saved under any number of ranks. Call it before the first batch."""
        self._loader.load_state_dict(dict(state))
        self._last = None


def provider(
    run: Optional[str] = None,
    *,
    load: Saved = None,
    attention_mask: bool = False,
    valid: Optional[DataLoader] = None,
    test: Optional[DataLoader] = None,
    **options: Any,
) -> Provider:
    """Return a `train_valid_test_datasets_provider` for `--dataloader-type external`.

    `run`: the run directory or this rank's socket; `connect` finds it if it is None. `options` go to `connect`.
    `load`: the directory of the saved iterator's state (see `read_state`), or a function that returns it or None. A
        function is called after Megatron has loaded its checkpoint.
    `attention_mask`: as for `Iterator`.
    `valid`, `test`: loaders of other streams with `keys="megatron"`, or None.

    On ranks that Megatron does not ask for data (tensor-parallel ranks above 0, and the stages in the middle of the
    pipeline), a thread takes the batches of the rank, because a run goes on at the pace of its slowest rank."""

    def build(train_valid_test_num_samples: Any = None, vp_stage: Optional[int] = None) -> Datasets:
        loader = connect(run, tensors="torch", keys="megatron", **options)
        train = Iterator(loader, attention_mask)
        saved = load() if callable(load) else load
        if saved:
            train.restore_state(read_state(saved))
        if not _asks_for_data():
            _drain(loader)
        others = [None if other is None else Iterator(other, attention_mask) for other in (valid, test)]
        return train, others[0], others[1]

    build.is_distributed = True  # type: ignore[attr-defined]  # Megatron calls it on every rank
    return build


def read_state(directory: Union[str, Path]) -> Dict[str, Any]:
    """Return the state that Megatron or Bridge saved below `directory` as `train_dataloader_dprank*.pt`.

    The states of all ranks are equal, so it reads one file, and the number of ranks may change. Raises
    FileNotFoundError if no such file is there, and ValueError for a file without the state of a loader."""
    import torch

    files = sorted(Path(directory).rglob("train_dataloader_dprank*.pt"))
    if not files:
        raise FileNotFoundError(
            f"{directory}: no train_dataloader_dprank*.pt below it. Megatron saves it with --dataloader-save DIR, in "
            "DIR/iter_<iteration>"
        )
    saved = torch.load(files[0], map_location="cpu", weights_only=True)
    state = saved.get("dataloader_state_dict") if isinstance(saved, dict) else None
    if not isinstance(state, dict):
        raise ValueError(f"{files[0]}: it has no dataloader_state_dict of a Millrace loader")
    return state


# Megatron's groups.


def _asks_for_data() -> bool:
    """Return whether Megatron's get_batch takes batches on this rank."""
    from megatron.core import parallel_state as mpu

    edge = mpu.is_pipeline_first_stage(ignore_virtual=True) or mpu.is_pipeline_last_stage(ignore_virtual=True)
    return mpu.get_tensor_model_parallel_rank() == 0 and bool(edge)


def _check_groups(coordinates: Mapping[str, int]) -> None:
    from megatron.core import parallel_state as mpu

    tp, tp_size = mpu.get_tensor_model_parallel_rank(), mpu.get_tensor_model_parallel_world_size()
    want = {
        "tp": tp + tp_size * mpu.get_context_parallel_rank(),
        "cp": 0,
        "dp": mpu.get_data_parallel_rank(),
        "pp": mpu.get_pipeline_model_parallel_rank(),
    }
    if dict(coordinates) != want:
        raise MisuseError(
            f"this rank has the coordinates {dict(coordinates)} in the run and {want} in Megatron. Set `parallelism: "
            f"{{tp: {tp_size * mpu.get_context_parallel_world_size()}, "
            f"pp: {mpu.get_pipeline_model_parallel_world_size()}}}` in the mixture file, without cp: Megatron slices "
            "the batch for context parallelism itself"
        )


def _check_microbatches(batch: Batch) -> None:
    from megatron.core.num_microbatches_calculator import get_num_microbatches

    try:
        count = get_num_microbatches()
    except AttributeError:  # a trainer of its own, without Megatron's calculator
        return
    if count != batch.num_microbatches:
        raise MisuseError(
            f"step {batch.step} has {batch.num_microbatches} microbatches on each rank, and Megatron takes {count} an "
            "iteration. Set --global-batch-size and --micro-batch-size to global_batch_size and micro_batch_size of "
            "the mixture file"
        )


def _drain(loader: DataLoader) -> None:
    """Take the rank's batches in a thread until the run ends."""

    def take() -> None:
        try:
            for _ in loader:
                pass
        except Exception as e:  # ranks that train get the same error
            log.warning("this rank takes no more batches: %s", e)

    threading.Thread(target=take, name="millrace-drain", daemon=True).start()
