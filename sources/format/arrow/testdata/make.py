"""Writes the Arrow files of the tests, with pyarrow 26.0.1 and datasets 5.2.0. Usage: make.py DIRECTORY"""

import json
import os
import shutil
import sys

import datasets
import pyarrow as pa

os.chdir(sys.argv[1])


def text(i):
    return "" if i % 11 == 5 else f"row {i} ünïcödé 😀 " * (i % 7)


def row(i):
    """The columns that the tests compare, as JSON has them."""
    return {
        "text": None if i % 13 == 4 else text(i),
        "n": None if i % 5 == 3 else i * 1000 - 7,
        "score": i / 8,
        "ok": i % 3 == 0,
        "meta": None if i % 9 == 8 else {"lang": ["en", "de", None][i % 3], "tags": [f"t{k}" for k in range(i % 4)]},
        "messages": [{"role": ["user", "assistant"][k % 2], "content": text(i + k)} for k in range(i % 4)],
        "ids": None if i % 10 == 9 else [i * 17 + k for k in range(i % 6)],
        "pairs": [[k, -k] for k in range(i % 3)],
    }


FIELDS = [
    ("text", pa.string()), ("n", pa.int64()), ("score", pa.float64()), ("ok", pa.bool_()),
    ("meta", pa.struct([("lang", pa.string()), ("tags", pa.list_(pa.string()))])),
    ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
    ("ids", pa.list_(pa.int32())), ("pairs", pa.list_(pa.list_(pa.int64(), 2))),
]


def batches(rows, size, fields=FIELDS):
    schema = pa.schema(fields)
    return schema, [pa.RecordBatch.from_pylist(rows[i : i + size], schema) for i in range(0, len(rows), size)]


def stream(name, schema, parts, make=pa.ipc.new_stream, **options):
    with make(name, schema, options=pa.ipc.IpcWriteOptions(**options)) as w:
        for p in parts:
            w.write_batch(p)


rows = [row(i) for i in range(34)]
with open("rows.json", "w") as out:
    json.dump(rows, out, ensure_ascii=False)
schema, parts = batches(rows, 10)
stream("plain.arrow", schema, parts)
stream("v4.arrow", schema, parts, use_legacy_format=True)
stream("file.arrow", schema, parts, pa.ipc.new_file)
stream("lz4.arrow", schema, parts, compression="lz4")
stream("zstd.feather", schema, parts, pa.ipc.new_file, compression="zstd")
empty = pa.RecordBatch.from_pylist([], schema)
stream("empty-batches.arrow", schema, [empty, parts[0], empty, empty, *parts[1:], empty])
stream("empty.arrow", schema, [])
with open("plain.arrow", "rb") as f:
    whole = f.read()
with open("no-end.arrow", "wb") as f:
    f.write(whole[:-8])

large = [("text", pa.large_string()), ("n", pa.uint16()), ("score", pa.float32()), ("ok", pa.bool_()),
         ("meta", pa.struct([("lang", pa.dictionary(pa.int8(), pa.string())), ("tags", pa.large_list(pa.string_view()))])),
         ("messages", pa.large_list(pa.struct([("role", pa.string_view()), ("content", pa.large_string())]))),
         ("ids", pa.list_view(pa.uint16())), ("pairs", pa.large_list_view(pa.list_(pa.int8(), 2)))]
small = [{**r, "n": None if r["n"] is None else r["n"] % 60000, "score": r["score"]} for r in rows]
with open("large-rows.json", "w") as out:
    json.dump(small, out, ensure_ascii=False)
schema, parts = batches(small, 25, large)
stream("large.arrow", schema, parts)
views = [("text", pa.string_view()), ("n", pa.binary_view())]
schema, parts = batches([{"text": r["text"], "n": b"\xff\x00"} for r in rows], 25, views)
stream("views.arrow", schema, parts)

# Dictionaries: one that grows by deltas, and one that is replaced.
words = [f"word {i} " * (1 + i % 3) for i in range(30)]
kind = pa.dictionary(pa.int16(), pa.string())
schema = pa.schema([("text", kind), ("more", pa.list_(kind))])


def coded(n):
    codes = pa.DictionaryArray.from_arrays(pa.array([None if k % 7 == 6 else k % n for k in range(20)], pa.int16()),
                                           pa.array(words[:n]))
    lists = pa.ListArray.from_arrays(pa.array([k * 20 // 20 for k in range(21)], pa.int32()), codes)
    return pa.RecordBatch.from_arrays([codes, lists], schema=schema)


grown = [coded(n) for n in (5, 12, 30)]
with open("words.json", "w") as out:
    json.dump([r for b in grown for r in b.to_pylist()], out)
stream("deltas.arrow", schema, grown, emit_dictionary_deltas=True)
stream("replaced.arrow", schema, grown)
stream("deltas-file.arrow", schema, grown, pa.ipc.new_file, emit_dictionary_deltas=True)

deep = pa.string()
for _ in range(80):
    deep = pa.struct([("s", deep)])
stream("deep.arrow", pa.schema([("text", pa.string()), ("x", deep)]), [])

# What Hugging Face datasets writes.
shutil.rmtree("saved", ignore_errors=True)
table = datasets.Dataset.from_list([{"text": r["text"], "messages": r["messages"], "ids": r["ids"]} for r in rows])
table.save_to_disk("saved", num_shards=2)
shutil.rmtree("dict", ignore_errors=True)
datasets.DatasetDict({"train": table.select(range(4)), "test": table.select(range(2))}).save_to_disk("dict")
