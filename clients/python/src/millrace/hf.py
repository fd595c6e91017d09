"""The Hugging Face Trainer over a loader: `Trainer`, and `TrainerMixin` for a Trainer class of your own.

    loader = millrace.connect("run", keys="hf")
    trainer = millrace.hf.Trainer(model, TrainingArguments(..., max_steps=1000), loader=loader)
    trainer.train(resume_from_checkpoint=True)

Each checkpoint directory gets the run's state, `millrace.json`. A checkpoint resumes on another number of ranks too.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
import transformers

from ._adapters import Evaluation, end_run, read_state
from ._batch import Batch
from ._checkpoint import read_state_of, write_state
from ._hf_arguments import check_accumulation, check_loader, check_trainer, settle_arguments
from ._hf_checkpoint import find_last
from ._hf_inputs import model_inputs
from ._loader import DataLoader

__all__ = ["Trainer", "TrainerMixin"]

if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object  # a mixin has no base of its own


class TrainerMixin(_Base):
    """Makes a subclass of transformers.Trainer train on the batches of a loader: `class Mine(TrainerMixin, Base)`.

    One optimizer step takes the microbatches of one step of the run, whatever their number. The loss is the sum over
    all ranks divided by `batch.step_loss_tokens`. Methods that a base class overrides, such as `training_step` and
    `compute_loss`, see each microbatch. `microbatch` is the Batch that is in training, with its metadata.

    `eval_dataset` may be a loader of a finite stream, `millrace.connect(dir, stream="eval", keys="hf")`, which each
    evaluation reads from its start; an iterable of batches; or a dataset, as in every Trainer. A dict names several of
    them."""

    microbatch: Optional[Batch] = None

    def __init__(self, *args: Any, loader: DataLoader, **named: Any) -> None:
        check_loader(loader)
        self.loader = loader
        self._states: Dict[int, Any] = {}  # functions that return the run's state, by the Trainer's global step
        self._steps: Dict[int, int] = {}  # the run's last trained step, by the Trainer's global step
        self._saved_at: Optional[int] = None  # the global step of the last checkpoint
        self._flos = 0.0
        super().__init__(*args, **named)
        check_trainer(self)

    def create_accelerator_and_postprocess(self) -> None:
        self._accumulation = settle_arguments(self.args)
        super().create_accelerator_and_postprocess()

    # Training.

    def get_train_dataloader(self) -> "Steps":
        return Steps(self.loader, self._accumulation)

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **named: Any) -> Any:
        """Train until `max_steps`, or until the end of the run. See transformers.Trainer.

        With `resume_from_checkpoint=True` the newest complete checkpoint is taken."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = find_last(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(f"no complete checkpoint in {self.args.output_dir}: call train() without one")
        if resume_from_checkpoint:
            self.loader.load_state_dict(read_state_of(resume_from_checkpoint))
        self._states, self._steps = {}, {}
        out = super().train(resume_from_checkpoint, *args, **named)
        end_run(self.loader)
        return out

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> Tuple[List[Any], Any]:
        trained = self.state.global_step
        if not self._states:
            start = self.loader.state_dict()
            self._states = {trained: lambda: start}
        step = next(epoch_iterator, None) if trained < self.state.max_steps else None
        if step is None:
            self._stop(trained)
            return [], None
        return [step], torch.tensor(max(step.loss_tokens, 1), device=device)

    def _stop(self, trained: int) -> None:
        """End the training, because the run has ended. Save and log like after the last of `max_steps`."""
        self.control.should_training_stop = True
        if trained in self._steps:
            self.control.should_log = True
            self.control.should_save = self.args.save_strategy == "steps" and self._saved_at != trained

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Train on all microbatches of a step. The gradients are reduced over the ranks with the last one."""
        total, self._flos = None, 0.0
        gradients = self.accelerator.gradient_state
        for batch in inputs:
            is_last = batch.microbatch == batch.num_microbatches - 1
            gradients._set_sync_gradients(is_last)
            sync = is_last or gradients.plugin_kwargs.get("sync_each_batch", False)
            with contextlib.nullcontext() if sync else self.accelerator.no_sync(model=model):
                self.microbatch = batch
                tensors = self._convert(batch)
                loss = super().training_step(model, dict(tensors), num_items_in_batch)
            total = loss if total is None else total + loss
            self._flos += super().floating_point_ops(tensors)
            super()._track_num_input_tokens(tensors)
            if is_last:
                trained = self.state.global_step
                self._states = {trained: self._states[trained], trained + 1: read_state(batch)}
                self._steps = {trained + 1: batch.step}
        self.microbatch = None
        return total

    def floating_point_ops(self, inputs: Any) -> Any:
        return self._flos if isinstance(inputs, Step) else super().floating_point_ops(inputs)

    def _track_num_input_tokens(self, inputs: Any) -> None:
        if not isinstance(inputs, Step):  # training_step has counted them
            super()._track_num_input_tokens(inputs)

    def _convert(self, batch: Batch) -> Dict[str, torch.Tensor]:
        return model_inputs(batch, self.accelerator.unwrap_model(self.model))

    # Evaluation.

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        batches = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(batches, str):
            batches = self.eval_dataset[batches]
        found = self._find_batches(batches)
        return super().get_eval_dataloader(eval_dataset) if found is None else found

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        found = self._find_batches(test_dataset)
        return super().get_test_dataloader(test_dataset) if found is None else found

    def _find_batches(self, batches: Any) -> Optional[Iterable[Any]]:
        """Return an iterable of the model's arguments; None for a dataset, of which the Trainer makes batches."""
        if isinstance(batches, DataLoader):
            return Evaluation(batches, self._convert)
        return batches if hasattr(batches, "__iter__") and not hasattr(batches, "__getitem__") else None

    # Checkpoints.

    def _save_checkpoint(self, model: Any, trial: Any = None, *args: Any, **named: Any) -> None:
        trained = self.state.global_step
        if self.args.should_save:
            directory = os.path.join(self._get_output_dir(trial=trial), f"checkpoint-{trained}")
            write_state(directory, self._states[trained]())  # before the file that makes the checkpoint complete
        super()._save_checkpoint(model, trial, *args, **named)
        self._saved_at = trained
        self.accelerator.wait_for_everyone()
        if trained in self._steps:
            self.loader.checkpoint_saved(self._steps[trained])


class Trainer(TrainerMixin, transformers.Trainer):  # type: ignore[misc, unused-ignore]
    """transformers.Trainer that trains on the batches of `loader`. See TrainerMixin."""


class Step:
    """The microbatches of one step of the run, for one iteration. They are fetched one by one."""

    def __init__(self, first: Batch, loader: DataLoader) -> None:
        self.loss_tokens = first.step_loss_tokens
        self._first: Optional[Batch] = first
        self._loader = loader

    def __iter__(self) -> Iterator[Batch]:
        batch, self._first = self._first, None
        if batch is None:
            raise RuntimeError("a step is trained once")
        for _ in range(batch.num_microbatches - 1):
            yield batch
            batch = next(self._loader)
        yield batch


class Steps:
    """The steps of a loader, in order. It goes on where it was when it is iterated again."""

    def __init__(self, loader: DataLoader, accumulation: int) -> None:
        self._loader, self._accumulation = loader, accumulation

    def __iter__(self) -> Iterator[Step]:
        for first in self._loader:
            check_accumulation(self._accumulation, first)
            yield Step(first, self._loader)
