"""The short form of the endurance run (`make endurance`)."""

from __future__ import annotations

from pathlib import Path

from endurance import STEP, Ordeal


SOURCES = 60


def test_trains_without_replacing_a_role(binary: Path, tmp_path: Path) -> None:
    course = Ordeal(binary, tmp_path, minutes=0.3, sources=SOURCES, pause=0.02).measure()
    print(f"\n{course.table()}")
    assert not course.wrong, "\n".join(course.wrong)
    assert course.figures[STEP][-1] > 60
    # The file of each source may be open or closed in either quarter. A descriptor lost with every other step exceeds
    # that.
    most = max(course.quarter("descriptors", q) for q in range(3))
    assert course.quarter("descriptors", 3) <= most + SOURCES, course.table()
    assert course.quarter("threads", 3) <= course.quarter("threads", 1) + 8, course.table()
