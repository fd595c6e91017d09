"""Writes the directories json, json-zstd, csv, tsv, xsv, tsv-gz and foundry with mosaicml-streaming 0.10.0 and zstd
1.5.7.2. Run it in this directory. The writers need no torch."""

import shutil

import numpy as np
from streaming import MDSWriter
from streaming.base.format.json.writer import JSONWriter
from streaming.base.format.xsv.writer import CSVWriter, TSVWriter, XSVWriter


def write(writer, out, rows, **options):
    shutil.rmtree(out, ignore_errors=True)
    with writer(out=out, **options) as w:
        for row in rows:
            w.write(row)


def main():
    columns = {"text": "str", "n": "int", "score": "float"}
    rows = [{"text": f"document {i} " + "wörld " * (i % 7), "n": 3 * i, "score": i / 4} for i in range(40)]
    small = {"columns": columns, "size_limit": 1000}
    write(JSONWriter, "json", rows, hashes=["sha1"], **small)
    write(JSONWriter, "json-zstd", rows, columns=columns, compression="zstd")
    write(CSVWriter, "csv", rows, **small)
    write(TSVWriter, "tsv", rows, **small)
    write(TSVWriter, "tsv-gz", rows, columns=columns, compression="gz")
    write(XSVWriter, "xsv", rows, separator="|||", newline="\r\n", **small)
    # as the scripts of llm-foundry write tokens: bytes of int64
    tokens = [{"tokens": np.arange(i, i + 1 + i % 5, dtype=np.int64).tobytes(), "n": i} for i in range(20)]
    write(MDSWriter, "foundry", tokens, columns={"tokens": "bytes", "n": "int"})


main()
