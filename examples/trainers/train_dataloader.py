"""The loader inside torch.utils.data.DataLoader, for code that wants one: batch_size=None and no workers.

    torchrun --nproc-per-node 2 train_dataloader.py RUN OUT
"""

from __future__ import annotations

import sys

from torch.utils.data import DataLoader

import millrace
from train_ddp import train


def main(run: str, out: str) -> None:
    loader = millrace.connect(run)
    batches = DataLoader(loader, batch_size=None, num_workers=0)
    # The state of the batch that was trained is right whatever the DataLoader has fetched ahead.
    train(out, batches, loader.load_state_dict, lambda batch: batch.state_dict())
    loader.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
