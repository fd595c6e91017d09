"""Bare PyTorch: DistributedDataParallel, gradient accumulation, and one checkpoint file with the loader's state.

    millrace up mixture.yaml --ranks 2 --run-dir RUN &
    torchrun --nproc-per-node 2 train_ddp.py RUN OUT
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Callable, Dict, Iterable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import millrace
from model import loss_sum, make_model, make_optimizer
from record import Record

SAVE_EVERY = 4  # steps


def main(run: str, out: str) -> None:
    loader = millrace.connect(run)
    train(out, loader, loader.load_state_dict, lambda batch: batch.state_dict())
    loader.close()


def train(
    out: str,
    batches: Iterable[millrace.Batch],
    load: Callable[[Dict[str, Any]], None],
    state_after: Callable[[millrace.Batch], Dict[str, Any]],
) -> None:
    """Trains on batches. `load` takes the state of a checkpoint, and `state_after` gives the state after a batch."""
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = make_model()
    optimizer = make_optimizer(model)
    checkpoint = os.path.join(out, "checkpoint.pt")
    if os.path.exists(checkpoint):
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        load(saved["loader"])  # the same state on every rank, whatever the number of ranks was
    parallel = DistributedDataParallel(model)
    record = Record(out, rank)

    for batch in batches:
        last = batch.microbatch == batch.num_microbatches - 1
        with contextlib.nullcontext() if last else parallel.no_sync():
            logits = parallel(batch["tokens"], batch["position_ids"], batch["segment_ids"])
            loss = loss_sum(logits, batch["labels"])
            # DDP divides the sum over the ranks by their number; the loss is per label of the whole step.
            (loss * ranks / batch.step_loss_tokens).backward()
        record.microbatch(batch, loss.item())
        if not last:
            continue
        optimizer.step()
        optimizer.zero_grad()
        record.step()
        if (batch.step + 1) % SAVE_EVERY == 0:
            dist.barrier()
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": state_after(batch)}
                torch.save(state, checkpoint + ".new")
                os.replace(checkpoint + ".new", checkpoint)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
