"""A PEP 517 and PEP 660 build backend. It writes wheels with zipfile alone, and equal inputs give equal bytes.

Without settings, a wheel holds the pure client. With the settings `binary` and `platform`, it also holds the program as
the script `millrace`, for that platform. The setting `sbom` adds the program's bill of materials (PEP 770)."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Tuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "millrace"
NAME = "millrace-loader"  # on the index, "millrace" is another project
SUMMARY = "Exact, resumable batches for the training of large models, in shared memory."
EPOCH = (1980, 1, 1, 0, 0, 0)  # the time of every file

Entry = Tuple[str, bytes, int]  # name, content, mode
Settings = Optional[Dict[str, str]]


def get_requires_for_build_wheel(config_settings: Settings = None) -> List[str]:
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel
get_requires_for_build_editable = get_requires_for_build_wheel


@functools.lru_cache(maxsize=None)
def version() -> str:
    """Return the version of the tag vX.Y.Z at this commit. Without such a tag, return the content of the file VERSION,
    with `+g<revision>` inside a checkout."""
    fixed = (PACKAGE / "VERSION").read_text(encoding="utf-8").strip()
    if not fixed.endswith(".dev0"):
        return fixed  # a source archive of a release
    if _git("rev-parse", "--show-prefix") != "clients/python/":
        return fixed  # a source archive, perhaps below another project's repository
    described = _git("describe", "--tags", "--exact-match", "--dirty", "--match", "v[0-9]*")
    tag = re.fullmatch(r"v(\d+\.\d+\.\d+)", described)
    revision = _git("rev-parse", "--short=12", "HEAD")
    return tag[1] if tag else f"{fixed}+g{revision}" if revision else fixed


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: Optional[str] = None
) -> str:
    settings = dict(config_settings or {})
    entries, tag = list(_client()), "any"
    if "binary" in settings:
        tag = settings["platform"]
        entries.append((f"{_dist()}.data/scripts/millrace", Path(settings["binary"]).read_bytes(), 0o755))
    if "sbom" in settings:
        entries.append((f"{_dist()}.dist-info/sboms/millrace.cdx.json", Path(settings["sbom"]).read_bytes(), 0o644))
    return _write(wheel_directory, entries, tag)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: Optional[str] = None
) -> str:
    return _write(wheel_directory, [("__editable__.millrace.pth", f"{PACKAGE.parent}\n".encode(), 0o644)], "any")


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    files = [(name.replace("millrace/", "src/millrace/", 1), content, mode) for name, content, mode in _client()]
    for name in ("pyproject.toml", "README.md", "build_backend/millrace_build.py"):
        files.append((name, (ROOT / name).read_bytes(), 0o644))
    files.append(("PKG-INFO", _metadata(), 0o644))
    name = f"{_dist()}.tar.gz"
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content, mode in files:
            member = tarfile.TarInfo(f"{_dist()}/{path}")
            member.size, member.mode = len(content), mode
            archive.addfile(member, io.BytesIO(content))
    Path(sdist_directory, name).write_bytes(gzip.compress(unpacked.getvalue(), mtime=0))
    return name


def _git(*args: str) -> str:
    """Return the output of git in this folder, or an empty string."""
    try:
        ran = subprocess.run(["git", "-C", str(ROOT), *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return ""
    return ran.stdout.decode().strip() if ran.returncode == 0 else ""


def _dist() -> str:
    return f"{NAME.replace('-', '_')}-{version()}"


def _client() -> Iterable[Entry]:
    """Yield the files of the package. The file VERSION has this build's version."""
    for path in sorted(PACKAGE.rglob("*")):
        if path.name == "VERSION":
            yield path.relative_to(PACKAGE.parent).as_posix(), f"{version()}\n".encode(), 0o644
        elif path.suffix == ".py" or path.name == "py.typed":
            yield path.relative_to(PACKAGE.parent).as_posix(), path.read_bytes(), 0o644


def _write(directory: str, payload: Iterable[Entry], platform: str) -> str:
    info, tag = f"{_dist()}.dist-info", f"py3-none-{platform}"
    entries = list(payload)
    pure = "true" if platform == "any" else "false"
    described = f"Wheel-Version: 1.0\nGenerator: millrace_build\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    entries.append((f"{info}/METADATA", _metadata(), 0o644))
    entries.append((f"{info}/WHEEL", described.encode(), 0o644))
    licence = ROOT.parent.parent / "LICENSE"
    if licence.is_file():
        entries.append((f"{info}/licenses/LICENSE", licence.read_bytes(), 0o644))
    record = "".join(f"{name},sha256={_sha256(content)},{len(content)}\n" for name, content, _ in entries)
    entries.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))
    wheel = f"{_dist()}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in entries:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return wheel


def _sha256(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _metadata() -> bytes:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return (
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version()}\nSummary: {SUMMARY}\n"
        "License: Apache-2.0\nRequires-Python: >=3.9\nRequires-Dist: numpy>=1.21\n"
        "Classifier: Operating System :: POSIX :: Linux\nClassifier: Programming Language :: Python :: 3\n"
        f"Classifier: Typing :: Typed\nDescription-Content-Type: text/markdown\n\n{readme}"
    ).encode()


if __name__ == "__main__":  # millrace_build.py version | wheel DIRECTORY [NAME=VALUE …]
    if sys.argv[1:] == ["version"]:
        print(version())
    else:
        print(build_wheel(sys.argv[2], dict(setting.split("=", 1) for setting in sys.argv[3:])))
