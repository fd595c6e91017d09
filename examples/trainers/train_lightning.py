"""Lightning: a LightningModule, and millrace.lightning.DataModule, which puts the run's state into its checkpoints.

    millrace up mixture.yaml --ranks 2 --run-dir RUN &
    torchrun --nproc-per-node 2 train_lightning.py RUN OUT
"""

from __future__ import annotations

import os
import sys
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import millrace
import millrace.lightning
from model import loss_sum, make_model, make_optimizer
from record import Record

SAVE_EVERY = 4  # steps


class Module(lightning.LightningModule):
    def __init__(self, record: Record) -> None:
        super().__init__()
        self.model = make_model()
        self.record = record

    def training_step(self, batch: millrace.Batch, index: int) -> torch.Tensor:
        logits = self.model(batch["tokens"], batch["position_ids"], batch["segment_ids"])
        loss = loss_sum(logits, batch["labels"])
        self.record.microbatch(batch, loss.item())
        return loss * self.trainer.datamodule.loss_factor(batch)

    def on_train_batch_end(self, outputs: Any, batch: millrace.Batch, index: int) -> None:
        if batch.microbatch == batch.num_microbatches - 1:
            self.record.step()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return make_optimizer(self.model)


def main(run: str, out: str) -> None:
    checkpoints = os.path.join(out, "checkpoints")
    trainer = lightning.Trainer(
        max_steps=1000,  # the run ends earlier, and the training with it
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy="ddp",
        callbacks=[ModelCheckpoint(dirpath=checkpoints, every_n_train_steps=SAVE_EVERY, save_last=True)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = millrace.lightning.DataModule(run)
    newest = os.path.join(checkpoints, "last.ckpt")
    trainer.fit(
        Module(Record(out, trainer.global_rank)),
        datamodule=data,
        ckpt_path=newest if os.path.exists(newest) else None,
        weights_only=True,
    )
    data.loader.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
