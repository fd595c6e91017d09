"""One peer at its task, in the environment of the peers (bench/peers.sh). It prints its figures as one line of JSON.

    python bench/peers.py text torchdata.nodes --corpus DIR --ranks FILE --threads 2
    python bench/peers.py tokens grain --corpus DIR
    python bench/peers.py many DataLoader --corpus DIR
    python bench/peers.py files datasets --corpus DIR

All peers of `text` tokenise with tiktoken's encode_to_numpy, pack by concat-then-split in NumPy, and touch one element
of each row. `many` is the memory of a rank with two workers over all sources of a directory. `files` is the time to
open all files of a directory.
"""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterable, Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import numpy as np  # noqa: E402
from processes import family, pss_mib, window  # noqa: E402

ROWS, LENGTH = 8, 2048
NEED = ROWS * LENGTH + 1
GROUP = 32  # documents of one call of the tokenizer's thread


def encoding(ranks: str):
    """Returns tiktoken's gpt2 with the ranks of a file, without a download."""
    import tiktoken
    import tiktoken_ext.openai_public as public

    table = {base64.b64decode(t): int(r) for t, r in map(bytes.split, pathlib.Path(ranks).read_bytes().splitlines())}
    public.data_gym_to_mergeable_bpe_ranks = lambda *_, **__: table
    return tiktoken.Encoding(**public.gpt2())


class Encode:
    """Documents as JSON lines → their ids in one array. It can be pickled; each process makes its own encoding."""

    def __init__(self, ranks: str) -> None:
        self.ranks, self._encoding = ranks, None

    def __getstate__(self) -> dict[str, object]:
        return {"ranks": self.ranks, "_encoding": None}

    def __call__(self, group: Iterable[bytes]) -> np.ndarray:
        self._encoding = e = self._encoding or encoding(self.ranks)
        return np.concatenate(
            [np.append(e.encode_to_numpy(json.loads(raw)["text"], disallowed_special=()), e.eot_token) for raw in group]
        )


def lines(corpus: str) -> Iterator[bytes]:
    """Yields the JSON lines of all zstd shards for ever."""
    import zstandard

    while True:
        for shard in sorted(pathlib.Path(corpus).rglob("*.zst")):
            yield from zstandard.ZstdDecompressor().decompress(shard.read_bytes(), 1 << 30).splitlines()


def groups(corpus: str) -> Iterator[list[bytes]]:
    source = lines(corpus)
    while True:
        yield list(itertools.islice(source, GROUP))


def pack(encoded: Iterable[np.ndarray]) -> Iterator[dict[str, object]]:
    """Cuts a stream of ids into batches of torch tensors [8, 2048], with labels."""
    import torch

    rest = np.empty(0, np.uint32)
    for some in encoded:
        rest = np.concatenate([rest, some])
        while rest.size >= NEED:
            block, rest = rest[:NEED].astype(np.int64), rest[NEED - 1 :]
            yield {
                "tokens": torch.from_numpy(block[:-1].reshape(ROWS, LENGTH)),
                "labels": torch.from_numpy(block[1:].reshape(ROWS, LENGTH)),
            }


def torchdata_nodes(a: argparse.Namespace) -> Iterator[dict[str, object]]:
    from torchdata.nodes import IterableWrapper, Loader, ParallelMapper, Prefetcher

    mapped = ParallelMapper(
        IterableWrapper(groups(a.corpus)), Encode(a.ranks), a.threads, in_order=True, method="thread"
    )
    return iter(Loader(Prefetcher(IterableWrapper(pack(Loader(mapped))), 8)))


def spdl(a: argparse.Namespace) -> Iterator[dict[str, object]]:
    from spdl.pipeline import PipelineBuilder

    builder = PipelineBuilder().add_source(groups(a.corpus)).pipe(Encode(a.ranks), concurrency=a.threads)
    pipeline = builder.add_sink(4 * a.threads).build(num_threads=a.threads)
    with pipeline.auto_stop():
        yield from pack(pipeline)


