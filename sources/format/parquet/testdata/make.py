"""Writes the Parquet files of the tests, with pyarrow 26.0.1 and duckdb 2.0.0. Usage: make.py DIRECTORY

The files of the directory `foreign` have page indexes of other writers, parquet-mr and parquet-rs. They come from
https://github.com/apache/parquet-testing (Apache-2.0). Only their values, foreign.json, are written here, by pyarrow.
"""

import json
import os
import pathlib
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

paths = sorted((pathlib.Path(__file__).parent / "foreign").glob("*.parquet"))
foreign = {path.name: pq.read_table(path).to_pydict() for path in paths}
os.chdir(sys.argv[1])
with open("foreign.json", "w") as out:
    json.dump(foreign, out)


def text(i):
    return "" if i % 11 == 5 else f"row {i} ünïcödé 😀 " * (i % 7)


def row(i):
    """The columns that the tests compare, as JSON has them."""
    return {
        "text": text(i),
        "meta": None if i % 9 == 8 else {"lang": ["en", "de", None][i % 3], "tags": [f"t{k}" for k in range(i % 4)]},
        "messages": None if i % 17 == 3 else
        [{"role": ["user", "assistant"][k % 2], "content": text(i + k)} for k in range(i % 4)],
        "ids": None if i % 10 == 9 else [i * 17 + k for k in range(i % 6)],
        "labels": [-100 if k < 2 else k for k in range(i % 5)],
        "holes": [None if k % 3 == 1 else k for k in range(i % 5)],
        "deep": [[k] * k for k in range(i % 4)],
        "map": {f"k{k}": k / 2 for k in range(i % 3)},
        "loss_mask": [True] * (i % 40) + [False],
    }


SCHEMA = pa.schema([
    ("text", pa.string()),
    ("meta", pa.struct([("lang", pa.string()), ("tags", pa.list_(pa.string()))])),
    ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
    ("ids", pa.list_(pa.int32())), ("labels", pa.large_list(pa.int64())), ("holes", pa.list_(pa.int16())),
    ("deep", pa.list_(pa.list_(pa.int64()))), ("map", pa.map_(pa.string(), pa.float64())),
    ("loss_mask", pa.list_(pa.bool_())),
])
rows = [row(i) for i in range(66)]
with open("rows.json", "w") as out:
    json.dump(rows, out, ensure_ascii=False)
table = pa.Table.from_pylist([{**r, "map": list(r["map"].items())} for r in rows], SCHEMA)
small = {"row_group_size": 40, "data_page_size": 200, "write_batch_size": 4}
pq.write_table(table, "snappy.parquet", **small)
pq.write_table(table, "v2.parquet", compression="zstd", data_page_version="2.0", **small)
pq.write_table(table.slice(0, 20), "few.parquet", data_page_version="2.0", data_page_size=100, write_batch_size=4)
pq.write_table(table, "gzip-item.parquet", compression="gzip", use_compliant_nested_type=False, row_group_size=30)
pq.write_table(table, "brotli-index.parquet", compression="brotli", write_page_index=True, **small)
pq.write_table(table, "v2-index.parquet", compression="snappy", data_page_version="2.0", write_page_index=True, **small)
pq.write_table(table.select(["text", "ids", "meta"]), "plain-index.parquet", compression="none", use_dictionary=False,
               row_group_size=25, data_page_size=150, write_batch_size=2, write_page_index=True)
pq.write_table(table, "lz4.parquet", compression="lz4", use_dictionary=False, store_schema=False, row_group_size=30)
pq.write_table(table.drop(["map"]), "delta.parquet", compression="none", use_dictionary=False, column_encoding={
    "ids.list.element": "DELTA_BINARY_PACKED", "labels.list.element": "DELTA_BINARY_PACKED",
    "messages.list.element.content": "DELTA_LENGTH_BYTE_ARRAY", "messages.list.element.role": "DELTA_BYTE_ARRAY",
}, data_page_size=400, write_batch_size=8)
duckdb.sql("copy (select * from read_parquet('snappy.parquet')) to 'duckdb.parquet' (format parquet, "
           "parquet_version v2, compression zstd, row_group_size 30)")

deep = pa.string()
for _ in range(40):
    deep = pa.struct([("s", deep)])
schema = pa.schema([("text", pa.string()), ("x", deep)])
pq.write_table(schema.empty_table(), "deep.parquet", store_schema=False)
