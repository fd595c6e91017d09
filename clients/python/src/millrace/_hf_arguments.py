"""Arguments of the Hugging Face Trainer that a loader decides, or that would give wrong batches or a wrong loss."""

from __future__ import annotations

from typing import Any

from ._batch import Batch
from ._errors import MisuseError
from ._loader import DataLoader


def check_loader(loader: Any) -> None:
    """Raise TypeError if the Trainer's `loader` is no loader."""
    if not isinstance(loader, DataLoader):
        raise TypeError(
            f'loader={type(loader).__name__}: give the loader that millrace.connect(..., keys="hf") returns, without a '
            "dataset or a torch DataLoader around it"
        )


def settle_arguments(args: Any) -> int:
    """Set the TrainingArguments that have one right value with a loader. Raise MisuseError if the user has set another.

    Call it before the Trainer makes its Accelerator. Return the user's number of microbatches in a step, for
    check_accumulation. The Trainer itself accumulates none: it sees one batch a step."""
    accumulation = args.accelerator_config.gradient_accumulation_kwargs or {}
    wanted = int(accumulation.get("num_steps", args.gradient_accumulation_steps))
    refusals = (
        (args.dataloader_num_workers > 0, "dataloader_num_workers > 0", "leave it at 0: the loader needs no workers"),
        (
            args.accelerator_config.dispatch_batches,
            "accelerator_config.dispatch_batches",
            "leave it out: each rank reads its own batches",
        ),
        (
            args.accelerator_config.split_batches,
            "accelerator_config.split_batches",
            "leave it out: the run has split the batches over the ranks",
        ),
        (
            bool(args.deepspeed) and wanted != 1,
            "gradient_accumulation_steps with DeepSpeed",
            "leave it at 1: DeepSpeed divides the loss by it, and the loss of a step is already divided by its labels",
        ),
        (
            not args.average_tokens_across_devices,
            "average_tokens_across_devices=False",
            "leave it at True: the loss of a step is divided by the labels of all ranks",
        ),
        (args.label_smoothing_factor != 0, "label_smoothing_factor", "smooth labels in a compute_loss_func"),
        (args.use_cache, "use_cache", "leave it at False: with a cache, a token sees the documents before its own"),
        (args.auto_find_batch_size, "auto_find_batch_size", "set micro_batch_size in the mixture file"),
        (args.n_gpu > 1, f"one process with {args.n_gpu} GPUs", "start one process for each GPU by torchrun"),
        (
            args.max_steps <= 0,
            "max_steps is missing",
            "set max_steps, which the learning rate's schedule needs; a run that ends earlier ends the training",
        ),
    )
    for refused, name, cure in refusals:
        if refused:
            raise MisuseError(f"the Trainer cannot train from a millrace loader with this argument: {name}: {cure}")
    accumulation.pop("num_steps", None)
    args.gradient_accumulation_steps = 1
    args.accelerator_config.dispatch_batches = False
    args.ignore_data_skip = True  # the loaded state already begins after the batches of the checkpoint
    return wanted


def check_accumulation(wanted: int, batch: Batch) -> None:
    """Raise MisuseError if a step has another number of microbatches than the user has said. 1 says none."""
    if wanted not in (1, batch.num_microbatches):
        raise MisuseError(
            f"gradient_accumulation_steps={wanted}, and step {batch.step} of the run has {batch.num_microbatches} "
            "microbatches: leave it at 1, or set it to the number that global_batch_size and micro_batch_size of the "
            "mixture file give"
        )


def check_trainer(trainer: Any) -> None:
    """Raise MisuseError if the Trainer has a second source of batches, or cannot divide the loss by the step's
    labels."""
    if trainer.train_dataset is not None:
        raise MisuseError(
            "the Trainer has both loader= and train_dataset=: leave train_dataset out. A dataset around the loader "
            "would be split over the ranks a second time"
        )
    if not trainer.model_accepts_loss_kwargs and trainer.compute_loss_func is None:
        raise MisuseError(
            f"the loss of {type(trainer.model).__name__} is a mean over each microbatch, because its forward() takes "
            "no **kwargs with num_items_in_batch. The mean over the step would be wrong: pass compute_loss_func= to "
            "the Trainer, which divides the summed loss by num_items_in_batch"
        )
