"""The programs and abilities that some tests need and a machine may lack: those of internal/needs/needs.txt.

A test names its needs by `@pytest.mark.needs(…)`. It skips if one of them is missing. While it runs, its PATH has no
optional program that it does not name, so a need that nobody named is noticed on every machine.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import subprocess
from pathlib import Path
from typing import Callable, Dict, Iterable, Optional, Set

ROOT = Path(__file__).resolve().parent.parent
PATH = os.environ["PATH"]  # that of the machine; running tests have less
HIDDEN = "MILLRACE_WITHOUT"  # lists needs that tests must take for missing

_named: Optional[Set[str]] = None  # the needs that the running test names; None outside of tests


@dataclasses.dataclass(frozen=True)
class Need:
    name: str
    cure: str  # how to get it
    probe: str  # a command of bash that succeeds if it is there

    @property
    def program(self) -> Optional[str]:
        """The name of the program, if the need is one."""
        found = re.fullmatch(r"command -v (\S+)", self.probe)
        return found[1] if found else None

    def reason(self) -> str:
        return f"needs {self.name}: {self.cure}"


@functools.lru_cache(maxsize=None)
def table() -> Dict[str, Need]:
    text = (ROOT / "internal/needs/needs.txt").read_text()
    rows = re.findall(r"^([^#\s][^:\n]*): (.+)\n\t(.+)$", text, re.MULTILINE)
    return {name: Need(name, cure, probe) for name, cure, probe in rows}


@functools.lru_cache(maxsize=None)
def _is_here(name: str) -> bool:
    return subprocess.run(["bash", "-c", table()[name].probe], cwd=ROOT, env={**os.environ, "PATH": PATH},
                          stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def missing(names: Iterable[str]) -> Optional[str]:
    """Returns why a test that needs these must skip."""
    hidden = os.environ.get(HIDDEN, "").split()
    for name in names:
        if name in hidden or not _is_here(name):
            return table()[name].reason()
    return None


def use(*names: str) -> None:
    """Says that the caller uses these. In a test that does not name them, and if one is missing, this is an error."""
    forgotten = set(names) - (set(names) if _named is None else _named)
    assert not forgotten, f"this test needs {sorted(forgotten)}: name them by @pytest.mark.needs"
    lacks = missing(names)
    if lacks is not None:
        raise RuntimeError(lacks)


class Paths:
    """Values of PATH that lack optional programs."""

    def __init__(self, scratch: Path, path: str) -> None:
        self.scratch, self._path = scratch, path
        self._optional = {n.program for n in table().values() if n.program}
        self._common: Optional[Path] = None

    def with_only(self, names: Iterable[str]) -> str:
        """Returns a PATH with those optional programs alone that `names` has."""
        if self._common is None:
            self._common = self.scratch / "programs"
            self._fill(self._common, lambda program: program not in self._optional)
        parts = [self._common]
        for program in sorted(self._optional & set(names)):
            one = self.scratch / f"with-{program}"
            if not one.exists():
                self._fill(one, program.__eq__)
            parts.append(one)
        return os.pathsep.join(map(str, parts))

    def _fill(self, at: Path, wanted: Callable[[str], bool]) -> None:
        at.mkdir()
        for folder in self._path.split(os.pathsep):
            for program in os.listdir(folder) if os.path.isdir(folder) else []:
                if wanted(program) and not os.path.lexists(at / program):
                    (at / program).symlink_to(Path(folder, program))


def enter(names: Iterable[str]) -> None:
    """Begins a test that names these needs."""
    global _named
    _named = set(names)


def leave() -> None:
    """Ends the test."""
    global _named
    _named = None
