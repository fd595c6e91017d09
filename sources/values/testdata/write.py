"""Writes the files of this directory with pyarrow, Polars, DuckDB and Hugging Face datasets, and want.json with the
values that the writers' own readers find: `python write.py` with pyarrow 26, polars 2.1, duckdb 2.0, datasets 5.2."""

import base64, datetime as dt, decimal, glob, json, os, re, shutil, uuid
import duckdb, polars as pl, pyarrow as pa, pyarrow.parquet as pq
from datasets import Dataset, Features, Json, List, Value

os.chdir(os.path.dirname(os.path.abspath(__file__)))
D, UTC = decimal.Decimal, dt.timezone.utc


def Raw(text):
    """A number that the JSON has with these digits."""
    return "raw:" + text


def value(v, is_json=False):
    """The documented form of a reader's value."""
    if isinstance(v, str) and is_json:
        return value(json.loads(v))
    if isinstance(v, dt.timedelta):
        n = D(v.days * 86400 + v.seconds) + D(v.microseconds) / 10**6
        return int(n) if n == int(n) else Raw(format(n.normalize(), "f"))
    if isinstance(v, D):
        text = format(v, "f")
        return Raw(text) if "." in text else int(text)
    if isinstance(v, dt.datetime):
        return str(v.astimezone(UTC) if v.tzinfo else v)
    if isinstance(v, (dt.date, dt.time, uuid.UUID)):
        return str(v)
    if isinstance(v, bytes):
        return base64.b64encode(v).decode()
    if isinstance(v, list):
        if v and all(isinstance(x, tuple) for x in v):
            return {k: value(x) for k, x in v}
        return [value(x, is_json) for x in v]
    if isinstance(v, dict):
        return {k: value(x, is_json) for k, x in v.items()}
    return v


want = {}


def note(name, table, jsons=()):
    want[name] = {c: [value(v, c in jsons) for v in table[c].to_pylist()] for c in table.column_names}


def rows(type_, *values):
    return pa.array([*values, None], type_)


moment = dt.datetime(2024, 5, 1, 12, 30, 1, 250000)
columns = {
    "i8": rows(pa.int8(), -128),
    "i64": rows(pa.int64(), -(2**63)),
    "u8": rows(pa.uint8(), 255),
    "u16": rows(pa.uint16(), 65535),
    "u32": rows(pa.uint32(), 2**32 - 1),
    "u64": rows(pa.uint64(), 2**64 - 1),
    "f16": rows(pa.float16(), 1.5),
    "f32": rows(pa.float32(), 0.25),
    "f64": rows(pa.float64(), 1e-7),
    "d9": rows(pa.decimal128(9, 2), D("-0.05")),
    "d18": rows(pa.decimal128(18, 3), D("123456789012345.678")),
    "d38": rows(pa.decimal128(38, 10), D("-1234567890123456789012345678.0123456789")),
    "d76": rows(
        pa.decimal256(76, 40), D("123456789012345678901234567890123456.0000000000000000000000000000000000000001")
    ),
    "whole": rows(pa.decimal128(20, 0), D(10) ** 19),
    "date": rows(pa.date32(), dt.date(1, 1, 1)),
    "date64": rows(pa.date64(), dt.date(1969, 12, 31)),
    "time_s": rows(pa.time32("s"), dt.time(23, 59, 59)),
    "time_us": rows(pa.time64("us"), dt.time(1, 2, 3, 40)),
    "ts_s": rows(pa.timestamp("s"), moment.replace(microsecond=0)),
    "ts_ms": rows(pa.timestamp("ms"), moment),
    "ts_us": rows(pa.timestamp("us"), dt.datetime(1960, 2, 29, 0, 0, 0, 1)),
    "ts_utc": rows(pa.timestamp("us", "UTC"), moment.replace(tzinfo=UTC)),
    "ts_zone": rows(pa.timestamp("ms", "America/New_York"), moment.replace(tzinfo=UTC)),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), rows(pa.binary(16), uuid.UUID(int=2**127 + 5).bytes)),
    "json": pa.ExtensionArray.from_storage(
        pa.json_(), rows(pa.string(), '{"z": 1, "a": [1.50, "x", null, {"k": 18446744073709551616}]}')
    ),
    "enum": rows(pa.dictionary(pa.int8(), pa.string()), "b"),
    "null": pa.nulls(2),
    "fixed": rows(pa.binary(3), b"\x00\xff\x01"),
    "struct": rows(
        pa.struct([("z", pa.date32()), ("a", pa.uint32()), ("m", pa.list_(pa.decimal128(5, 1)))]),
        {"z": dt.date(9999, 12, 31), "a": 2**31, "m": [D("1.5"), None]},
    ),
    "list": rows(pa.list_(pa.timestamp("us")), [moment, None]),
    "map": rows(pa.map_(pa.string(), pa.uint64()), [("z", 2**63), ("a", 1)]),
}
arrow_only = {
    "duration": rows(pa.duration("ms"), dt.timedelta(days=1, milliseconds=500)),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), rows(pa.int8(), 2)),
    "binary": rows(pa.binary(), b"\xff\x00"),
    "view": rows(pa.string_view(), "long enough to lie in a buffer of its own"),
}
jsons = ("json",)
table = pa.table(columns)
for name, options in (
    ("plain.parquet", {"use_dictionary": False}),
    ("coded.parquet", {"compression": "zstd"}),
    (
        "split.parquet",
        {
            "use_dictionary": False,
            "column_encoding": {
                "i64": "DELTA_BINARY_PACKED",
                "d38": "DELTA_BYTE_ARRAY",
                "fixed": "BYTE_STREAM_SPLIT",
                "f16": "BYTE_STREAM_SPLIT",
            },
        },
    ),
    ("integers.parquet", {"store_decimal_as_integer": True}),
    ("int96.parquet", {"use_deprecated_int96_timestamps": True}),
):
    pq.write_table(table, name, version="2.6", **options)
    note(name, pq.read_table(name), jsons)
