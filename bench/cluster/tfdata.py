"""A process of tf.data service, in the environment of requirements-tensorflow.txt.

    python bench/cluster/tfdata.py dispatcher --address IP:PORT
    python bench/cluster/tfdata.py worker --address IP:PORT --dispatcher IP:PORT
    python bench/cluster/tfdata.py consumer --dispatcher IP:PORT --corpus DIR --counter FILE

All consumers share one job. Workers read rows of uint16 and make batches. Consumers make int64 tokens and labels, so
that a token crosses the network in two bytes.
"""

from __future__ import annotations

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf  # noqa: E402
from consumers import consume  # noqa: E402

ROWS, LENGTH = 8, 2048


def batches(a: argparse.Namespace) -> tf.data.Dataset:
    service = tf.data.experimental.service
    files = sorted(str(p) for p in pathlib.Path(a.corpus).glob("*.bin"))
    data = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files)).repeat()
    data = data.interleave(
        lambda file: tf.data.FixedLengthRecordDataset(file, 2 * LENGTH), cycle_length=8, deterministic=False,
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    data = data.batch(ROWS).prefetch(tf.data.AUTOTUNE)
    data = data.apply(
        service.distribute(service.ShardingPolicy.DYNAMIC, f"grpc://{a.dispatcher}", job_name="job", compression=None)
    )

    def labelled(raw: tf.Tensor) -> dict[str, tf.Tensor]:
        tokens = tf.cast(tf.io.decode_raw(raw, tf.uint16, fixed_length=2 * LENGTH), tf.int64)
        labels = tf.pad(tokens[:, 1:], [[0, 0], [0, 1]], constant_values=-100)
        return {"tokens": tokens, "labels": labels}

    return data.map(labelled, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("role", choices=["dispatcher", "worker", "consumer"])
    p.add_argument("--address")
    p.add_argument("--dispatcher")
    p.add_argument("--corpus")
    p.add_argument("--counter")
    a = p.parse_args()
    service = tf.data.experimental.service
    if a.role == "dispatcher":
        service.DispatchServer(service.DispatcherConfig(port=int(a.address.split(":")[1]))).join()
    elif a.role == "worker":
        port = int(a.address.split(":")[1])
        service.WorkerServer(service.WorkerConfig(a.dispatcher, a.address, port)).join()
    else:
        consume(batches(a).as_numpy_iterator(), a.counter)


if __name__ == "__main__":
    main()
