"""The consumer of a host: it touches every row of its batches. The measurement reads its count of tokens in a file."""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any, Iterator

import numpy as np


def consume(batches: Iterator[Any], counter: str) -> None:
    """Takes batches for ever: dictionaries with tokens and labels [rows, length] of int64."""
    count = np.memmap(counter, np.uint64, "w+", shape=1)
    for batch in batches:
        assert batch["tokens"].dtype == batch["labels"].dtype == np.int64
        batch["tokens"][:, 0].sum()
        count[0] += np.uint64(batch["tokens"].size)


def with_labels(tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Makes int64 tokens, and labels that are a token ahead, from uint16 rows."""
    tokens = tokens.astype(np.int64)
    labels = np.full_like(tokens, -100)
    labels[:, :-1] = tokens[:, 1:]
    return {"tokens": tokens, "labels": labels}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("socket")
    p.add_argument("counter")
    a = p.parse_args()
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
    import millrace

    consume(iter(millrace.connect(a.socket, tensors="numpy", patience=60)), a.counter)


if __name__ == "__main__":
    main()
