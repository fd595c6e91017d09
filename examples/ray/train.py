"""Trains on Ray: `python examples/ray/train.py MIXTURE --workers 4 --per-node 2 --cluster cluster.yaml`.

The loop counts tokens instead of training a model: replace `step`. Workers that Ray starts again, also on other nodes,
go on behind the newest checkpoint.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any, Dict

import ray.train
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer  # with PyTorch: ray.train.torch.TorchTrainer

import millrace.ray

EVERY = 10  # steps between two checkpoints


def step(batch: Any) -> int:
    return int(batch["tokens"].size)


def train(config: Dict[str, Any]) -> None:
    loader = millrace.ray.connect(config["run"])
    millrace.ray.restore(loader, ray.train.get_checkpoint())
    tokens = 0
    for batch in loader:
        tokens += step(batch)
        if batch.microbatch < batch.num_microbatches - 1 or batch.step % EVERY != EVERY - 1:
            continue
        if ray.train.get_context().get_world_rank() > 0:
            ray.train.report({"step": batch.step, "tokens": tokens})  # waits for the other ranks
            continue
        with tempfile.TemporaryDirectory() as directory:  # the model goes here, too
            millrace.ray.save(batch, directory)
            ray.train.report({"step": batch.step, "tokens": tokens}, checkpoint=Checkpoint.from_directory(directory))
    loader.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mixture")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--per-node", type=int, default=None, help="ranks on each node; by default, one node has all")
    parser.add_argument("--cluster", help="cluster file with the endpoints of etcd (docs/cluster.md)")
    parser.add_argument("--storage", help="directory for checkpoints that all nodes share")
    args = parser.parse_args()
    with millrace.ray.launch(
        args.mixture, trainers=args.workers, ranks_per_node=args.per_node, cluster=args.cluster
    ) as run:
        result = DataParallelTrainer(
            train,
            train_loop_config={"run": run.name},
            scaling_config=ScalingConfig(
                num_workers=args.workers, placement_strategy="SPREAD" if args.per_node else "STRICT_PACK"
            ),
            run_config=RunConfig(storage_path=args.storage, failure_config=FailureConfig(max_failures=10)),
        ).fit()
    print(result.metrics)


if __name__ == "__main__":
    main()
