"""Measures a restart after SIGKILL of everything: Millrace beside other loaders.

    python bench/resume.py --millrace ./millrace [--peers millrace,torchdata,streaming,ray]
                           [--documents 20000] [--rounds 3]

Every loader reads the same documents in shuffled order with two readers, in batches of 32. The trainer records the ids
of each consumed batch. It saves the loader's state after every tenth batch, as with a model checkpoint. After some
batches, the trainer and all its processes get SIGKILL. Then the same command runs again with the last saved state.

The table counts the documents that are *lost* and *repeated* over the whole epoch. Documents consumed after the saved
state do not count, because the model checkpoint does not include them. Times begin with the start of the new process
and end with its first batch. `imports` is the part that Python's imports take. A peer that cannot be imported is named
and left out.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

ROOT = Path(__file__).resolve().parent.parent
BATCH = 32
SAVE_EVERY = 10
SAVED = "saved.json"


# --- the data


def write_documents(path: Path, count: int) -> None:
    """Writes documents of 20 to 200 words. Each begins with its number."""
    rng = random.Random(1)
    words = [f"w{i}" for i in range(500)]
    with path.open("w") as f:
        for i in range(count):
            f.write(json.dumps({"text": f"{i} " + " ".join(rng.choices(words, k=rng.randint(20, 200)))}) + "\n")


def write_mds(source: Path, out: Path) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(out), columns={"text": "str"}, size_limit=1 << 20) as w:
        for line in source.open():
            w.write(json.loads(line))


# --- the trainers: each yields (ids of a batch, a function that returns the state after it)

Batches = Iterator[Tuple[List[int], Callable[[], Any]]]


def number(text: str) -> int:
    return int(text.split(" ", 1)[0])


def torchdata(data: Path, state: Any) -> Batches:
    from torch.utils.data import Dataset
    from torchdata.stateful_dataloader import StatefulDataLoader
    from torchdata.stateful_dataloader.sampler import RandomSampler
    import torch

    class Documents(Dataset):
        def __init__(self) -> None:
            self.lines = (data / "docs.jsonl").read_text().splitlines()

        def __len__(self) -> int:
            return len(self.lines)

        def __getitem__(self, i: int) -> str:
            return json.loads(self.lines[i])["text"]

    documents = Documents()
    sampler = RandomSampler(documents, generator=torch.Generator().manual_seed(1))
    loader = StatefulDataLoader(documents, batch_size=BATCH, num_workers=2, sampler=sampler, collate_fn=list)
    if state is not None:
        import base64
        import pickle

        loader.load_state_dict(pickle.loads(base64.b64decode(state)))

    def save() -> Any:
        import base64
        import pickle

        return base64.b64encode(pickle.dumps(loader.state_dict())).decode()

    for batch in loader:
        yield [number(t) for t in batch], save


def streaming(data: Path, state: Any) -> Batches:
    from streaming import StreamingDataLoader, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()  # required after a kill
    dataset = StreamingDataset(local=str(data / "mds"), shuffle=True, shuffle_seed=1, batch_size=BATCH)
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=2)
    if state is not None:
        loader.load_state_dict(state)
    for batch in loader:
        yield [number(t) for t in batch["text"]], loader.state_dict


def ray(data: Path, state: Any) -> Batches:
    import ray

    ray.init(
        num_cpus=2, include_dashboard=False, logging_level="ERROR", object_store_memory=200 << 20, log_to_driver=False
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    documents = ray.data.read_json(str(data / "docs.jsonl")).random_shuffle(seed=1)
    # Ray Data has no state inside an epoch: a restarted trainer begins the epoch again.
    for batch in documents.iter_batches(batch_size=BATCH, batch_format="numpy"):
        yield [number(t) for t in batch["text"]], lambda: None


def millrace(data: Path, state: Any) -> Batches:
    sys.path.insert(0, str(ROOT / "clients" / "python" / "src"))
    import millrace

    run = data / "run"
    up = subprocess.Popen(
        [os.environ["MILLRACE"], "up", str(data / "mixture.yaml"), "--ranks", "1", "--run-dir", str(run)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert up.stdout is not None and up.stdout.readline().startswith("ready")
    loader = millrace.connect(str(run / "rank-0.sock"), tensors="numpy", start=None if state is not None else "fresh")
    if state is not None:
        loader.load_state_dict(state)
    for batch in loader:
        # A document counts at its first segment.
        yield [int(s.id.rsplit("#", 1)[1]) for s in batch.segments if s.offset == 0], loader.state_dict
    loader.close()
    up.wait()


PEERS: Dict[str, Callable[[Path, Any], Batches]] = {
    "millrace": millrace,
    "torchdata": torchdata,
    "streaming": streaming,
    "ray": ray,
}
NEEDS = {"millrace": "numpy", "torchdata": "torchdata.stateful_dataloader", "streaming": "streaming", "ray": "ray.data"}


def trainer(peer: str, data: Path, log: Path) -> None:
    """The child process: resumes from the saved state and syncs a line for each batch before the next."""
    begun = time.time()
    __import__(NEEDS[peer])
    imports = time.time() - begun
    saved = data / SAVED
    state, done = None, 0
    if saved.exists():
        kept = json.loads(saved.read_text())
        state, done = kept["state"], kept["batches"]
    with log.open("a") as f:
        f.write(json.dumps({"start": done, "imports": imports}) + "\n")
        f.flush()
        for ids, state_of in PEERS[peer](data, state):
            done += 1
            f.write(json.dumps({"batch": done, "ids": ids, "at": time.time()}) + "\n")
            f.flush()
            if done % SAVE_EVERY == 0:
                tmp = data / "saved.tmp"
                tmp.write_text(json.dumps({"state": state_of(), "batches": done}))
                tmp.rename(saved)
        f.write(json.dumps({"end": done}) + "\n")


# --- the driver


def spawn(peer: str, data: Path, log: Path) -> Tuple[subprocess.Popen, float]:
    begun = time.time()
    args = [sys.executable, __file__, "--trainer", peer, "--data", str(data), "--log", str(log)]
    with (data / "stderr").open("a") as err:
        return subprocess.Popen(args, start_new_session=True, stdout=subprocess.DEVNULL, stderr=err), begun


def lines(log: Path) -> List[Dict[str, Any]]:
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


def until(
    log: Path, process: subprocess.Popen, ready: Callable[[List[Dict[str, Any]]], bool], patience: float = 180
) -> List[Dict[str, Any]]:
    deadline = time.time() + patience
    while time.time() < deadline:
        seen = lines(log)
        if ready(seen):
            return seen
        if process.poll() is not None and not ready(lines(log)):
            raise RuntimeError(
                f"the trainer ended with {process.returncode}: {(log.parent / 'stderr').read_text()[-800:]}"
            )
        time.sleep(0.005)
    raise RuntimeError("no batch came")


def kill_all(process: subprocess.Popen, mark: str) -> None:
    """Kills the trainer's session, and readers and daemons in other sessions, which have the mark in their
    environment."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes() and int(entry.name) != os.getpid():
                    os.kill(int(entry.name), signal.SIGKILL)
            except (OSError, PermissionError):
                pass
    process.wait()


