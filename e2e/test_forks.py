"""Trainers are forked from a process that has loaded the client, so that a test with many trainers is quick."""

from __future__ import annotations

import sys
from typing import Any

from forks import processes


def loaded(pipe: Any) -> None:
    pipe.send({"millrace", "numpy", "trainer", "stub"} & set(sys.modules))


def test_a_trainer_begins_with_the_client_loaded() -> None:
    ours, theirs = processes().Pipe(duplex=False)
    child = processes().Process(target=loaded, args=(theirs,))
    child.start()
    assert ours.recv() == {"millrace", "numpy", "trainer", "stub"}
    child.join()