def torch_loader(data: object, workers: int) -> Iterator[dict[str, object]]:
    import torch

    settings = {"batch_size": None, "num_workers": workers, "prefetch_factor": 32, "multiprocessing_context": "fork"}
    return iter(torch.utils.data.DataLoader(data, **settings))


def plain(a: argparse.Namespace) -> Iterator[dict[str, object]]:
    import torch

    class Documents(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[dict[str, object]]:
            return pack(map(Encode(a.ranks), groups(a.corpus)))

    return torch_loader(Documents(), a.threads)


def litdata(a: argparse.Namespace) -> Iterator[dict[str, object]]:
    import torch
    from litdata import StreamingDataset, optimize

    folder = pathlib.Path(a.corpus).parent / "litdata"
    if not (folder / "index.json").exists():
        optimize(
            fn=litdata_lines,
            inputs=sorted(map(str, pathlib.Path(a.corpus).rglob("*.zst"))),
            output_dir=str(folder),
            num_workers=1,
            chunk_bytes="16MB",
        )

    class Documents(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[dict[str, object]]:
            encode = Encode(a.ranks)
            data = StreamingDataset(str(folder))
            stream = map(bytes, itertools.chain.from_iterable(iter(data) for _ in itertools.count()))
            return pack(encode(itertools.islice(stream, GROUP)) for _ in itertools.count())

    return torch_loader(Documents(), a.threads)


def litdata_lines(path: str) -> Iterator[bytes]:
    import zstandard

    yield from zstandard.ZstdDecompressor().decompress(pathlib.Path(path).read_bytes(), 1 << 30).splitlines()


def grain_text(a: argparse.Namespace) -> Iterator[dict[str, object]]:
    import grain
    from array_record.python.array_record_module import ArrayRecordWriter

    path = pathlib.Path(a.corpus).parent / "documents.arrayrecord"
    if not path.exists():
        writer = ArrayRecordWriter(str(path), "group_size:1,zstd:3")
        for shard in sorted(pathlib.Path(a.corpus).rglob("*.zst")):
            for raw in litdata_lines(str(shard)):
                writer.write(raw)
        writer.close()
    encode = Encode(a.ranks)
    data = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(str(path))).shuffle(seed=1).repeat()
    ids = data.map(lambda raw: encode([raw])).to_iter_dataset(
        grain.ReadOptions(num_threads=a.threads, prefetch_buffer_size=64)
    )
    return pack(iter(ids))


def grain_tokens(a: argparse.Namespace) -> Iterator[dict[str, object]]:
    import grain
    import torch
    from array_record.python.array_record_module import ArrayRecordWriter

    path = pathlib.Path(a.corpus).parent / "rows.arrayrecord"
    if not path.exists():
        data = np.memmap(a.corpus, np.uint16, "r")
        writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
        for at in range(0, len(data) - LENGTH - 1, LENGTH):
            writer.write(data[at : at + LENGTH + 1].tobytes())
        writer.close()
    rows = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(str(path))).shuffle(seed=1).repeat()
    rows = rows.map(lambda raw: np.frombuffer(raw, np.uint16).astype(np.int64))
    batches = rows.to_iter_dataset(grain.ReadOptions(num_threads=4, prefetch_buffer_size=64)).batch(ROWS)
    for block in batches:
        yield {"tokens": torch.from_numpy(block[:, :-1]), "labels": torch.from_numpy(block[:, 1:])}


def get_batch(a: argparse.Namespace) -> Iterator[dict[str, object]]:
    """nanoGPT's batch maker: random offsets, one tensor a row, then a stack."""
    import torch

    data = np.memmap(a.corpus, np.uint16, "r")
    while True:
        at = torch.randint(len(data) - LENGTH - 1, (ROWS,))
        yield {
            "tokens": torch.stack([torch.from_numpy(data[i : i + LENGTH].astype(np.int64)) for i in at]),
            "labels": torch.stack([torch.from_numpy(data[i + 1 : i + 1 + LENGTH].astype(np.int64)) for i in at]),
        }


