"""`check` and `status` report the differences between the mixture file and the way in which a run reads."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any

import corpus
import zstandard
from conftest import variant
from harness import LOOK, SOON, Run, command, write_mixture

TEXTS = corpus.synthetic_texts(7, 60, 30)


def one_source(path: Any, **change: Any) -> Any:
    return variant(
        {"sources": {"s": {"path": path}}, "mixture": {"weights": {"s": 1}}, "global_batch_size": 2, **change}
    )


def test_check_lists_skipped_files(stage: Any, tmp_path: Path) -> None:
    """A directory as path leaves out files. `check` lists each with the reason and counts the others."""
    corpus.write_jsonl(tmp_path / "d" / "a.jsonl", TEXTS, odd=False)
    for name in ("README.md", "dataset_info.json", "a.jsonl.tmp", ".hidden.jsonl"):
        (tmp_path / "d" / name).write_text('{"description": "no data"}\n')
    path = write_mixture(tmp_path, one_source("d"))
    (source,) = json.loads(command(stage.binary, "check", str(path), "--json"))["sources"]
    assert (source["files"], source["records"]) == (1, len(TEXTS))
    skipped = {Path(s["path"]).name: s["why"] for s in source["skipped"]}
    assert set(skipped) >= {"README.md", "dataset_info.json", "a.jsonl.tmp"}
    assert all(skipped.values()), "a file is skipped without a reason"


def test_status_says_how_a_source_is_shuffled(stage: Any, tmp_path: Path) -> None:
    """Files that can only be streamed are shuffled in blocks, unless the mixture file asks for global order."""
    corpus.write_jsonl(tmp_path / "lines.jsonl", TEXTS, odd=False)
    corpus.write_jsonl(tmp_path / "stream.jsonl.gz", TEXTS, odd=False)
    sources = {"lines": {"path": "lines.jsonl"}, "stream": {"path": "stream.jsonl.gz"}}
    mixture = variant({"sources": sources, "mixture": {"weights": {"lines": 1, "stream": 1}}, "global_batch_size": 2})
    directory = stage.new_dir()
    with Run(stage.binary, write_mixture(tmp_path, mixture), directory, 1) as run:
        run.train(leave_after=(0, 0))
        until = time.monotonic() + SOON
        while True:
            reported = json.loads(command(stage.binary, "status", str(directory), "--json"))["sources"]
            if reported["stream"]["why"] or time.monotonic() > until:
                break
            time.sleep(LOOK)
    assert (reported["lines"]["shuffle"], reported["lines"]["why"]) == ("global", "")
    assert reported["stream"]["shuffle"] == "blocks" and "stream.jsonl.gz" in reported["stream"]["why"], reported[
        "stream"
    ]


def test_packed_files_in_global_order(stage: Any, tmp_path: Path) -> None:
    """With `shuffle: global`, packed files give the batches that files of the same names give that are not packed."""
    pack = {"gz": gzip.compress, "zst": zstandard.compress, "bz2": bz2.compress, "xz": lzma.compress}
    texts = corpus.synthetic_texts(7, 240, 30)
    mixtures = {}
    for kind in ("packed", "plain"):
        (tmp_path / kind / "d").mkdir(parents=True)
        for n, (ending, packed) in enumerate(pack.items()):
            lines = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts[60 * n : 60 * n + 60])
            (tmp_path / kind / "d" / f"{n}.jsonl.{ending}").write_bytes(packed(lines) if kind == "packed" else lines)
        mixture = one_source("d/*", shuffle="global", index_dir="index")
        mixtures[kind] = write_mixture(tmp_path / kind, mixture)
    directory = stage.new_dir()
    with Run(stage.binary, mixtures["packed"], directory, 1) as run:
        delivered = run.train()
    (source,) = json.loads(command(stage.binary, "check", str(mixtures["packed"]), "--json"))["sources"]
    assert source["shuffle"] == "global" and not source.get("why"), source
    copies = list((tmp_path / "packed" / "index" / "copies").iterdir())
    assert len(copies) == len(pack) - 1  # A zstd frame of this size is read at random as it lies.
    steps = f"0..{max(delivered.steps()) + 1}"
    plans = command(stage.binary, "plan", str(mixtures["plain"]), "--ranks", 1, "--steps", steps, "--json")
    want = {plan["step"]: plan["content_digest"] for plan in map(json.loads, plans.splitlines())}
    assert delivered.content() == want and len(want) > 3


def test_status_and_metrics_have_the_token_cache(stage: Any, tmp_path: Path) -> None:
    """A run over several passes reads more and more from its token cache. `status` and the metrics count that."""
    corpus.write_jsonl(tmp_path / "lines.jsonl", TEXTS, odd=False)
    cached = one_source(
        "lines.jsonl", cache={"tokens": "1MiB", "dir": str(tmp_path / "tokens")}, stop={"steps": 10**6}
    )
    directory = stage.new_dir()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with Run(stage.binary, write_mixture(tmp_path, cached), directory, 1, args=["--metrics", address]) as run:
        run.start(pause=0.01)
        until = time.monotonic() + SOON
        while True:
            found = json.loads(command(stage.binary, "status", str(directory), "--json"))["cache"]
            entries = sum(path.stat().st_size for path in (tmp_path / "tokens").glob("*.tokens"))
            counted = found and found["hits"] and found["filled"] and not found["waiting"]
            if counted and found["bytes_held"] == entries > 0 or time.monotonic() > until:
                break
            time.sleep(LOOK)
        assert found["filled"] == 1, found  # by a loader or its shadow
        assert (found["waiting"], found["evicted"], found["troubles"]) == (0, 0, []), found
        assert found["hits"] and found["misses"] and found["bytes_held"] == entries > 0, found
        assert found["bytes_limit"] == 1 << 20, found
        assert "token cache: " in command(stage.binary, "status", str(directory))
        scraped = urllib.request.urlopen(f"http://{address}/metrics").read().decode()
        for line in ("# HELP millrace_cache_hits_total ", 'millrace_cache_filled_total{loader="loader-0"} '):
            assert line in scraped, scraped
