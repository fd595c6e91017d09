"""Accelerate: `prepare` leaves the loader as it is, and `register_for_checkpointing` saves its state with the rest.

    millrace up mixture.yaml --ranks 2 --run-dir RUN &
    torchrun --nproc-per-node 2 train_accelerate.py RUN OUT
"""

from __future__ import annotations

import contextlib
import os
import sys

from accelerate import Accelerator

import millrace
from model import loss_sum, make_model, make_optimizer
from record import Record

SAVE_EVERY = 4  # steps


def main(run: str, out: str) -> None:
    accelerator = Accelerator(cpu=True)
    model = make_model()
    model, optimizer, loader = accelerator.prepare(model, make_optimizer(model), millrace.connect(run))
    accelerator.register_for_checkpointing(loader)
    newest = os.path.join(out, "newest")
    if os.path.exists(newest):
        accelerator.load_state(os.path.realpath(newest))
    record = Record(out, accelerator.process_index)

    for batch in loader:
        last = batch.microbatch == batch.num_microbatches - 1
        with contextlib.nullcontext() if last else accelerator.no_sync(model):
            logits = model(batch["tokens"], batch["position_ids"], batch["segment_ids"])
            loss = loss_sum(logits, batch["labels"])
            # DDP divides the sum over the ranks by their number; the loss is per label of the whole step.
            accelerator.backward(loss * accelerator.num_processes / batch.step_loss_tokens)
        record.microbatch(batch, loss.item())
        if not last:
            continue
        optimizer.step()
        optimizer.zero_grad()
        record.step()
        if (batch.step + 1) % SAVE_EVERY == 0:
            directory = os.path.join(out, f"checkpoint-{batch.step + 1}")
            accelerator.save_state(directory)
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:  # a killed trainer leaves either the old checkpoint or the new one
                os.symlink(directory, newest + ".new")
                os.replace(newest + ".new", newest)
            loader.checkpoint_saved(batch.step)
    loader.close()
    accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
