"""torchtitan's contract: its CheckpointManager, and the order of calls of its Trainer.

    torchrun --nproc-per-node 2 train_torchtitan.py RUN OUT

torchtitan's Trainer itself trains only on an accelerator. The loop below calls the loader as its `train_step` does: it
takes all microbatches of a step first, and saves after the step."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Tuple

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.nn.parallel import DistributedDataParallel
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.dataloader import DataloaderExhaustedError

import millrace.torchtitan
from model import LENGTH, loss_sum, make_model, make_optimizer
from record import Record

SAVE_EVERY = 4  # steps
LOCAL, GLOBAL = 2, 16  # sequences: micro_batch_size and global_batch_size of the mixture


class Optimizers:
    """The optimizer with the protocol of torchtitan's OptimizersContainer."""

    def __init__(self, model: Any) -> None:
        self.model, self.optimizer = model, make_optimizer(model)

    def state_dict(self) -> Dict[str, Any]:
        return get_optimizer_state_dict(self.model, self.optimizer)

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        set_optimizer_state_dict(self.model, self.optimizer, optim_state_dict=state)


class Progress:
    """The part of torchtitan's Trainer that it saves as `train_state`; also in place of a learning rate schedule."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> Dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self.step = state["step"]


class Recorded(millrace.torchtitan.DataLoader):
    """Keeps the batches of a step for the record; a trainer needs no such class."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.batches: List[millrace.Batch] = []

    def split(self, batch: millrace.Batch) -> Tuple[Dict[str, Any], Any]:
        self.batches.append(batch)
        return super().split(batch)


def main(run: str, out: str) -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    accumulate = GLOBAL // (LOCAL * ranks)
    data = Recorded(
        millrace.torchtitan.DataLoader.Config(path=run), dp_world_size=ranks, dp_rank=rank, tokenizer=None,
        seq_len=LENGTH, local_batch_size=LOCAL, snapshot_every_n_steps=SAVE_EVERY * accumulate,
    )  # fmt: skip
    model = make_model()
    optimizers, progress = Optimizers(model), Progress()
    manager = CheckpointManager.Config(enable=True, interval=SAVE_EVERY).build(
        dataloader=data, model_parts=[model], optimizers=optimizers, lr_schedulers=Progress(),
        states={"train_state": progress}, sd_adapter=None, base_folder=out,
    )  # fmt: skip
    manager.load()
    parallel = DistributedDataParallel(model)
    record = Record(out, rank)

    batches = batch_generator(data)
    while True:
        try:
            microbatches = [next(batches) for _ in range(accumulate)]
        except DataloaderExhaustedError:
            break
        progress.step += 1
        tokens = data.batches[0].step_loss_tokens
        for inputs, labels in microbatches:
            parallel.require_backward_grad_sync = labels is microbatches[-1][1]
            # torchtitan makes the masks of documents from the positions.
            segments = (inputs["positions"] == 0).cumsum(dim=1)
            loss = loss_sum(parallel(inputs["input"], inputs["positions"], segments), labels)
            (loss * ranks / tokens).backward()
            record.microbatch(data.batches.pop(0), loss.item())
        optimizers.optimizer.step()
        optimizers.optimizer.zero_grad()
        record.step()
        manager.save(progress.step)
    data.close()
    manager.close()
    dist.destroy_process_group()


def batch_generator(data: Any) -> Any:
    """As torchtitan's Trainer.batch_generator: the end of the data is an error that its loop handles."""
    iterator = iter(data)
    while True:
        try:
            yield next(iterator)
        except StopIteration as end:
            raise DataloaderExhaustedError() from end


if __name__ == "__main__":
    main(*sys.argv[1:])
