"""The driver of Ray Data over the nodes of a running Ray, in the environment of tools/requirements-ray.txt.

    python bench/cluster/raydata.py --address IP:PORT --corpus DIR --counter FILE FILE ...

Each consumer is an actor on a node of its own. They split one stream of blocks of uint16 rows, and prefer those of
their node. Consumers make int64 tokens and labels.
"""

from __future__ import annotations

import argparse
import logging
import os
import pathlib
import sys
import time
from typing import Any, Iterator

HERE = str(pathlib.Path(__file__).resolve().parent)
sys.path.insert(0, HERE)
os.environ["PYTHONPATH"] = HERE  # of the actors

import ray  # noqa: E402
import ray.data  # noqa: E402
from consumers import consume, with_labels  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On  # noqa: E402

ROWS = 8


@ray.remote(num_cpus=0)
class Consumer:
    def run(self, split: Any, counter: str) -> None:
        def batches() -> Iterator[Any]:
            while True:
                got = split.iter_batches(batch_size=ROWS, batch_format="numpy", prefetch_batches=4, drop_last=True)
                yield from (with_labels(batch["data"]) for batch in got)

        consume(batches(), counter)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--address", required=True)
    p.add_argument("--corpus", required=True)
    p.add_argument("--counters", nargs="+", required=True)
    a = p.parse_args()
    ray.init(address=a.address, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    while len(nodes := [n["NodeID"] for n in ray.nodes() if n["Alive"]]) < len(a.counters):
        time.sleep(1)
    files = sorted(str(f) for f in pathlib.Path(a.corpus).glob("*.npy"))
    splits = ray.data.read_numpy(files, shuffle="files").streaming_split(len(nodes), equal=False, locality_hints=nodes)
    there = [Consumer.options(scheduling_strategy=On(n, soft=False)).remote() for n in nodes]
    ray.get([c.run.remote(s, f) for c, s, f in zip(there, splits, a.counters)])


if __name__ == "__main__":
    main()
