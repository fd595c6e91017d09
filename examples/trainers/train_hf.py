"""The Hugging Face Trainer with a Llama of two blocks. Each checkpoint directory holds the run's state.

    millrace up mixture.yaml --ranks 2 --run-dir RUN &
    torchrun --nproc-per-node 2 train_hf.py RUN OUT
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import millrace
import millrace.hf
from model import BLOCKS, HEADS, LENGTH, VOCABULARY, WIDTH, make_optimizer
from record import Record

SAVE_EVERY = 4  # steps


def make_llama() -> LlamaForCausalLM:
    """Returns the model with the same first weights in every process, in double precision like model.py."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=4 * WIDTH, num_hidden_layers=BLOCKS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=LENGTH,
    )  # fmt: skip
    return LlamaForCausalLM(config).double()


class Recorded(millrace.hf.Trainer):
    """Records the microbatches for the tests. Training needs millrace.hf.Trainer alone."""

    def __init__(self, *args: Any, record: Record, **named: Any) -> None:
        super().__init__(*args, **named)
        self.record = record
        self.add_callback(StepsRecorded(record))

    def compute_loss(self, *args: Any, **named: Any) -> Any:
        loss = super().compute_loss(*args, **named)
        # The Trainer's loss is this rank's summed loss, divided by the labels of the step, times the number of ranks.
        share = self.microbatch.step_loss_tokens / self.accelerator.num_processes
        self.record.microbatch(self.microbatch, loss.item() * share)
        return loss


class StepsRecorded(TrainerCallback):
    def __init__(self, record: Record) -> None:
        self.record = record

    def on_step_end(self, *args: Any, **named: Any) -> None:
        self.record.step()


def main(run: str, out: str) -> None:
    model = make_llama()
    checkpoints = os.path.join(out, "checkpoints")
    args = TrainingArguments(
        output_dir=checkpoints,
        max_steps=1000,  # the run ends earlier, and the training with it
        save_steps=SAVE_EVERY,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Recorded(
        model,
        args,
        loader=millrace.connect(run, keys="hf"),
        optimizers=(make_optimizer(model), None),
        record=Record(out, args.process_index),
    )
    os.makedirs(checkpoints, exist_ok=True)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(checkpoints) is not None)
    trainer.loader.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
