"""Writes the files of this directory with litdata 0.2.76, torch 2.15.0, numpy 2.4.6, pyarrow 26.0.1 and zstd 1.5.7.2.
Run it in this directory."""

import shutil

import numpy as np
import torch
from litdata.streaming.item_loader import TokensLoader
from litdata.streaming.writer import BinaryWriter


def text(i):
    return f"document {i} " + "wörld " * (i % 7)


def write(out, items, **options):
    shutil.rmtree(out, ignore_errors=True)
    writer = BinaryWriter(out, **({"chunk_size": 16} | options))
    for i, item in enumerate(items):
        writer.add_item(i, item)
    writer.done()
    writer.merge()


def every(i):
    return {
        "z": text(i), "int": i - 2, "float": i / 4, "bool": i % 2 == 0, "bytes": bytes([i, 255]),
        "meta": {"source": f"web {i}", "list": ["a", i]},
        "chat": [{"role": "user", "content": f"hello {i}", "n": i, "none": None, "yes": True, "rate": i / 2}],
        "names": ["a", "wörld"], "counts": [1, -i], "rates": [0.5, i / 4], "flags": [True, False],
        "tensor": torch.arange(i + 1, dtype=torch.int32), "matrix": torch.ones((2, 1), dtype=torch.int16) * i,
        "array": np.arange(i + 1, dtype=np.uint16), "grid": np.full((1, 2), i, np.float64),
        "half": torch.ones(1, dtype=torch.float16) * i, "short": torch.tensor([i, i + 1], dtype=torch.uint16),
        "negative": torch.arange(2, dtype=torch.int64) - i, "object": {1, i},
    }


def main():
    write("every", map(every, range(5)))
    plain = [{"text": text(i), "n": i, "tags": ["x"] * (i % 3)} for i in range(300)]
    write("arrow", plain[:5])
    write("arrowzstd", plain, chunk_size=280, compression="zstd")
    leaves = [{"text": text(i), "ids": torch.arange(i % 5, dtype=torch.int64)} for i in range(300)]
    write("several", leaves[:20], chunk_size=8)
    write("framed", leaves, chunk_size=280, compression="zstd", compression_batch_size=100)
    write("sample", leaves[:20], compression="zstd", compression_level="sample")
    write("chunk", leaves[:20], compression="zstd", compression_level="chunk")
    write("single", [text(i) for i in range(5)])
    write("pair", [(text(i), i) for i in range(5)])
    tokens = [torch.arange(i, i + 3 * i % 11, dtype=torch.int32) for i in range(20)]
    write("tokens", [t for t in tokens if len(t)], chunk_size=40, item_loader=TokensLoader())
    packed = [np.arange(i, i + 4, dtype=np.uint16) for i in range(20)]
    write("tokens16", packed, chunk_size=40, item_loader=TokensLoader(), compression="zstd", compression_level="chunk")


main()
