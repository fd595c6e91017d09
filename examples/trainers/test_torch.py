"""The examples for bare PyTorch and its ecosystem. Each is killed and resumes on other numbers of ranks."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List

import pytest

from ordeal import LIVES, SHORT, STEPS, Ordeal

SCRIPTS = {
    "train_ddp.py": LIVES,
    "train_fsdp2.py": LIVES,
    "train_dcp.py": SHORT,
    "train_dataloader.py": SHORT,
    "train_stateful.py": SHORT,
    "train_torchtitan.py": SHORT,
}
NEEDS = {"train_torchtitan.py": "torchtitan"}


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_microbatch_is_trained_once(ordeal: Callable[..., Ordeal], losses: List[float], script: str) -> None:
    pytest.importorskip(NEEDS.get(script, "torch"), exc_type=ImportError)
    trained = ordeal(script).run(SCRIPTS[script])
    trained.judge(losses)
    if script == "train_ddp.py":
        judge_notices(trained, losses)


def judge_notices(trained: Ordeal, losses: List[float]) -> None:
    """Checks that the judge finds each mistake that is put into the records of the last life."""
    life = len(trained.lives) - 1
    path = trained.out / "records" / f"{life}-0.jsonl"
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    mistakes: Dict[str, List[str]] = {
        "planned": lines[:-1],  # the last microbatch is lost
        "trained (rank, microbatch)": [*lines, lines[-1]],  # it is trained twice
        "trained twice in a step": [*lines[:-1], changed(last, segments=last["segments"] + last["segments"][:1])],
        "other content": [*lines[:-1], changed(last, segments=first["segments"])],
        "without interruption": [*lines[:-1], changed(last, loss=last["loss"] * 1.001)],
    }
    for message, records in mistakes.items():
        path.write_text("".join(records))
        refused(trained, losses, message)
    path.write_text(whole)
    for rank in range(trained.lives[-1].ranks):  # the last life begins at the last step
        of_rank = trained.out / "records" / f"{life}-{rank}.jsonl"
        of_rank.write_text("".join(json.dumps(r) + "\n" for r in trained.records(life, rank) if r["step"] == STEPS - 1))
    refused(trained, losses, "steps before it are lost")


def refused(trained: Ordeal, losses: List[float], message: str) -> None:
    with pytest.raises(AssertionError) as found:
        trained.judge(losses)
    assert message in str(found.value), f"expected {message!r}: {found.value}"


def changed(record: Dict[str, Any], **values: Any) -> str:
    return json.dumps({**record, **values}) + "\n"