TEXT = {"torchdata.nodes": torchdata_nodes, "LitData": litdata, "SPDL": spdl, "Grain": grain_text, "DataLoader": plain}
TOKENS = {"Grain": grain_tokens, "nanoGPT's get_batch": get_batch}


def throughput(batches: Iterator[dict[str, object]], a: argparse.Namespace) -> dict[str, float]:
    def one() -> int:
        batch = next(batches)
        batch["tokens"][:, 0].sum()
        return batch["tokens"].numel()

    out = window(one, a.warm, a.seconds, lambda: family(os.getpid())[1:])
    return out | {"PSS MiB": pss_mib(family(os.getpid()))}


def many(a: argparse.Namespace) -> dict[str, float]:
    """A DataLoader with two workers, each of which holds all sources open and draws from them in turn."""
    import pyarrow.parquet
    import torch
    import zstandard

    def documents(folder: pathlib.Path) -> Iterator[str]:
        while True:
            for path in sorted(folder.iterdir()):
                if path.suffix == ".parquet":
                    for some in pyarrow.parquet.ParquetFile(path).iter_batches(64, columns=["text"]):
                        yield from some["text"].to_pylist()
                else:
                    with open(path, "rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as text:
                        for line in io.TextIOWrapper(text):
                            yield json.loads(line)["text"]

    class Sources(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[str]:
            streams = [documents(folder) for folder in sorted(pathlib.Path(a.corpus).iterdir()) if folder.is_dir()]
            for stream in streams:
                next(stream)  # opens the source
            for stream in itertools.cycle(streams):
                yield next(stream)

    began = time.perf_counter()
    batches = iter(torch.utils.data.DataLoader(Sources(), batch_size=8, num_workers=2))
    next(batches)
    ready = time.perf_counter() - began
    until, peak = time.perf_counter() + a.warm + a.seconds, 0.0
    while time.perf_counter() < until:
        for _ in range(50):
            next(batches)
        peak = max(peak, pss_mib(family(os.getpid())))
    return {"ready s": ready, "PSS MiB": peak}


def files(a: argparse.Namespace) -> dict[str, float]:
    """Opens every file of a directory as one streaming dataset, up to the first document."""
    began, cpu = time.perf_counter(), time.process_time()
    if a.peer == "datasets":
        import datasets

        began, cpu = time.perf_counter(), time.process_time()
        data = datasets.load_dataset("json", data_dir=a.corpus, streaming=True, split="train")
        next(iter(data))
    else:
        paths = sorted(str(p) for p in pathlib.Path(a.corpus).rglob("*.jsonl"))
        for path in paths:
            with open(path, "rb") as f:
                f.read()
    return {"s": time.perf_counter() - began, "CPU s": time.process_time() - cpu, "PSS MiB": pss_mib([os.getpid()])}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("task", choices=["text", "tokens", "many", "files"])
    p.add_argument("peer")
    p.add_argument("--corpus", required=True, help="directory, or the .bin of `tokens`")
    p.add_argument("--ranks", default="", help="file of gpt2's ranks")
    p.add_argument("--threads", type=int, default=2, help="threads or workers that tokenise")
    p.add_argument("--warm", type=float, default=8)
    p.add_argument("--seconds", type=float, default=8)
    a = p.parse_args()
    tasks = {"text": lambda: throughput(TEXT[a.peer](a), a), "tokens": lambda: throughput(TOKENS[a.peer](a), a)}
    print(json.dumps((tasks | {"many": lambda: many(a), "files": lambda: files(a)})[a.task]()), flush=True)
    os._exit(0)  # peers leave threads and workers that do not end by themselves


if __name__ == "__main__":
    main()
