"""A PEP 517 and PEP 660 build backend for one pure-Python package. It writes the wheel with zipfile alone."""

from __future__ import annotations

import base64
import hashlib
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Iterable, List, Optional, Tuple

ROOT = Path(__file__).resolve().parent.parent
NAME, VERSION, NUMPY, PYTHON = "millrace", "0.1.0", "numpy>=1.21", ">=3.9"
DIST = f"{NAME}-{VERSION}"
EPOCH = (1980, 1, 1, 0, 0, 0)  # fixed, so that equal sources give equal wheels

Entry = Tuple[str, bytes]


def get_requires_for_build_wheel(config_settings: Optional[dict] = None) -> List[str]:
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel
get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(
    wheel_directory: str, config_settings: Optional[dict] = None, metadata_directory: Optional[str] = None
) -> str:
    package = ROOT / "src" / NAME
    files = sorted(p for p in package.rglob("*") if p.suffix == ".py" or p.name == "py.typed")
    return _write(wheel_directory, [(p.relative_to(ROOT / "src").as_posix(), p.read_bytes()) for p in files])


def build_editable(
    wheel_directory: str, config_settings: Optional[dict] = None, metadata_directory: Optional[str] = None
) -> str:
    return _write(wheel_directory, [(f"__editable__.{NAME}.pth", f"{ROOT / 'src'}\n".encode())])


def build_sdist(sdist_directory: str, config_settings: Optional[dict] = None) -> str:
    name = f"{DIST}.tar.gz"
    metadata = Path(sdist_directory) / "PKG-INFO"
    metadata.write_bytes(_metadata())
    with tarfile.open(os.path.join(sdist_directory, name), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.add(metadata, f"{DIST}/PKG-INFO")
        for part in ("pyproject.toml", "README.md", "build_backend", "src"):
            archive.add(ROOT / part, f"{DIST}/{part}", filter=lambda i: None if "__pycache__" in i.name else i)
    metadata.unlink()
    return name


def _write(directory: str, payload: Iterable[Entry]) -> str:
    info = f"{DIST}.dist-info"
    entries = list(payload)
    entries.append((f"{info}/METADATA", _metadata()))
    entries.append(
        (f"{info}/WHEEL", b"Wheel-Version: 1.0\nGenerator: millrace_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    )
    record = "".join(f"{name},sha256={_sha256(content)},{len(content)}\n" for name, content in entries)
    entries.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode()))
    wheel = f"{DIST}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return wheel


def _sha256(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _metadata() -> bytes:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return (
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n"
        "Summary: The trainer's side of Millrace: one loop over exact, resumable batches in shared memory.\n"
        f"License: Apache-2.0\nRequires-Python: {PYTHON}\nRequires-Dist: {NUMPY}\n"
        f"Description-Content-Type: text/markdown\n\n{readme}"
    ).encode()