both = pa.table(columns | arrow_only)
for name, options in (("stream.arrows", None), ("lz4.arrow", "lz4"), ("zstd.arrow", "zstd")):
    o = pa.ipc.IpcWriteOptions(compression=options)
    with (pa.ipc.new_stream if options is None else pa.ipc.new_file)(name, both.schema, options=o) as w:
        w.write_table(both)
    read = (pa.ipc.open_stream if options is None else pa.ipc.open_file)(name).read_all()
    note(name, read, jsons)

frame = pl.DataFrame(
    {
        "text": ["a text of many words of many words of many words"] * 2,
        "enum": pl.Series(["b", None], dtype=pl.Enum(["a", "b"])),
        "cat": pl.Series(["x", None], dtype=pl.Categorical),
        "dec": pl.Series([D("1.50"), None], dtype=pl.Decimal(10, 2)),
        "date": [dt.date(2024, 5, 1), None],
        "time": [dt.time(12, 0, 0, 5), None],
        "u8": pl.Series([200, None], dtype=pl.UInt8),
        "ts": pl.Series([moment, None], dtype=pl.Datetime("us")),
        "null": [None, None],
        "list": [[1, 2], None],
        "struct": [{"z": dt.date(2024, 5, 1), "a": 1}, None],
    }
)
frame.write_parquet("polars.parquet")
note("polars.parquet", pq.read_table("polars.parquet"))
for c in ("uncompressed", "lz4", "zstd"):
    frame.write_ipc(f"polars-{c}.arrow", compression=c)
    note(f"polars-{c}.arrow", pa.ipc.open_file(f"polars-{c}.arrow").read_all())
frame.write_ipc_stream("polars-lz4.arrows", compression="lz4")
note("polars-lz4.arrows", pa.ipc.open_stream("polars-lz4.arrows").read_all())

duckdb.sql(
    """COPY (SELECT [('{"b":1,"a":{"d":2.50,"c":[]}}')::JSON] lists, {'s': ('[{"z":1,"a":2}]')::JSON} structs,
    MAP{'k': ('{"z":1,"a":2}')::JSON} maps, '"text"'::JSON texts, 1.5::DECIMAL(30,3) wide, 1.25::DECIMAL(4,2) narrow,
    18446744073709551615::UBIGINT u64, DATE '2024-05-01' date, TIMESTAMPTZ '2024-05-01 12:00:00+00' moment,
    'a'::ENUM('a', 'b') enum, '6ba7b810-9dad-11d1-80b4-00c04fd430c8'::UUID uuid) TO 'duckdb.parquet' (FORMAT parquet)"""
)
note("duckdb.parquet", pq.read_table("duckdb.parquet"), ("lists", "structs", "texts"))
want["duckdb.parquet"]["maps"] = [{"k": {"z": 1, "a": 2}}]

data = Dataset.from_dict(
    {
        "tools": [[{"z": 1, "a": {"y": 2, "b": [None, "x"]}}, None]],
        "messages": [[{"role": "user", "content": "q"}]],
        "nested": [{"z": [{"q": 1, "a": 2}], "a": "t"}],
    },
    features=Features(
        {"tools": List(Json()), "messages": List(Json()), "nested": {"z": List(Json()), "a": Value("string")}}
    ),
)
data.to_parquet("datasets.parquet")
data.save_to_disk("saved")
os.replace(glob.glob("saved/*.arrow")[0], "datasets.arrows")
shutil.rmtree("saved")
rows_ = {c: [data[i][c] for i in range(len(data))] for c in data.column_names}
for name in ("datasets.parquet", "datasets.arrows", "features.parquet", "features.arrows"):
    want[name] = rows_
# The same features beside plain strings, as programs leave them that keep a schema's metadata but not its extensions.
with pa.ipc.open_stream("datasets.arrows") as r:
    t = r.read_all()
plain = pa.schema(
    [
        ("tools", pa.list_(pa.string())),
        ("messages", pa.list_(pa.string())),
        ("nested", pa.struct([("z", pa.list_(pa.string())), ("a", pa.string())])),
    ],
    t.schema.metadata,
)
nested = [{"z": [json.dumps(x) for x in n["z"]], "a": n["a"]} for n in rows_["nested"]]
t = pa.table(
    [
        [[None if x is None else json.dumps(x) for x in v] for v in rows_["tools"]],
        [[json.dumps(x) for x in v] for v in rows_["messages"]],
        nested,
    ],
    schema=plain,
)
pq.write_table(t, "features.parquet")
with pa.ipc.new_stream("features.arrows", t.schema) as w:
    w.write_table(t)

open("want.json", "w").write(re.sub(r'"raw:([^"]*)"', r"\1", json.dumps(want, indent=1)) + "\n")
