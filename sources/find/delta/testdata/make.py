"""Writes the tables of this directory, and tables.json with the rows that delta-rs reads of each version.

pip install deltalake==1.6.6 pyarrow, then: python make.py
"""

import datetime
import decimal
import json
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

os.chdir(os.path.dirname(os.path.abspath(__file__)))
expected = {}


def rows(first, last, **columns):
    n = range(first, last)
    table = {"id": list(n), "text": [f"document {i}" for i in n]}
    return pa.table(table | {k: [f(i) for i in n] for k, f in columns.items()})


def begin(name):
    shutil.rmtree(name, ignore_errors=True)
    return name


def value(v):
    if isinstance(v, datetime.datetime):
        return v.strftime("%Y-%m-%d %H:%M:%S") + (f".{v:%f}" if v.microsecond else "") + ("+00:00" if v.tzinfo else "")
    if isinstance(v, (datetime.date, decimal.Decimal)):
        return str(v)
    return v


def note(name, first=0):
    """Notes the rows of all versions that are still there."""
    newest = DeltaTable(name).version()
    for version in range(first, newest + 1):
        got = DeltaTable(name, version=version).to_pyarrow_table().to_pylist()
        got = [{k: value(v) for k, v in row.items()} for row in got]
        expected[f"{name}@{version}"] = sorted(got, key=lambda row: json.dumps(row))


plain = begin("plain")
write_deltalake(plain, rows(0, 6))
write_deltalake(plain, rows(6, 9), mode="append")
DeltaTable(plain).delete("id = 4")
DeltaTable(plain).update(updates={"text": "'changed'"}, predicate="id = 7")
DeltaTable(plain).optimize.compact()
write_deltalake(plain, rows(20, 22), mode="overwrite")
write_deltalake(plain, rows(30, 31), mode="append")
note(plain)

keys = begin("keys")
kinds = {
    "lang": lambda i: ["en", "d é/=%", None][i % 3],
    "day": lambda i: [datetime.date(2024, 1, 5), None][i % 2],
    "at": lambda i: datetime.datetime(2024, 1, 1, 12, 30, 1, 250000 * (i % 2), tzinfo=datetime.timezone.utc),
    "local": lambda i: datetime.datetime(2024, 1, 1, 12, 30, i % 2),
    "n": lambda i: i % 2 - 1,
    "ok": lambda i: i % 2 == 0,
    "x": lambda i: i % 2 + 0.5,
    "price": lambda i: decimal.Decimal("1.50") if i % 2 else decimal.Decimal("0.05"),
    "007": lambda i: "007",
}
write_deltalake(keys, rows(0, 6, **kinds), partition_by=list(kinds))
note(keys)

checkpoints = begin("checkpoints")
write_deltalake(checkpoints, rows(0, 3, lang=lambda i: "en"), partition_by=["lang"])
for i in range(3, 15):
    write_deltalake(checkpoints, rows(i, i + 1, lang=lambda i: ["en", "de"][i % 2]), mode="append")
DeltaTable(checkpoints).delete("id = 3")
DeltaTable(checkpoints).create_checkpoint()
write_deltalake(checkpoints, rows(40, 41, lang=lambda i: "fr"), mode="append")
for version in range(13):  # as the cleaning of a log leaves it
    os.remove(f"{checkpoints}/_delta_log/{version:020}.json")
for name in os.listdir(f"{checkpoints}/_delta_log"):
    if "checkpoint.parquet" in name and not name.startswith(f"{13:020}"):
        os.remove(f"{checkpoints}/_delta_log/{name}")
note(checkpoints, 13)

parts = begin("parts")  # a checkpoint in two files, as Spark writes it
write_deltalake(parts, rows(0, 4, lang=lambda i: ["en", "de"][i % 2]), partition_by=["lang"])
write_deltalake(parts, rows(4, 6, lang=lambda i: "fr"), mode="append")
DeltaTable(parts).create_checkpoint()
write_deltalake(parts, rows(6, 7, lang=lambda i: None), mode="append")
note(parts, 1)
whole = f"{parts}/_delta_log/{1:020}.checkpoint.parquet"
actions = pq.read_table(whole)
half = actions.num_rows // 2
pq.write_table(actions.slice(0, half), whole.replace(".parquet", f".{1:010}.{2:010}.parquet"))
pq.write_table(actions.slice(half), whole.replace(".parquet", f".{2:010}.{2:010}.parquet"))
for name in (whole, f"{parts}/_delta_log/{0:020}.json", f"{parts}/_delta_log/{1:020}.json"):
    os.remove(name)

vacuumed = begin("vacuumed")
write_deltalake(vacuumed, rows(0, 4))
DeltaTable(vacuumed).delete("id = 1")
write_deltalake(vacuumed, rows(8, 9), mode="append")
DeltaTable(vacuumed).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
note(vacuumed, 1)

grown = begin("grown")  # a column that the first files lack
write_deltalake(grown, rows(0, 2))
write_deltalake(grown, rows(2, 4, note=lambda i: f"note {i}"), mode="append", schema_mode="merge")
note(grown)

with open("tables.json", "w") as f:
    json.dump(expected, f, indent=0, sort_keys=True, ensure_ascii=False)
    f.write("\n")
