"""torchdata's StatefulDataLoader, which saves and loads the loader's state inside its own.

    torchrun --nproc-per-node 2 train_stateful.py RUN OUT
"""

from __future__ import annotations

import sys

from torchdata.stateful_dataloader import StatefulDataLoader

import millrace
from train_ddp import train


def main(run: str, out: str) -> None:
    loader = millrace.connect(run)
    batches = StatefulDataLoader(loader, batch_size=None, num_workers=0)
    # Without workers nothing is fetched ahead, so that its state is that of the last trained batch.
    train(out, batches, batches.load_state_dict, lambda batch: batches.state_dict())
    loader.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
