"""Files come and go between two resumes of a run on several hosts, each with an index directory of its own."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from harness import Run, Trainers, command, write_mixture
from test_cluster import running
from test_eras import FIRST, override
from test_growth import BLOCKS, SETTING, Count, Scene, file_of, last_state, said_so, scene, short_for
from test_hosts import on_loopback
from trainer import Orders

assert scene  # a fixture

HOSTS = 2  # with one rank each


class Cluster:
    """The runs of both hosts, one after the other. Each host has its own index directory."""

    def __init__(self, scene: Scene, mixture: Dict[str, Any], files: List[Path]) -> None:
        self.scene, self.mixture, self.files = scene, mixture, files
        self.state: Any = None
        self.count = Count()
        self.said, self.attempts = "", 0

        for source in self.mixture["sources"].values():
            source["path"] = str(scene.corpus / source["path"])

    def of_host(self, host: int) -> Path:
        """The mixture file of a host. All have the same text, and index_dir is beside each."""
        directory = self.scene.scratch / f"host-{host}"
        directory.mkdir(exist_ok=True)
        return write_mixture(directory, {**self.mixture, "index_dir": "index"})

    def index(self, host: int) -> None:
        command(self.scene.binary, "index", str(self.of_host(host)), "--lengths")

    def attempt(self, over: Tuple[str, ...] = (), last: int = -1) -> Any:
        """Trains to the end of a step, or of the run."""
        leave = {} if last < 0 else {"leave_after": (last, SETTING["global_batch_size"] // HOSTS - 1)}
        self.attempts += 1
        for file in self.files:  # a new run directory has another name in etcd
            file.write_text(re.sub("name: .*", f"name: run-{self.attempts}", file.read_text()))
        with contextlib.ExitStack() as stack:
            runs = [
                stack.enter_context(
                    Run(
                        self.scene.binary, self.of_host(host), self.scene.new_dir(), first=host,
                        args=["--world-size", str(HOSTS), "--first-rank", str(host), "--cluster", str(file)],
                    )
                )
                for host, file in enumerate(self.files)
            ]  # fmt: skip
            orders = Orders(state=self.state, override=over, states=True, **leave)  # type: ignore
            trainers = Trainers([s for run in runs for s in run.sockets()], [orders] * HOSTS)
            out = trainers.collect()
            self.said = "".join(run.stderr() for run in runs)
            trainers.end()
        return out

    def go(self, last: int = -1, over: Tuple[str, ...] = ()) -> None:
        out = self.attempt(over, last)
        assert out.ends == ["left" if last >= 0 else "end"] * HOSTS, (out.ends, self.said)
        self.count.add(out, last if last >= 0 else max(out.steps()))
        self.state = last_state(out)


@pytest.mark.needs("etcd")
@pytest.mark.parametrize("setting", short_for(BLOCKS))
def test_hosts_grow_and_shrink(scene: Scene, setting: Dict[str, Any], tmp_path: Path) -> None:
    """A source grows and shrinks between resumes on two hosts. Whichever host leads knows the earlier files, and both
    read each document of a pass once. A host whose index directory knows too little refuses, with the cure."""
    mixture = scene.begin(setting)
    with running(scene, tmp_path) as member:
        hosts = Cluster(scene, mixture, on_loopback(f"http://{member.address}", tmp_path))
        hosts.go(9)
        scene.add(2)
        scene.add(9)
        for end in hosts.attempt().ends:
            assert scene.name(2) in end[2] and '"sources.web.files=append"' in end[2], end
        hosts.go(12, override(append=True))
        said_so(hosts.said)
        hosts.go(16)
        assert hosts.count.read(0) and not hosts.count.read(1)
        for host in range(HOSTS):
            hosts.index(host)
        scene.remove(3)
        hosts.go(-1, override(mask=True))
        said_so(hosts.said)
    hosts.count.check([(0, (1, 5, 7)), (1, (1, 2, 5, 7, 9)), (2, (1, 2, 5, 7, 9))], cut=(3,))
    assert {file_of(d) for d in hosts.count.read(0)} <= set(FIRST)
    assert {file_of(d) for d in hosts.count.read(2)} == {1, 2, 5, 7, 9}
