"""The image of `make image`, unpacked and run without a daemon: as its user, with nothing but its files."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Dict, List

import pytest

pytestmark = pytest.mark.needs("MILLRACE_IMAGE")

ROOT = Path(__file__).resolve().parent.parent
HERE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


class Image:
    """An OCI layout in a tar file. Every blob is compared with its digest."""

    def __init__(self, path: str) -> None:
        with tarfile.open(path) as archive:
            self.files = {m.name: archive.extractfile(m).read() for m in archive.getmembers() if m.isfile()}
        (nested,) = json.loads(self.files["index.json"])["manifests"]
        self.platforms: Dict[str, Any] = {
            m["platform"]["architecture"]: self.document(m) for m in self.document(nested)["manifests"]
        }

    def blob(self, descriptor: Dict[str, Any]) -> bytes:
        content = self.files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert len(content) == descriptor["size"]
        assert "sha256:" + hashlib.sha256(content).hexdigest() == descriptor["digest"]
        return content

    def document(self, descriptor: Dict[str, Any]) -> Any:
        return json.loads(self.blob(descriptor))


@pytest.fixture(scope="module")
def image() -> Image:
    return Image(os.environ["MILLRACE_IMAGE"])


@pytest.fixture(scope="module")
def root(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of this machine's architecture."""
    directory = tmp_path_factory.mktemp("image")
    for layer in image.platforms[HERE]["layers"]:
        with tarfile.open(fileobj=io.BytesIO(image.blob(layer))) as archive:
            archive.extractall(directory)
    for part in [directory, *directory.parents[:3]]:  # pytest's folders are private
        part.chmod(part.stat().st_mode | 0o055)
    return directory


def run(root: Path, user: str, *args: str) -> "subprocess.CompletedProcess[str]":
    """Run the image's program as a container does: its root, its user, its environment."""
    uid, gid = user.split(":")
    command: List[str] = ["chroot", f"--userspec={uid}:{gid}", str(root), "/millrace", *args]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("arch", ["amd64", "arm64"])
def test_an_image_says_its_user_its_version_and_its_parts(image: Image, arch: str) -> None:
    manifest = image.platforms[arch]
    config = image.document(manifest["config"])
    assert (config["os"], config["architecture"]) == ("linux", arch)
    assert config["config"]["User"] == "65532:65532" and config["config"]["Entrypoint"] == ["/millrace"]
    version = config["config"]["Labels"]["org.opencontainers.image.version"]
    (layer,) = manifest["layers"]
    with tarfile.open(fileobj=io.BytesIO(image.blob(layer))) as archive:
        program = archive.extractfile("millrace").read()
        bill = json.load(archive.extractfile("sbom/millrace.cdx.json"))
        assert archive.getmember("tmp").mode == 0o1777
        assert all(m.uid == m.gid == 0 and m.mtime == 0 for m in archive.getmembers())
    assert program[18:20] == {"amd64": b"\x3e\x00", "arm64": b"\xb7\x00"}[arch]  # ELF's e_machine
    assert b"/ld-linux" not in program, "the program is not static"
    assert bill["metadata"]["component"]["version"] == version and len(bill["components"]) > 20


@pytest.mark.needs("root")  # which alone can change the root directory
def test_the_program_runs_alone_and_without_root(image: Image, root: Path) -> None:
    config = image.document(image.platforms[HERE]["config"])["config"]
    version = config["Labels"]["org.opencontainers.image.version"]
    assert run(root, config["User"], "version").stdout.startswith(f"millrace {version}, ")
    (root / "tmp/book.jsonl").write_text('{"text": "one page of a small book"}\n' * 300)
    (root / "tmp/mixture.yaml").write_text(
        "{version: 1, seed: 1, tokenizer: {name: gpt2}, sequence_length: 64, global_batch_size: 2,\n"
        "micro_batch_size: 1, stop: {epochs: 1}, mixture: {weights: {book: 1}}, sources: {book: {path: book.jsonl}},\n"
        "index_dir: /tmp/index}\n"
    )
    checked = run(root, config["User"], "check", "/tmp/mixture.yaml")
    assert checked.returncode == 0, checked.stderr
    previewed = run(root, config["User"], "preview", "/tmp/mixture.yaml", "--step", "1")
    assert "small book" in previewed.stdout, previewed.stderr
    assert {p.stat().st_uid for p in (root / "tmp/index").iterdir()} == {65532}


@pytest.mark.needs("MILLRACE_IMAGE_AGAIN")
def test_a_second_build_gives_the_same_bytes() -> None:
    assert Path(os.environ["MILLRACE_IMAGE_AGAIN"]).read_bytes() == Path(os.environ["MILLRACE_IMAGE"]).read_bytes()
