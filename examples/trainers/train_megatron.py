"""Megatron Core: a GPTModel, the external data loader, and the loader's state in Bridge's files.

    millrace up mixture.yaml --ranks 2 --run-dir RUN &
    torchrun --nproc-per-node 2 train_megatron.py RUN OUT

Megatron's training loop needs GPUs. This example makes its calls on CPUs: the provider builds the datasets,
RerunDataIterator wraps them, and each iteration takes get_num_microbatches() microbatches.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Optional, Tuple

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.num_microbatches_calculator import get_num_microbatches, init_num_microbatches_calculator
from megatron.core.rerun_state_machine import RerunDataIterator
from megatron.core.tensor_parallel.random import initialize_rng_tracker
from megatron.core.transformer import TransformerConfig

import millrace.megatron
from model import LENGTH, VOCABULARY, make_optimizer
from record import Record

# Megatron Core allocates some buffers on the current CUDA device. Here it is the CPU.
torch.cuda.current_device = lambda: torch.device("cpu")

SAVE_EVERY = 4  # iterations
GLOBAL, MICRO = 16, 2  # as in the mixture file


def main(run: str, out: str) -> None:
    rank, ranks = start()
    model = make_gpt()
    optimizer = make_optimizer(model)
    iteration, saved = load(Path(out), model, optimizer)

    train, _, _ = millrace.megatron.provider(run, load=saved, attention_mask=True)()
    data = RerunDataIterator(train)
    record = Record(out, rank)
    while True:
        try:
            for _ in range(get_num_microbatches()):
                backward(model, data, record)
        except StopIteration:
            break
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        data.advance()
        record.step()
        iteration += 1
        if iteration % SAVE_EVERY == 0:
            save(Path(out), iteration, rank, model, optimizer, data)
    dist.destroy_process_group()


def backward(model: GPTModel, data: RerunDataIterator, record: Record) -> None:
    """Adds the gradients of the next microbatch."""
    batch = next(data)
    last = data.iterable.last  # the metadata of the batch
    losses = model(batch["tokens"], batch["position_ids"], batch["attention_mask"], labels=batch["labels"])
    loss = (losses * batch["loss_mask"]).sum()
    (loss / last.step_loss_tokens).backward()
    record.microbatch(last.with_tensors(batch), loss.item())


def start() -> Tuple[int, int]:
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    initialize_rng_tracker(inference_rng_tracker=True)  # without dropout no states of random generators are needed
    torch.set_num_threads(1)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    init_num_microbatches_calculator(rank, None, GLOBAL, MICRO, ranks)
    return rank, ranks


def make_gpt() -> GPTModel:
    """Returns a small GPT in double precision, with the same first weights in every process."""
    torch.manual_seed(0)
    config = TransformerConfig(
        num_layers=2, hidden_size=32, num_attention_heads=2, use_cpu_initialization=True, hidden_dropout=0.0,
        attention_dropout=0.0, params_dtype=torch.float64, pipeline_dtype=torch.float64, bias_dropout_fusion=False,
        masked_softmax_fusion=False, gradient_accumulation_fusion=False, add_bias_linear=False,
    )  # fmt: skip
    return GPTModel(config, get_gpt_layer_local_spec(), vocab_size=VOCABULARY, max_sequence_length=LENGTH).double()


def save(out: Path, iteration: int, rank: int, model: GPTModel, optimizer: Any, data: RerunDataIterator) -> None:
    """Saves the model, and each rank's loader as Megatron's maybe_save_dataloader_state does."""
    directory = out / f"iter_{iteration:07d}"
    directory.mkdir(exist_ok=True)
    state = {"dataloader_state_dict": data.iterable.save_state()}
    torch.save(state, directory / f"train_dataloader_dprank{rank:03d}.pt")
    if rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, directory / "model.pt")
    dist.barrier()
    if rank == 0:
        (out / "latest.new").write_text(str(iteration))
        os.replace(out / "latest.new", out / "latest")


def load(out: Path, model: GPTModel, optimizer: Any) -> Tuple[int, Optional[Path]]:
    """Loads the latest checkpoint. Returns its iteration and its directory, 0 and None if there is none."""
    if not (out / "latest").exists():
        return 0, None
    directory = out / f"iter_{int((out / 'latest').read_text()):07d}"
    saved = torch.load(directory / "model.pt", weights_only=False)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return int(directory.name[5:]), directory


if __name__ == "__main__":
    main(*sys.argv[1:])
