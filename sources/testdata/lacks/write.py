"""Writes the files of this directory with pyarrow: `python write.py`."""

import os
import pyarrow as pa, pyarrow.csv, pyarrow.parquet as pq

os.chdir(os.path.dirname(os.path.abspath(__file__)))
ids = pa.array([1, 2])
for name, table in (
    ("a", pa.table({"id": ids, "text": ["x", "y"], "lang": ["en", "de"]})),
    ("b", pa.table({"id": ids})),
    ("c", pa.table({"id": ids, "text": pa.nulls(2), "lang": pa.nulls(2)})),
):
    pq.write_table(table, name + ".parquet")
    with pa.ipc.new_file(name + ".arrow", table.schema) as w:
        w.write_table(table)
    if name != "c":
        pyarrow.csv.write_csv(table, name + ".csv")
