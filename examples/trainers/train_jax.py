"""JAX on several processes: global arrays, gradient accumulation, and Orbax checkpoints with the iterator's state.

    millrace up mixture.yaml --ranks 2 --run-dir RUN &
    export JAX_COORDINATOR_ADDRESS=127.0.0.1:8476 WORLD_SIZE=2
    RANK=0 LOCAL_RANK=0 python train_jax.py RUN OUT &
    RANK=1 LOCAL_RANK=1 python train_jax.py RUN OUT
"""

from __future__ import annotations

import os
import sys
from typing import Any, Tuple

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_cpu_collectives_implementation", "gloo")

import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

import millrace  # noqa: E402
import millrace.jax  # noqa: E402
from model_jax import make_parameters, row_losses  # noqa: E402
from record import Record  # noqa: E402

SAVE_EVERY = 4  # steps
OPTIMIZER = optax.adamw(3e-3)


@jax.jit
def backward(parameters: Any, batch: Any, step_loss_tokens: Any) -> Tuple[Any, Any]:
    """Returns the gradients of a microbatch over all processes, and the summed loss of each of its rows."""

    def loss(p: Any) -> Tuple[Any, Any]:
        rows = row_losses(p, batch)
        return rows.sum() / step_loss_tokens, rows

    return jax.grad(loss, has_aux=True)(parameters)


@jax.jit
def update(parameters: Any, optimizer: Any, gradients: Any) -> Tuple[Any, Any]:
    updates, optimizer = OPTIMIZER.update(gradients, optimizer, parameters)
    return optax.apply_updates(parameters, updates), optimizer


def main(run: str, out: str) -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if ranks > 1:
        jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], ranks, rank)
    mesh = Mesh(jax.devices(), ("data",))
    everywhere, rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    model = jax.jit(make_parameters, out_shardings=everywhere)()
    trained = {"model": model, "optimizer": jax.jit(OPTIMIZER.init, out_shardings=everywhere)(model)}

    loader = millrace.connect(run, tensors="numpy", keys="maxtext")
    iterator = millrace.jax.Iterator(loader)
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    manager = ocp.CheckpointManager(os.path.abspath(out) + "/checkpoints", options=options)
    if manager.latest_step() is not None:
        wanted = ocp.args.Composite(trained=ocp.args.StandardRestore(trained), data=ocp.args.JsonRestore())
        saved = manager.restore(manager.latest_step(), args=wanted)
        trained = saved["trained"]
        iterator.set_state(saved["data"])  # the same state on every process, whatever their number was
    record = Record(out, rank)

    gradients = None
    for batch in iterator:
        whole = millrace.jax.make_global(batch, rows)
        more, losses = backward(trained["model"], dict(whole), batch.step_loss_tokens)
        gradients = more if gradients is None else jax.tree.map(jnp.add, gradients, more)
        record.microbatch(batch, sum(float(shard.data.sum()) for shard in losses.addressable_shards))
        if batch.microbatch < batch.num_microbatches - 1:
            continue
        model, optimizer = update(trained["model"], trained["optimizer"], gradients)
        trained, gradients = {"model": model, "optimizer": optimizer}, None
        jax.block_until_ready(trained)
        record.step()
        if (batch.step + 1) % SAVE_EVERY == 0:
            data = ocp.args.JsonSave(iterator.get_state())
            manager.save(batch.step + 1, args=ocp.args.Composite(trained=ocp.args.StandardSave(trained), data=data))
            manager.wait_until_finished()
            loader.checkpoint_saved(batch.step)
    manager.close()
    loader.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
