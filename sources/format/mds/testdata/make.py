"""Writes the files of this directory with mosaicml-streaming 0.10.0, numpy 2.4.6, zstd 1.5.7.2, python-snappy 0.7.3
and brotli 1.2.1. Run it in this directory."""

import shutil
from decimal import Decimal

import numpy as np
from PIL import Image
from streaming import MDSWriter


def texts(n):
    return [f"document {i} " + "wörld " * (i % 7) + "\u2028" * (i % 3) for i in range(n)]


def write(out, rows, **options):
    shutil.rmtree(out, ignore_errors=True)
    with MDSWriter(out=out, **options) as w:
        for row in rows:
            w.write(row)


def everything(i):
    image = Image.fromarray(np.full((2, 3), i, np.uint8))
    return {
        "text": texts(40)[i], "bytes": bytes([i, 255, 0]), "int": i - 3, "uint8": np.uint8(i), "int8": np.int8(-i),
        "uint16": np.uint16(i), "int16": np.int16(-i), "uint32": np.uint32(i), "int32": np.int32(-i),
        "uint64": np.uint64(2**63 + i if i == 2 else i), "int64": np.int64(-i), "float16": np.float16(i / 4),
        "float32": np.float32(i / 4), "float64": np.float64(i / 3), "str_int": 10**i, "str_float": i / 8,
        "str_decimal": Decimal("1.10") * i, "json": {"text": f"inside {i}", "n": [i, 1.5, None, True]},
        "pil": image, "png": image, "pkl": {"x": i},
        "ids": np.arange(i + 1, dtype=np.uint16), "fixed": np.arange(6, dtype=np.int32).reshape(2, 3) - i,
        "free": np.arange(1, i + 2, dtype=np.int64) if i % 2 else np.ones((2, 1), np.float32) * i,
    }


def main():
    columns = {name: name for name in everything(0)}
    columns |= {"text": "str", "ids": "ndarray:uint16", "fixed": "ndarray:int32:2,3", "free": "ndarray"}
    write("every", map(everything, range(5)), columns=columns)
    write("broken", [{"text": b"\xff\xfe"}, {"text": ""}, {"text": "good"}], columns={"text": "str"})
    rows = [{"text": t, "n": i} for i, t in enumerate(texts(40))]
    plain = {"text": "str", "n": "int"}
    write("several", rows, columns=plain, size_limit=600, hashes=["sha1", "xxh64"])
    for name in ["zstd", "gz", "br", "bz2", "snappy"]:
        write(name, rows * 3, columns=plain, compression=name, hashes=["md5", "xxh3_64"])


main()
