"""Client and program of neighbouring versions: they work together, or refuse each other with the remedy."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from harness import DEADLINE

ROOT = Path(__file__).resolve().parent.parent
CLIENT = ROOT / "clients/python/src"

# The last commit before the client told its version. After a release, this is the tag of the release before.
EARLIER = "c06da7837f57c23659d866e32b8e64330bfcfe68"

READ = """
import hashlib, json, os, signal, sys
import millrace
path, state, kill = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
loader = millrace.connect(path, tensors="numpy", patience=60)
if state is not None:
    loader.load_state_dict(state)
for batch in loader:
    content = hashlib.sha256(b"".join(batch[name].tobytes() for name in sorted(batch))).hexdigest()
    at_end = batch.microbatch == batch.num_microbatches - 1
    last = loader.state_dict() if at_end else None
    print(json.dumps([batch.step, batch.microbatch, [s.id for s in batch.segments], content, last]), flush=True)
    if kill and batch.step == 2 and at_end:  # the sidecar comes back, and the client continues
        roles = json.load(open(os.path.join(os.path.dirname(path), "run/roles.json")))
        os.kill(next(role["pid"] for role in roles if role["role"] == "sidecar"), signal.SIGKILL)
"""

Version = Tuple[Path, Path]  # program, sources of the client


@pytest.fixture(scope="module")
def earlier() -> Version:
    """The program and the client of EARLIER, from the history. They are built once on a machine."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", EARLIER], stdout=subprocess.PIPE, check=True)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "millrace/earlier", EARLIER)
    tree, program = cache / "tree", cache / "millrace"
    if not program.exists():
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(tree)
        new = cache / f"millrace.{os.getpid()}"
        build = ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-X main.version=0.1.0-earlier"]
        subprocess.run([*build, "-o", str(new), "./cmd/millrace"], cwd=tree, check=True)
        new.rename(program)
    return program, tree / "clients/python/src"


@pytest.fixture(scope="module")
def versions(binary: Path, earlier: Version) -> Dict[str, Version]:
    return {"earlier": earlier, "this": (binary, CLIENT)}


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("versions")
    with open(place / "text.jsonl", "w") as out:
        for i in range(150):
            out.write(json.dumps({"text": f"page {i} of a small book, " * (1 + i % 17)}) + "\n")
    path = place / "mixture.yaml"
    path.write_text(
        "version: 1\nseed: 3\ntokenizer: {name: gpt2}\nsequence_length: 128\nglobal_batch_size: 4\n"
        "micro_batch_size: 2\nstop: {epochs: 1}\nmixture: {weights: {book: 1}}\nsources:\n  book: {path: text.jsonl}\n"
    )
    return path


def read(program: Path, client: Path, mixture: Path, run: Path, state: Any = None, kill: str = "") -> List[Any]:
    """Serve a run by one version and read it by another. Return the batches."""
    command = [program, "up", mixture, "--ranks", "1", "--run-dir", run]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        try:
            assert up.stdout is not None and up.stdout.readline().startswith("ready")
            reader = subprocess.run(
                [sys.executable, "-c", READ, run / "rank-0.sock", json.dumps(state), kill],
                env={**os.environ, "PYTHONPATH": str(client)},
                capture_output=True,
                text=True,
                timeout=DEADLINE,
            )
            assert reader.returncode == 0, reader.stderr
        finally:
            up.terminate()
            up.wait(DEADLINE)
    return [json.loads(line) for line in reader.stdout.splitlines()]


@pytest.mark.needs("earlier-version")
@pytest.mark.parametrize("program", ["this", "earlier"])
def test_both_clients_read_the_same_batches(
    versions: Dict[str, Version], mixture: Path, tmp_path: Path, program: str
) -> None:
    """From the start to the end, over the death of the sidecar, and from each other's state."""
    other = {"this": "earlier", "earlier": "this"}[program]
    serving, own = versions[program]
    _, foreign = versions[other]
    expected = read(serving, own, mixture, tmp_path / "own")
    assert len(expected) > 20
    assert read(serving, foreign, mixture, tmp_path / "foreign", kill="kill") == expected
    half = next(i for i, batch in enumerate(expected) if batch[0] == 5 and batch[4])
    assert read(serving, foreign, mixture, tmp_path / "resumed", expected[half][4]) == expected[half + 1 :]


def answer_as_protocol_2(path: Path) -> None:
    """Be a sidecar of protocol 2 for one connection: it refuses the client, as the sidecar of this version does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen()
        listening.settimeout(DEADLINE)
        client, _ = listening.accept()
        with client:
            hello = client.recv(1 << 17)
            assert hello[:4] == b"MILC"
            told = b"install the client of Millrace 9.1"
            head = bytearray(64)
            head[:8] = hello[:4] + (2).to_bytes(2, "little") + (9).to_bytes(2, "little")
            head[56:60] = (4).to_bytes(4, "little")
            head[60:64] = len(told).to_bytes(4, "little")
            client.send(bytes(head) + told)


@pytest.mark.needs("earlier-version")
@pytest.mark.parametrize("which", ["this", "earlier"])
def test_a_sidecar_of_another_protocol_is_named_with_the_remedy(
    versions: Dict[str, Version], tmp_path: Path, which: str
) -> None:
    sidecar = threading.Thread(target=answer_as_protocol_2, args=(tmp_path / "rank-0.sock",))
    sidecar.start()
    program = (
        "import os, sys, time, millrace\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "try: next(millrace.connect(sys.argv[1], tensors='numpy'))\n"
        "except millrace.RunError as e: print(e)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "rank-0.sock"],
        env={**os.environ, "PYTHONPATH": str(versions[which][1])},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    sidecar.join(DEADLINE)
    assert "the sidecar speaks protocol 2" in said.stdout and "install the client" in said.stdout, said.stderr
    if which == "this":
        version = (CLIENT / "millrace/VERSION").read_text().strip()
        assert f"this client {version} speaks protocol 1" in said.stdout
        assert "install the client of Millrace 9.1" in said.stdout
