"""The short campaign: real faults against real processes. No batch is lost, doubled, out of order or different."""

from __future__ import annotations

from pathlib import Path

import chaos

FAULTS, SEED, BESIDE = 20, 1, 3


def test_faults(binary: Path, tmp_path: Path) -> None:
    score, after = chaos.campaign(chaos.Stage(binary, tmp_path), FAULTS, SEED, BESIDE, keep=False)
    print(f"\n{score.table()}\n{score.total()} faults in {score.runs} runs, seeds {SEED} to {after - 1}")
    assert not score.failed, "\n".join(f"seed {o.seed}: " + "\n".join(o.wrong) for o in score.failed)
    assert score.total() >= FAULTS
