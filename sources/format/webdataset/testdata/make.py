"""Writes the files of this directory with webdataset 1.0.2, megatron-energon 7.4.1, numpy 2.4.6, the zstd program and
the tarfile module of Python 3.11. Run it in this directory."""

import glob
import io
import os
import shutil
import subprocess
import tarfile

import numpy as np
import webdataset
from megatron.energon.epathlib import EPath
from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator


def text(i):
    return f"document {i} " + "wörld " * (i % 7)


def samples(first, n):
    for i in range(first, first + n):
        yield {
            "__key__": f"web/{i:04d}", "txt": text(i), "json": {"text": f"inside {i}", "meta": {"n": i}},
            "cls": i, "ids.npy": np.arange(i + 1, dtype=np.uint16), "jpg": bytes([255, 216, i]),
        }


def write(path, n, first=0):
    with webdataset.TarWriter(path) as w:
        for sample in samples(first, n):
            w.write(sample)


def add(tar, name, data=b"", **attributes):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in attributes.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(data))


def traps(path, form):
    """Names whose keys are easily mistaken, and members that are no fields."""
    long = "/".join(["directory"] * 14)  # beyond the 100 bytes of a header
    with tarfile.open(path, "w", format=form) as tar:
        add(tar, "d", type=tarfile.DIRTYPE, mode=0o755)
        add(tar, "__meta__/x.txt", b"left out")
        add(tar, "a/b.c/000.Left.txt", b"left")
        add(tar, "a/b.c/000.TXT", b"upper case")
        add(tar, "README", b"left out")
        add(tar, "d/.dot.txt", b"of a directory")
        add(tar, ".dot", b"left out")
        add(tar, "t..txt", b"two dots")
        add(tar, "e.", b"empty suffix")
        add(tar, "./c.txt", b"with a dot")
        add(tar, "c.txt", b"without it")
        add(tar, "link.txt", type=tarfile.SYMTYPE, linkname="c.txt")
        add(tar, "c.json", b'{"text": "same group"}')
        add(tar, "__meta__.json", b'{"text": "is a sample"}')
        add(tar, "b/__c__/d.txt", b"is a sample, too")
        add(tar, "c.txt", b"not adjacent")
        add(tar, f"{long}/long.txt", b"long name")
        add(tar, "ünï.txt", "ünï".encode())
        add(tar, "twice.txt", b"one")
        add(tar, "twice.txt", b"two")
        add(tar, "bad.txt", b"\xff")
        add(tar, "none.jpg", b"\xff\xd8")
        add(tar, "zero.txt")


def main():
    write("plain.tar", 12)
    for name, form in [("pax", tarfile.PAX_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("ustar", tarfile.USTAR_FORMAT)]:
        traps(f"{name}.tar", form)
    write("packed.tar.gz", 12)
    shutil.rmtree("energon", ignore_errors=True)
    os.makedirs("energon")
    shards = [f"shard_{i}.tar" for i in range(3)]
    for i, shard in enumerate(shards):
        write(f"energon/{shard}", 2 + i, 10 * i)
    WebdatasetPreparator.prepare_dataset(
        EPath(os.path.abspath("energon")), shards, split_parts_ratio=[("train", 2), ("val", 1)], workers=1
    )
    os.remove("energon/.nv-meta/index.sqlite")
    for path in glob.glob("**/*.tar", recursive=True):  # archives are mostly zeros
        subprocess.run(["zstd", "-qf", "--rm", path], check=True)


main()
