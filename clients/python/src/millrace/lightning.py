"""Lightning over a loader: `DataModule`.

    trainer = lightning.Trainer(max_steps=1000)
    trainer.fit(module, datamodule=millrace.lightning.DataModule("run"), ckpt_path=...)

Lightning's checkpoints hold the run's state. They resume on another number of ranks too.
"""

from __future__ import annotations

import collections
from typing import Any, Callable, Deque, Dict, Iterator, Optional, Union

import lightning.pytorch as pl
from lightning.pytorch.plugins.io import AsyncCheckpointIO

from ._adapters import Evaluation, end_run, read_state
from ._batch import Batch
from ._errors import MisuseError
from ._loader import DataLoader, connect

__all__ = ["DataModule"]


class DataModule(pl.LightningDataModule):  # type: ignore[misc, unused-ignore]
    """Gives the batches of a loader to a Lightning Trainer, and the run's state to its checkpoints.

    `path_or_loader`: a path for millrace.connect(), or the loader itself.
    `evaluation`: a loader of a finite stream, `millrace.connect(dir, stream="eval")`, which each validation reads from
        its start; or an iterable of batches.

    An optimizer step takes the microbatches of one step of the run, whatever their number: the module sets
    `accumulate_grad_batches`. Multiply the summed loss of a microbatch by `loss_factor(batch)`.

    The state in a checkpoint is that after the last step that the weights have. Lightning fetches one batch ahead, and
    it saves no gradients: a checkpoint from inside a step resumes at the beginning of the step."""

    def __init__(self, path_or_loader: Union[str, DataLoader, None] = None, evaluation: Any = None) -> None:
        super().__init__()
        self._path_or_loader = path_or_loader
        self._evaluation = evaluation
        self._made: Optional[Batches] = None

    @property
    def loader(self) -> DataLoader:
        """The loader. A path is connected when the loader is needed first, in the process that trains."""
        return self._batches.loader

    @property
    def _batches(self) -> "Batches":
        if self._made is None:
            given = self._path_or_loader
            self._made = Batches(given if isinstance(given, DataLoader) else connect(given, tensors="torch"))
        return self._made

    def loss_factor(self, batch: Batch) -> float:
        """Return the factor for the summed loss of a microbatch. The loss of a step then is the sum over all its
        microbatches and ranks, divided by its labels: strategies take the mean over the ranks, and automatic
        optimization the mean over the microbatches."""
        means = self.trainer.world_size
        if self.trainer.lightning_module.automatic_optimization:
            means *= self.trainer.accumulate_grad_batches
        return float(means / max(batch.step_loss_tokens, 1))

    # Lightning's hooks.

    def train_dataloader(self) -> "Batches":
        callbacks = self.trainer.callbacks
        if not any(isinstance(c, Steps) and c.batches is self._batches for c in callbacks):
            callbacks.insert(0, Steps(self._batches))  # before the callbacks that save checkpoints
        return self._batches

    def val_dataloader(self) -> Any:
        return () if self._evaluation is None else Evaluation(self._evaluation)

    def state_dict(self) -> Dict[str, Any]:
        self._batches.saving = self._batches.step
        return self._batches.state_dict()

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self._batches.load_state_dict(state_dict)


