"""torch.distributed.checkpoint (DCP), with the loader's state as one of its Stateful objects.

    millrace up mixture.yaml --ranks 2 --run-dir RUN &
    torchrun --nproc-per-node 2 train_dcp.py RUN OUT
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Dict, Optional

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

import millrace
from model import loss_sum, make_model, make_optimizer
from record import Record

SAVE_EVERY = 4  # steps


class Training:
    """The model and its optimizer, as an object with the protocol of DCP."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> Dict[str, Any]:
        return dict(zip(("model", "optimizer"), get_state_dict(self.model, self.optimizer)))

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        of_model, of_optimizer = state["model"], state["optimizer"]
        set_state_dict(self.model, self.optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer)


def main(run: str, out: str) -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(make_model())
    optimizer = make_optimizer(model)
    loader = millrace.connect(run)
    state = {"training": Training(model, optimizer), "loader": loader.dcp_state()}
    checkpoint = newest(out)
    if checkpoint is not None:
        dcp.load(state, checkpoint_id=checkpoint)
    record = Record(out, rank)

    for batch in loader:
        last = batch.microbatch == batch.num_microbatches - 1
        model.require_backward_grad_sync = last
        logits = model(batch["tokens"], batch["position_ids"], batch["segment_ids"])
        loss = loss_sum(logits, batch["labels"])
        (loss * ranks / batch.step_loss_tokens).backward()
        record.microbatch(batch, loss.item())
        if not last:
            continue
        optimizer.step()
        optimizer.zero_grad()
        record.step()
        if (batch.step + 1) % SAVE_EVERY == 0:
            # Nothing was fetched ahead, so that the loader's state is that of the last trained batch.
            dcp.save(state, checkpoint_id=os.path.join(out, f"checkpoint-{batch.step}"))
    loader.close()
    dist.destroy_process_group()


def newest(out: str) -> Optional[Path]:
    """Returns the newest complete checkpoint. DCP writes its file .metadata last."""
    complete = [path.parent for path in Path(out).glob("checkpoint-*/.metadata")]
    return max(complete, key=lambda path: int(path.name.split("-")[1]), default=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
