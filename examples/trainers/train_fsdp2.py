"""PyTorch FSDP2 (`fully_shard`) with sharded checkpoints of torch.distributed.checkpoint.

    millrace up mixture.yaml --ranks 2 --run-dir RUN &
    torchrun --nproc-per-node 2 train_fsdp2.py RUN OUT

The checkpoint is resharded when it is loaded on another number of ranks. The loader's state goes in as one string: it
is equal on all ranks."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import millrace
from model import loss_sum, make_model, make_optimizer
from record import Record
from train_dcp import newest

SAVE_EVERY = 4  # steps


def main(run: str, out: str) -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = make_model()
    mesh = init_device_mesh("cpu", (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = make_optimizer(model)
    loader = millrace.connect(run)

    checkpoint = newest(out)
    if checkpoint is not None:
        saved: Dict[str, Any] = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
        saved["loader"] = ""
        dcp.load(saved, checkpoint_id=checkpoint)
        set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
        loader.load_state_dict(json.loads(saved["loader"]))
    record = Record(out, rank)

    for batch in loader:
        last = batch.microbatch == batch.num_microbatches - 1
        model.set_requires_gradient_sync(last)
        logits = model(batch["tokens"], batch["position_ids"], batch["segment_ids"])
        loss = loss_sum(logits, batch["labels"])
        # FSDP divides the sum over the ranks by their number; the loss is per label of the whole step.
        (loss * ranks / batch.step_loss_tokens).backward()
        record.microbatch(batch, loss.item())
        if not last:
            continue
        optimizer.step()
        optimizer.zero_grad()
        record.step()
        if (batch.step + 1) % SAVE_EVERY == 0:
            of_model, of_optimizer = get_state_dict(model, optimizer)
            state = {"model": of_model, "optimizer": of_optimizer, "loader": json.dumps(batch.state_dict())}
            dcp.save(state, checkpoint_id=os.path.join(out, f"checkpoint-{batch.step}"))
    loader.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
