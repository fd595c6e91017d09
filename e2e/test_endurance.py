"""The short form of the endurance run (`make endurance`)."""

from __future__ import annotations

from pathlib import Path

from endurance import STEP, Ordeal


def test_trains_without_replacing_a_role(binary: Path, tmp_path: Path) -> None:
    course = Ordeal(binary, tmp_path, minutes=0.4, sources=60, pause=0.02).measure()
    print(f"\n{course.table()}")
    assert not course.wrong, "\n".join(course.wrong)
    assert course.figures[STEP][-1] > 60
    # The first reads of a source open its files: on a busy machine that takes half of this short course. Later, some
    # close for a while.
    most = max(course.quarter("descriptors", q) for q in range(3))
    assert course.quarter("descriptors", 3) <= most + 8, course.table()
    assert course.quarter("threads", 3) <= course.quarter("threads", 1) + 8, course.table()
