"""One of two ranks that uses a loader in a wrong way: `wrong_way.py WAY DIRECTORY`, with the environment of torchrun.

Prints the seconds until the refusal, and its text."""

from __future__ import annotations

import os
import sys
import time

import accelerate
import torch
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src"))
import millrace  # noqa: E402

torch.set_num_threads(1)
way, directory = sys.argv[1:]
settings = accelerate.utils.DataLoaderConfiguration(dispatch_batches=None if way == "dispatch" else False)
accelerator = accelerate.Accelerator(cpu=True, dataloader_config=settings)
assert accelerator.num_processes == 2
loader = millrace.connect(directory, tensors="torch")


def iterate():
    outer = torch.utils.data.DataLoader(loader, batch_size=None if way == "dispatch" else 1, collate_fn=lambda b: b)
    next(iter(accelerator.prepare(outer)))


def train():
    arguments = transformers.TrainingArguments(
        output_dir=f"{directory}/out", max_steps=2, per_device_train_batch_size=1, use_cpu=True, report_to=[],
        disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    transformers.Trainer(
        model=torch.nn.Linear(1, 1), args=arguments, train_dataset=loader, data_collator=lambda b: b[0],
        callbacks=[Began()],
    ).train()  # fmt: skip


class Began(transformers.TrainerCallback):
    """Starts the clock when the Trainer has set itself up."""

    def on_train_begin(self, *args, **kwargs):
        global began
        began = time.monotonic()


def right():
    same = accelerator.prepare(loader)
    assert same is loader and next(iter(same)).step == 0
    raise millrace.MisuseError("none")


accelerator.wait_for_everyone()
began = time.monotonic()
try:
    {"dispatch": iterate, "shard": iterate, "trainer": train, "right": right}[way]()
except millrace.MisuseError as e:
    print(f"{time.monotonic() - began:.3f} {e}", flush=True)
os._exit(0)  # gloo waits for the other rank at an ordinary exit
