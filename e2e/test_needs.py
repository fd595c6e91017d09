"""A machine may lack each program and each ability that tests need. Those tests skip then, and no other one fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest

import needs
from conftest import named

GO_ALONE = {"MILLRACE_AZURITE", "MILLRACE_GCS_SERVER", "MILLRACE_K8S", "MILLRACE_E2E_PYTHON", "MILLRACE_RANKS",
            "MILLRACE_RAY", "MILLRACE_TOKENIZERS", "two-processors", "git-checkout"}  # needs of Go tests and of test.sh


def of_tests(request: pytest.FixtureRequest) -> Dict[str, List[str]]:
    """The names of the tests of each need."""
    out: Dict[str, List[str]] = {}
    for item in request.session.items:
        for name in named(item):
            out.setdefault(name, []).append(item.nodeid)
    return out


def test_tests_name_needs_of_the_table(request: pytest.FixtureRequest) -> None:
    assert set(of_tests(request)) <= set(needs.table())


@pytest.mark.parametrize("name", needs.table())
def test_a_hidden_need_is_the_reason(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A test that needs it skips, and the reason names it. A test that needs another one does not skip for it."""
    monkeypatch.setenv(needs.HIDDEN, name)
    assert needs.missing([name]) == f"needs {name}: {needs.table()[name].cure}"
    assert needs.missing([]) is None
    with pytest.raises(AssertionError, match=f"this test needs .*{re.escape(name)}"):
        needs.use(name)


@pytest.mark.parametrize("name", [n.program for n in needs.table().values() if n.program])
def test_a_program_is_found_although_an_earlier_test_did_not_name_it(name: str) -> None:
    """This test does not name the program either. A process of pytest may have asked for it in any test."""
    needs._is_here.cache_clear()
    assert shutil.which(name) is None
    assert (needs.missing([name]) is None) == (shutil.which(name, path=needs.PATH) is not None)


@pytest.mark.parametrize("name", [n.program for n in needs.table().values() if n.program])
def test_a_program_is_hidden_from_tests_that_do_not_name_it(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in (name, "other"):
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)
    paths = needs.Paths(tmp_path, str(folder))

    def found(*names: str) -> List[str]:
        return sorted(p for part in paths.with_only(names).split(os.pathsep) for p in os.listdir(part))

    assert found() == ["other"] and found(name) == sorted(["other", name])


def test_without_any_need_tests_skip_by_name(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """All needs are hidden at once. Each test that names one skips, and `make test` accepts each reason."""
    expected = [node for nodes in of_tests(request).values() for node in nodes]
    if len(request.session.items) < 200:
        expected = []  # some tests were selected, so the inner run collects more
    junit = tmp_path / "junit.xml"
    env = {**os.environ, needs.HIDDEN: " ".join(needs.table())}
    inner = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long",
             "--only-needing", f"--junitxml={junit}", str(Path(__file__).parent)]
    ran = subprocess.run(inner, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:]
    skipped, others = re.search(r"(\d+) skipped", ran.stdout), re.search(r"(passed|failed|error)", ran.stdout)
    assert skipped and not others, ran.stdout[-3000:]
    assert int(skipped[1]) >= len(set(expected)), ran.stdout[-3000:]
    report = ["go", "run", "./verify/testreport", f"pytest:e2e=cp {junit} $JUNIT"]
    judged = subprocess.run(report, cwd=needs.ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout[-3000:] + judged.stderr


def test_every_need_has_a_test(request: pytest.FixtureRequest) -> None:
    if len(request.session.items) >= 200:
        assert set(needs.table()) - GO_ALONE <= set(of_tests(request)), "internal/needs/needs.txt has too many"
