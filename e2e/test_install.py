"""A wheel is all that a machine without Go needs. MILLRACE_WHEEL names a built wheel to test in place of a new one."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Mapping

import numpy
import pytest

ROOT = Path(__file__).resolve().parent.parent
BACKEND = ROOT / "clients/python/build_backend/millrace_build.py"

READ = """
import os, sys
sys.path = [p for p in sys.path if p]
import millrace
loader = millrace.connect(sys.argv[1])
steps = [(b.step, b["tokens"].shape) for b in loader]
print(millrace.__version__, millrace.__file__, len(steps), steps[0][1])
"""


def backend() -> Any:
    spec = importlib.util.spec_from_file_location("millrace_build", BACKEND)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(directory: Path, **settings: str) -> Path:
    directory.mkdir()
    return directory / backend().build_wheel(str(directory), settings)


def build_for_here(binary: Path, directory: Path) -> Path:
    return build(directory, binary=str(binary), platform=f"linux_{platform.machine()}")


@pytest.fixture(scope="session")
def wheel(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the binary of these tests, or the wheel that MILLRACE_WHEEL names."""
    given = os.environ.get("MILLRACE_WHEEL")
    return Path(given) if given else build_for_here(binary, tmp_path_factory.mktemp("wheel") / "dist")


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel, and with NumPy of the environment of these tests: pip needs no network. The
    environment has no pip, because pip takes longer to install than everything else."""
    directory = tmp_path_factory.mktemp("installed")
    venv.create(directory)
    install = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--ignore-installed", "--prefix"]
    subprocess.run([sys.executable, *install, directory, wheel], check=True, env=bare(directory))
    (site,) = directory.glob("lib/python*/site-packages")
    for part in Path(numpy.__file__).parent.parent.glob("numpy*"):
        (site / part.name).symlink_to(part)
    return directory


def bare(environment: Path) -> Dict[str, str]:
    """The variables of a user who has this environment, and neither Go nor a checkout."""
    return {"PATH": f"{environment}/bin:/usr/bin:/bin", "HOME": str(environment), "LANG": "C.UTF-8"}


def tree(wheel: Path) -> Mapping[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry for entry in archive.infolist()}


def write_mixture(directory: Path) -> Path:
    with open(directory / "text.jsonl", "w") as out:
        for i in range(200):
            out.write(json.dumps({"text": f"page {i} of a small book, " * 20}) + "\n")
    mixture = directory / "mixture.yaml"
    mixture.write_text(
        "version: 1\nseed: 3\ntokenizer: {name: gpt2}\nsequence_length: 256\nglobal_batch_size: 4\n"
        "micro_batch_size: 2\nstop: {epochs: 1}\nmixture: {weights: {book: 1}}\n"
        "sources:\n  book: {path: text.jsonl}\n"
    )
    return mixture


def test_an_installed_wheel_serves_and_reads(installed: Path, wheel: Path, tmp_path: Path) -> None:
    version = wheel.name.split("-")[1]
    assert shutil.which("go", path=bare(installed)["PATH"]) is None, "this machine has Go in a folder of the system"
    mixture, run = write_mixture(tmp_path), tmp_path / "run"
    up = subprocess.Popen(
        ["millrace", "up", str(mixture), "--ranks", "1", "--run-dir", str(run)],
        env=bare(installed), stdout=subprocess.PIPE, text=True, cwd=tmp_path, executable=installed / "bin/millrace",
    )
    try:
        assert up.stdout.readline().startswith("ready")
        reader = subprocess.run(
            [installed / "bin/python", "-c", READ, run / "rank-0.sock"],
            env=bare(installed), capture_output=True, text=True, timeout=60, cwd=tmp_path,
        )
        assert reader.returncode == 0, reader.stderr
        said, path, batches, shape = reader.stdout.split(" ", 3)
        assert (said, shape.strip()) == (version, "(2, 256)") and int(batches) > 10
        assert path.startswith(str(installed)), "the client of the checkout was imported"
        assert up.wait(60) == 0
    finally:
        up.kill()
        up.wait()


def test_a_wheel_and_its_parts_say_one_version(installed: Path, wheel: Path) -> None:
    told = subprocess.run(
        [installed / "bin/millrace", "version", "--json"], env=bare(installed), capture_output=True, check=True
    )
    program = json.loads(told.stdout)["millrace"]
    if os.environ.get("MILLRACE_WHEEL"):
        assert program == wheel.name.split("-")[1]
    else:  # a binary of `go build` has no revision if the checkout is a linked work tree
        assert program.split("+")[0] == wheel.name.split("-")[1].split("+")[0]


@pytest.mark.needs("MILLRACE_WHEEL")
def test_a_wheel_lists_the_modules_of_its_program(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/sboms/millrace.cdx.json"))
        bill = json.loads(archive.read(name))
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", wheel.name.split("-")[1])
    recorded = {line.split()[0] for line in (ROOT / "go.sum").read_text().splitlines()}
    listed = {part["name"] for part in bill["components"]}
    assert "github.com/cockroachdb/pebble/v2" in listed and listed - recorded == {"std"}


def test_the_pure_wheel_has_no_program(tmp_path: Path) -> None:
    names = tree(build(tmp_path / "pure"))
    assert not [name for name in names if ".data/" in name]
    assert {"millrace/__init__.py", "millrace/VERSION", "millrace/py.typed"} <= set(names)


def test_equal_inputs_give_equal_wheels(tmp_path: Path) -> None:
    program = tmp_path / "millrace"
    program.write_bytes(bytes(range(256)) * 4096)  # a wheel takes seconds to compress the real program
    first, second = build_for_here(program, tmp_path / "1"), build_for_here(program, tmp_path / "2")
    assert first.read_bytes() == second.read_bytes()
    script = next(entry for name, entry in tree(first).items() if name.endswith(".data/scripts/millrace"))
    assert script.external_attr >> 16 == 0o100755


def test_a_tag_gives_the_version(tmp_path: Path) -> None:
    """In a repository with a tag, in one without, and outside of one."""
    shutil.copytree(ROOT / "clients/python", tmp_path / "clients/python", ignore=shutil.ignore_patterns("__pycache__"))
    fixed = (ROOT / "clients/python/src/millrace/VERSION").read_text().strip()

    def git(*args: str) -> str:
        identity: List[str] = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        ran = subprocess.run(["git", *identity, *args], cwd=tmp_path, check=True, capture_output=True, text=True)
        return ran.stdout.strip()

    def version() -> str:
        script = tmp_path / "clients/python/build_backend/millrace_build.py"
        told = subprocess.run([sys.executable, script, "version"], check=True, capture_output=True, text=True)
        return told.stdout.strip()

    assert version() == fixed
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    assert version() == f"{fixed}+g{git('rev-parse', '--short=12', 'HEAD')}"
    git("tag", "v1.2.3")
    assert version() == "1.2.3"
    (tmp_path / "clients/python/README.md").write_text("changed")
    assert version().startswith(f"{fixed}+g")