def measure(peer: str, documents: Path, count: int, kill_after: int) -> Dict[str, float]:
    with tempfile.TemporaryDirectory() as d:
        data = Path(d)
        (data / "docs.jsonl").symlink_to(documents)
        if peer == "streaming":
            write_mds(documents, data / "mds")
        if peer == "millrace":
            (data / "mixture.yaml").write_text(
                "version: 1\nseed: 1\ntokenizer: {name: gpt2}\n"
                "sequence_length: 1024\nglobal_batch_size: 8\nmicro_batch_size: 8\n"
                "stop: {epochs: 1}\nmixture: {weights: {docs: 1}}\nsources: {docs: {format: jsonl, path: docs.jsonl}}\n"
            )
        mark = f"MILLRACE_BENCH_MARK={d}"
        os.environ["MILLRACE_BENCH_MARK"] = d
        log = data / "log"
        process, _ = spawn(peer, data, log)
        until(log, process, lambda seen: len(seen) > kill_after)
        kill_all(process, mark)
        before = len(lines(log))
        process, begun = spawn(peer, data, log)
        seen = until(log, process, lambda seen: len(seen) > before + 1)
        first = seen[before + 1]["at"] - begun
        imports = seen[before]["imports"]
        seen = until(log, process, lambda seen: "end" in seen[-1])
        process.wait()
        kill_all(process, mark)
    return {"first": first, "imports": imports, **compare(seen, before, count)}


def compare(seen: List[Dict[str, Any]], before: int, count: int) -> Dict[str, float]:
    """Compares the documents with the effective history: batches up to the restored state, then the second life."""
    start = seen[before]["start"]
    history = [s["ids"] for s in seen[:before] if "ids" in s and s["batch"] <= start] + [
        s["ids"] for s in seen[before:] if "ids" in s
    ]
    times = collections.Counter(i for ids in history for i in ids)
    return {"lost": sum(1 for i in range(count) if i not in times), "repeated": sum(n - 1 for n in times.values())}


def importable(peer: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {NEEDS[peer]}"], capture_output=True).returncode == 0


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--millrace", default=str(ROOT / "millrace"))
    p.add_argument("--peers", default=",".join(PEERS))
    p.add_argument("--documents", type=int, default=20_000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--trainer")
    p.add_argument("--data", type=Path)
    p.add_argument("--log", type=Path)
    a = p.parse_args()
    if a.trainer:
        trainer(a.trainer, a.data, a.log)
        return
    os.environ["MILLRACE"] = str(Path(a.millrace).resolve())
    results: Dict[str, List[Dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as d:
        documents = Path(d) / "docs.jsonl"
        write_documents(documents, a.documents)
        for turn in range(a.rounds):  # in turns, so that a busy minute affects all
            for peer in a.peers.split(","):
                if peer != "millrace" and not importable(peer):
                    print(f"{peer}: not importable, left out", file=sys.stderr)
                    continue
                results.setdefault(peer, []).append(measure(peer, documents, a.documents, 57 + 7 * turn))
                print(f"{peer} {results[peer][-1]}", file=sys.stderr)
    print(
        f"\n| after SIGKILL of everything, {a.documents} documents | first batch, s | imports, s | lost "
        "| repeated |\n|---|---|---|---|---|"
    )
    for peer, rows in results.items():

        def middle(key: str) -> float:
            return statistics.median(r[key] for r in rows)

        def every(key: str) -> str:
            return " ".join(str(int(r[key])) for r in rows)

        print(
            f"| {peer} | {middle('first'):.2f} | {middle('imports'):.2f} | {every('lost')} | {every('repeated')} |"
        )


if __name__ == "__main__":
    main()
