"""The formats of bench/read.py in the environment of the peers: their own writers, and their own readers.

    python bench/readers.py write mds DIR --megabytes 64
    python bench/readers.py read mds mosaicml-streaming DIR [--random] [--seconds 3]

`write` makes the files of a format from real documents, cut to lengths like those of web pages. `read` reads all
documents once for the check and to fill the page cache, and then again and again. It prints one line of JSON: the
records and bytes that it read, CPU seconds of the process with its threads, and the CRC-32 of the first pass.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import random
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from documents import corpus  # noqa: E402

SHARD = 32 << 20  # bytes of a file, about
BATCH = 1024  # rows of a batch, for readers that have batches


def texts(megabytes: int) -> list[str]:
    """Returns documents of log-normal lengths: the median is 1,300 characters, the mean 2,200."""
    rng, out = random.Random(5), []
    for document in corpus(megabytes * 1_000_000)[0]:
        at = 0
        while at < len(document):
            end = at + max(int(rng.lognormvariate(7.2, 1)), 16)
            out.append(document[at:end].replace("\0", " "))
            at = end
    rng.shuffle(out)
    return out


def shards(rows: list[str]) -> Iterator[list[str]]:
    """Yields the documents of each file."""
    first, size = 0, 0
    for i, text in enumerate(rows):
        size += len(text)
        if size > SHARD:
            yield rows[first : i + 1]
            first, size = i + 1, 0
    if first < len(rows):
        yield rows[first:]


def files(folder: str, ending: str) -> list[str]:
    return sorted(map(str, pathlib.Path(folder).rglob("*" + ending)))


# MosaicML Streaming


def write_mds(folder: str, rows: list[str]) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=folder, columns={"text": "str"}, size_limit=SHARD) as w:
        for text in rows:
            w.write({"text": text})


def streaming(folder: str):  # noqa: ANN201 - the peer's type
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    return StreamingDataset(local=folder, shuffle=False, batch_size=1)


def scan_mds(folder: str) -> Callable[[], Iterator[str]]:
    data = streaming(folder)
    return lambda: (sample["text"] for sample in data)


def random_mds(folder: str) -> tuple[int, Callable[[list[int]], list[str]]]:
    data = streaming(folder)
    return len(data), lambda some: [data[i]["text"] for i in some]


# webdataset


def write_webdataset(folder: str, rows: list[str]) -> None:
    import webdataset

    with webdataset.ShardWriter(folder + "/%06d.tar", maxsize=SHARD, verbose=0) as w:
        for i, text in enumerate(rows):
            w.write({"__key__": f"{i:09}", "txt": text})


def scan_webdataset(folder: str) -> Callable[[], Iterator[str]]:
    import webdataset

    data = webdataset.WebDataset(files(folder, ".tar"), shardshuffle=False).decode()
    return lambda: (sample["txt"] for sample in data)


# Hugging Face datasets: Arrow, JSON lines, CSV, Parquet


def write_arrow(folder: str, rows: list[str]) -> None:
    import datasets

    datasets.Dataset.from_dict({"text": rows}).save_to_disk(folder + "/saved", max_shard_size=SHARD)


def from_disk(folder: str):  # noqa: ANN201 - the peer's type
    import datasets

    return datasets.load_from_disk(folder + "/saved")


def scan_arrow(folder: str) -> Callable[[], Iterator[str]]:
    data = from_disk(folder)
    return lambda: (row["text"] for row in data)


def scan_arrow_batches(folder: str) -> Callable[[], Iterator[str]]:
    data = from_disk(folder)
    return lambda: (text for batch in data.iter(BATCH) for text in batch["text"])


def random_arrow(folder: str) -> tuple[int, Callable[[list[int]], list[str]]]:
    data = from_disk(folder)
    return len(data), lambda some: [data[i]["text"] for i in some] if len(some) == 1 else data[some]["text"]


def write_jsonl(folder: str, rows: list[str]) -> None:
    for i, some in enumerate(shards(rows)):
        lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in some)
        (pathlib.Path(folder) / f"{i:03}.jsonl").write_text(lines)


def write_csv(folder: str, rows: list[str]) -> None:
    import pyarrow
    import pyarrow.csv

    for i, some in enumerate(shards([text.replace("\r", " ") for text in rows])):
        pyarrow.csv.write_csv(pyarrow.table({"text": some}), f"{folder}/{i:03}.csv")


def write_parquet(folder: str, rows: list[str]) -> None:
    import pyarrow
    import pyarrow.parquet

    for i, some in enumerate(shards(rows)):
        pyarrow.parquet.write_table(pyarrow.table({"text": some}), f"{folder}/{i:03}.parquet", row_group_size=5000)


def streamed(builder: str, ending: str) -> Callable[[str], Callable[[], Iterator[str]]]:
    def scan(folder: str) -> Callable[[], Iterator[str]]:
        import datasets

        data = datasets.load_dataset(builder, data_files=files(folder, ending), streaming=True, split="train")
        return lambda: (row["text"] for row in data)

    return scan


# pyarrow


def columns(folder: str) -> Iterator[object]:
    """Yields the arrays of a column, decoded on one thread."""
    import pyarrow.parquet

    for path in files(folder, ".parquet"):
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(BATCH, columns=["text"], use_threads=False):
            yield batch.column(0)


def scan_parquet(folder: str) -> Callable[[], Iterator[str]]:
    return lambda: (text for some in columns(folder) for text in some.to_pylist())


def arrays_of_parquet(folder: str) -> Callable[[], Iterator[object]]:
    return lambda: columns(folder)


def random_parquet(folder: str) -> tuple[int, Callable[[list[int]], list[str]]]:
    import pyarrow.dataset

    data = pyarrow.dataset.dataset(files(folder, ".parquet"))
    return data.count_rows(), lambda some: data.take(some, columns=["text"], use_threads=False)["text"].to_pylist()


def arrays_of_csv(folder: str) -> Callable[[], Iterator[object]]:
    import pyarrow.csv

    def scan() -> Iterator[object]:
        for path in files(folder, ".csv"):
            # The whole text of a document may be in one block only.
            options = pyarrow.csv.ReadOptions(use_threads=False, block_size=8 << 20)
            parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
            for batch in pyarrow.csv.open_csv(path, options, parse):
                yield batch.column(0)

    return scan


# LitData


def write_litdata(folder: str, rows: list[str]) -> None:
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(folder, chunk_bytes=SHARD)
    for i, text in enumerate(rows):
        writer.add_item(i, {"text": text})
    writer.done()
    writer.merge()


def scan_litdata(folder: str) -> Callable[[], Iterator[str]]:
    from litdata import StreamingDataset

    data = StreamingDataset(folder)
    return lambda: (sample["text"] for sample in data)


def random_litdata(folder: str) -> tuple[int, Callable[[list[int]], list[str]]]:
    from litdata import StreamingDataset

    data = StreamingDataset(folder)
    return len(data), lambda some: [data[i]["text"] for i in some]


# ArrayRecord


def write_arrayrecord(folder: str, rows: list[str]) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    for i, some in enumerate(shards(rows)):
        writer = ArrayRecordWriter(f"{folder}/{i:03}.array_record", "group_size:1")
        for text in some:
            writer.write(text.encode())
        writer.close()


def scan_grain(folder: str) -> Callable[[], Iterator[str]]:
    import grain

    source = grain.sources.ArrayRecordDataSource(files(folder, ".array_record"))
    data = grain.MapDataset.source(source).map(bytes.decode)
    return lambda: iter(data.to_iter_dataset())


def scan_arrayrecord(folder: str) -> Callable[[], Iterator[str]]:
    from array_record.python.array_record_module import ArrayRecordReader

    def scan() -> Iterator[str]:
        for path in files(folder, ".array_record"):
            reader = ArrayRecordReader(path)
            for _ in range(reader.num_records()):
                yield reader.read().decode()
            reader.close()

    return scan


def random_grain(folder: str) -> tuple[int, Callable[[list[int]], list[str]]]:
    import grain

    data = grain.sources.ArrayRecordDataSource(files(folder, ".array_record"))
    return len(data), lambda some: [raw.decode() for raw in data.__getitems__(some)]


# TFRecord


def write_tfrecord(folder: str, rows: list[str]) -> None:
    from tfrecord.writer import TFRecordWriter

    for i, some in enumerate(shards(rows)):
        writer = TFRecordWriter(f"{folder}/{i:03}.tfrecord")
        for text in some:
            writer.write({"text": (text.encode(), "byte")})
        writer.close()


def scan_tfrecord(folder: str) -> Callable[[], Iterator[str]]:
    from tfrecord.reader import tfrecord_loader

    def scan() -> Iterator[str]:
        for path in files(folder, ".tfrecord"):
            for record in tfrecord_loader(path, None, {"text": "byte"}):
                yield bytes(record["text"]).decode()

    return scan


@dataclasses.dataclass(frozen=True)
class Format:
    """A format with its writer and the peers that read it.

    A peer in `scans` yields texts, or Arrow arrays of them. A peer in `randoms` returns the number of documents and a
    function that returns some of them; it gets `group` numbers in a call.
    """

    write: Callable[[str, list[str]], None]
    field: str = ""  # our key of the text
    scans: dict[str, Callable[[str], Callable[[], Iterator[object]]]] = dataclasses.field(default_factory=dict)
    randoms: dict[str, Callable[[str], tuple[int, Callable[[list[int]], list[str]]]]] = dataclasses.field(
        default_factory=dict
    )
    group: int = 1


FORMATS = {
    "mds": Format(write_mds, "text", {"mosaicml-streaming": scan_mds}, {"mosaicml-streaming": random_mds}),
    "webdataset": Format(write_webdataset, "txt", {"webdataset": scan_webdataset}),
    "arrow": Format(
        write_arrow,
        "text",
        {"datasets": scan_arrow, "datasets, batches": scan_arrow_batches},
        {"datasets": random_arrow},
    ),
    "jsonl": Format(write_jsonl, "text", {"datasets": streamed("json", ".jsonl")}),
    "csv": Format(write_csv, "text", {"datasets": streamed("csv", ".csv"), "pyarrow, arrays": arrays_of_csv}),
    "parquet": Format(
        write_parquet,
        "text",
        {
            "pyarrow, arrays": arrays_of_parquet,
            "pyarrow, str": scan_parquet,
            "datasets": streamed("parquet", ".parquet"),
        },
        {"pyarrow": random_parquet},
        64,
    ),
    "litdata": Format(write_litdata, "text", {"litdata": scan_litdata}, {"litdata": random_litdata}),
    "arrayrecord": Format(
        write_arrayrecord, "text", {"grain": scan_grain, "array_record": scan_arrayrecord}, {"grain": random_grain}
    ),
    "tfrecord": Format(write_tfrecord, "text", {"tfrecord": scan_tfrecord}),
}


def write(a: argparse.Namespace) -> None:
    folder = pathlib.Path(a.folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    FORMATS[a.format].write(str(folder), texts(a.megabytes))


def strings(some: object) -> list[str]:
    return [some] if isinstance(some, str) else some.to_pylist()


def read(a: argparse.Namespace) -> None:
    crc, lengths, scans = 0, [], FORMATS[a.format].scans
    scan = (scans.get(a.peer) or next(iter(scans.values())))(a.folder)
    for some in scan():
        for text in strings(some):
            raw = text.encode()
            crc = zlib.crc32(raw, crc)
            lengths.append(len(raw))
    out = {"documents": len(lengths), "crc": crc} | (at_random if a.random else in_order)(a, scan, lengths)
    print(json.dumps(out), flush=True)
    os._exit(0)  # peers leave threads that do not end by themselves


def in_order(a: argparse.Namespace, scan: Callable[[], Iterator[object]], lengths: list[int]) -> dict[str, float]:
    passes, cpu, start = 0, time.process_time(), time.perf_counter()
    while time.perf_counter() - start < a.seconds:
        for _ in scan():
            pass
        passes += 1
    return figures(passes * len(lengths), passes * sum(lengths), cpu, start)


def at_random(a: argparse.Namespace, _: Callable[[], Iterator[object]], lengths: list[int]) -> dict[str, float]:
    format_ = FORMATS[a.format]
    count, get = format_.randoms[a.peer](a.folder)
    if count != len(lengths):
        raise SystemExit(f"{a.peer} counts {count} documents, but reads {len(lengths)}")
    order = random.Random(1).sample(range(count), count)
    groups = [sorted(order[i : i + format_.group]) for i in range(0, count, format_.group)]
    records, size, at, cpu, start = 0, 0, 0, time.process_time(), time.perf_counter()
    while time.perf_counter() - start < a.seconds:
        for _ in range(8):
            some = groups[at % len(groups)]
            at += 1
            if len(get(some)) != len(some):
                raise SystemExit(f"{a.peer} did not return {some}")
            records += len(some)
            size += sum(map(lengths.__getitem__, some))
    return figures(records, size, cpu, start)


def figures(records: int, size: int, cpu: float, start: float) -> dict[str, float]:
    return {
        "records": records,
        "bytes": size,
        "cpu_seconds": time.process_time() - cpu,
        "wall_seconds": time.perf_counter() - start,
    }


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = p.add_subparsers(dest="task", required=True)
    w = tasks.add_parser("write")
    w.add_argument("format", choices=FORMATS)
    w.add_argument("folder")
    w.add_argument("--megabytes", type=int, default=64)
    r = tasks.add_parser("read")
    r.add_argument("format", choices=FORMATS)
    r.add_argument("peer")
    r.add_argument("folder")
    r.add_argument("--random", action="store_true")
    r.add_argument("--seconds", type=float, default=3)
    a = p.parse_args()
    {"write": write, "read": read}[a.task](a)


if __name__ == "__main__":
    main()
