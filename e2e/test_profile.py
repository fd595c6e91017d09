"""A profile of the sources decides which loaders read them, and never a batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

from conftest import variant
from harness import DEADLINE, Delivered, command, write_mixture
from test_failover import Watch

RANKS = 2
CHEAP = [f"cheap-{i}" for i in range(10)]


def mixture(directory: Path) -> Dict[str, Any]:
    """A source with most of the tokens, and ten with few."""
    for name in ["heavy", *CHEAP]:
        with open(directory / f"{name}.jsonl", "w") as f:
            for i in range(2000 if name == "heavy" else 200):
                words = " ".join(str((i * 7919 + k * 104729) % 99991) for k in range(100 if name == "heavy" else 10))
                f.write(json.dumps({"text": f"{name} {words}"}) + "\n")
    return variant({
        "loaders": 2, "global_batch_size": 64, "stop": {"steps": 30}, "reliability": {"shadows": 0},
        "tokenizer": {"name": "gpt2"}, "index_dir": str(directory / "index"),
        "sources": {name: {"path": str(directory / f"{name}.jsonl")} for name in ["heavy", *CHEAP]},
        "mixture": {"weights": {"heavy": 100, **{name: 0.1 for name in CHEAP}}},
    })


def readers(status: Dict[str, Any]) -> Dict[str, List[str]]:
    out: Dict[str, List[str]] = {}
    for stripe in status["stripes"]:
        out.setdefault(stripe["source"], []).append(stripe["loader"])
    return out


def test_a_profile_divides_a_heavy_source(stage: Any, tmp_path: Path) -> None:
    """Without a profile, one loader reads the heavy source. With it, both do, and the batches are the same."""
    file = mixture(tmp_path)

    def run(what: str) -> "tuple[Delivered, Dict[str, List[str]]]":
        with stage.up(file, RANKS) as up:
            watch = Watch(stage, up)
            (hold := tmp_path / what).touch()
            trainers = watch.start(pause=DEADLINE, hold=str(hold))
            found = watch.until(lambda s: readers(s) if len(s["stripes"]) >= len(CHEAP) + 1 else None, within=DEADLINE)
            hold.unlink()
            delivered = trainers.collect()
            assert delivered.ends == ["end"] * RANKS and up.wait(DEADLINE) == 0, up.stderr()
        return delivered, found

    plain, shared = run("without a profile")
    assert {len(loaders) for loaders in shared.values()} == {1}, shared
    at = write_mixture(tmp_path, file)
    told = json.loads(command(stage.binary, "index", str(at), "--profile", "--json"))
    stripes = {s["name"]: s["profile"]["stripes"] for s in told["sources"]}
    assert stripes == {"heavy": 2, **{name: 1 for name in CHEAP}}, told
    assert "stripes by the profile: heavy 2, each of 10 sources 1" in command(stage.binary, "check", str(at))

    profiled, shared = run("with a profile")
    assert {name: len(loaders) for name, loaders in shared.items()} == stripes
    assert sorted(shared["heavy"]) == ["loader-0", "loader-1"], shared
    assert profiled.bytes() == plain.bytes()
