"""Measures a restart after SIGKILL of everything, to the first batch, and the time of `state_dict()`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, List

from rig import Up, percentile, table, write_documents, write_mixture

import millrace  # rig adds it to sys.path

SOURCES = (1, 64, 1000)


def mixture(work: Path, count: int, shadows: int = 0) -> Path:
    folder = work / f"sources-{count}"
    folder.mkdir(exist_ok=True)
    documents = write_documents(work / "docs.jsonl", 40)
    lines = None
    sources: Dict[str, Any] = {}
    for i in range(count):
        path = folder / f"part-{i:04}.jsonl"
        if not path.exists():
            lines = lines or documents.read_text().splitlines(keepends=True)
            per = max(len(lines) // count, 30)
            path.write_text("".join(lines[(i * per) % len(lines) :][:per]))
        sources[f"s{i:04}"] = {"path": str(path)}
    return write_mixture(work, f"sources-{count}-{shadows}", sources, shadows)


def first_batch(a: Any, mixture: Path, work: Path, name: str, steps: int, start: str) -> Dict[str, Any]:
    """Measures two times: from the start of `up` to the first batch, and of `state_dict()` after each step. Then kills
    everything."""
    began = time.perf_counter()
    with Up(a.millrace, mixture, work / name, fresh=start == "fresh") as up:
        ready = time.perf_counter() - began
        loader = millrace.connect(str(up.run / "rank-0.sock"), tensors="numpy", start=start)
        batches = iter(loader)
        next(batches)
        first = time.perf_counter() - began
        states: List[float] = []
        for _ in range(steps):
            next(batches)
            asked = time.perf_counter()
            loader.state_dict()
            states.append(1e6 * (time.perf_counter() - asked))
        up.kill()
        loader.close()
    return {"ready": 1e3 * ready, "first": 1e3 * first, "states": states}


def restart(a: Any, work: Path) -> None:
    rows, costs = [], []
    for count in SOURCES:
        mix = mixture(work, count)
        fresh = first_batch(a, mix, work, "restart", 20, "fresh")
        again = [first_batch(a, mix, work, "restart", 20, "latest") for _ in range(a.restarts)]
        firsts, states = [r["first"] for r in again], [s for r in again for s in r["states"]]
        rows.append(
            [
                f"{count:,}",
                f"{fresh['first']:.0f}",
                f"{percentile([r['ready'] for r in again], 50):.0f}",
                f"{percentile(firsts, 50):.0f}",
                f"{max(firsts):.0f}",
                len(again),
            ]
        )
        costs.append([f"{count:,}", f"{percentile(states, 50):.0f}", f"{percentile(states, 99):.0f}", len(states)])
    table(
        "SIGKILL of `up` and every role, then `up` again, to the trainer's first batch, milliseconds; "
        "indexed sources on the local disk",
        ["sources", "the very first start", "ready p50", "first batch p50", "worst", "restarts"],
        rows,
    )
    table("`state_dict()` after each step, microseconds", ["sources", "p50", "p99", "calls"], costs)