class Batches:
    """The batches of a loader, and the state after the last step that was trained.

    Batches that were fetched and not trained come again when it is iterated again: Lightning drops them at the end of
    an epoch."""

    def __init__(self, loader: DataLoader) -> None:
        self.loader = loader
        self.ended = False
        self.step: Optional[int] = None  # the last trained step
        self.saving: Optional[int] = None  # the last step of a checkpoint that is not reported as saved
        self._fetched: Deque[Batch] = collections.deque()  # not trained yet
        self._given = 0  # so many of the fetched batches are with Lightning
        self._state: Optional[Callable[[], Dict[str, Any]]] = None  # None before the first batch

    def __iter__(self) -> Iterator[Batch]:
        self._given = 0
        return self

    def __next__(self) -> Batch:
        if self.peek(self._given) is None:
            raise StopIteration
        self._given += 1
        return self._fetched[self._given - 1]

    def peek(self, ahead: int = 0) -> Optional[Batch]:
        """Return a batch that was not trained yet, the next for 0; None at the end of the run."""
        if self._state is None:
            start = self.loader.state_dict()
            self._state = lambda: start
            iter(self.loader)
        while len(self._fetched) <= ahead and not self.ended:
            batch = next(self.loader, None)
            if batch is None:
                self.ended = True
            else:
                self._fetched.append(batch)
        return self._fetched[ahead] if ahead < len(self._fetched) else None

    def train(self) -> None:
        """Note that the next batch has been trained."""
        batch = self._fetched.popleft()
        self._given -= 1
        if batch.microbatch == batch.num_microbatches - 1:
            self._state, self.step = read_state(batch), batch.step

    def report_saved(self) -> None:
        """Report the last checkpoint as durable."""
        if self.saving is not None:
            self.loader.checkpoint_saved(self.saving)
            self.saving = None

    def end(self) -> None:
        """Let the run end if all its batches were trained."""
        if not self._fetched:
            end_run(self.loader)

    def state_dict(self) -> Dict[str, Any]:
        return self.loader.state_dict() if self._state is None else self._state()

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self.loader.load_state_dict(state)
        self.ended, self._state, self.step, self._given = False, None, None, 0
        self._fetched.clear()


class Steps(pl.Callback):  # type: ignore[misc, unused-ignore]
    """Lets an optimizer step take the microbatches of one step of the run.

    Lightning counts batches in an epoch and takes an optimizer step when the count is a multiple of
    `accumulate_grad_batches`. The count of a checkpoint is none for another number of ranks, and neither is it if the
    number of microbatches changes within the run. The callback then moves the count to the next multiple."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._align(trainer)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._report_saved(trainer)
        next_batch = self.batches.peek()
        assert next_batch is not None  # Lightning has it
        is_last = next_batch.microbatch == next_batch.num_microbatches - 1
        if pl_module.automatic_optimization and trainer.fit_loop._should_accumulate() == is_last:
            raise MisuseError(
                f"Lightning counts microbatch {next_batch.microbatch} of {next_batch.num_microbatches} of step "
                f"{next_batch.step} as batch {batch_idx} and would take the optimizer step at another microbatch than "
                "the run has planned: set limit_train_batches to a multiple of the microbatches of a step or leave it "
                "out, and leave out GradientAccumulationScheduler"
            )

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.batches.train()
        self._align(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self.batches.ended and self.batches.peek() is None:
            trainer.should_stop = True  # further epochs would be empty

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.batches.end()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._report_saved(trainer)

    def _report_saved(self, trainer: Any) -> None:
        """Report the last checkpoint. AsyncCheckpointIO does not tell when it is durable."""
        if not isinstance(trainer.strategy.checkpoint_io, AsyncCheckpointIO):
            self.batches.report_saved()

    def _align(self, trainer: Any) -> None:
        """Make the count of batches agree with the next batch's place in its step."""
        batch = self.batches.peek()
        if batch is None or not trainer.lightning_module.automatic_optimization:
            return
        count = batch.num_microbatches
        if trainer.strategy.handles_gradient_accumulation and trainer.accumulate_grad_batches != count:
            raise MisuseError(
                f"{type(trainer.strategy).__name__} fixes the number of microbatches of an optimizer step when it "
                f"starts: set Trainer(accumulate_grad_batches={count}), the number that the run has planned on this "
                "number of ranks"
            )
        trainer.accumulate_grad_batches = count
        progress = trainer.fit_loop.epoch_loop.batch_progress.current
        move = (batch.microbatch - progress.ready) % count
        for counter in ("ready", "started", "processed", "completed"):
            setattr(progress, counter, getattr(progress, counter) + move)
