"""The names of metrics: those of a run, of the page, of the dashboard and of the alert rules are the same."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any, Dict, List, Set

import pytest

from conftest import HERE
from harness import SOON, Run, write_mixture
from test_observe import MIXTURE, files  # noqa: F401 (a fixture)

ROOT = HERE.parent
NAME = re.compile(r"\bmillrace_[a-z0-9_]+")
RULES = ROOT / "dashboards" / "alerts.yml"

# Metrics that need more than a run on a machine: a wait at the moment of the scrape.
RARE = {"millrace_trainer_waiting_seconds"}

# Metrics of GPUs (test_gpu.py) and of sources in object stores (test_remote.py).
ELSEWHERE = ("millrace_gpu_", "millrace_store_")


@pytest.fixture(scope="module")
def scraped(stage: Any, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Set[str]]:  # noqa: F811
    """The metrics of a run with trainers that report their times, and a token cache: name to labels."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    mixture = {**MIXTURE, "loaders": "1-2", "cache": {"tokens": "1MiB", "dir": str(tmp_path_factory.mktemp("tokens"))}}
    with Run(
        stage.binary, write_mixture(files, mixture, "metrics.yaml"), stage.new_dir(), 2, args=["--metrics", address]
    ) as run:
        run.start(pause=0.01, losses={"web": 1.0, "code": 2.0})
        found: Dict[str, Set[str]] = {}
        wanted = {name for name in documented() if not name.startswith(ELSEWHERE)} - RARE
        until = time.monotonic() + SOON
        while time.monotonic() < until and not wanted <= set(found):
            time.sleep(0.3)
            text = urllib.request.urlopen(f"http://{address}/metrics").read().decode()
            for line in text.splitlines():
                if match := re.match(r"(millrace_\w+)(?:\{(.*)\})? ", line):
                    labels = set(re.findall(r'(\w+)="', match[2] or ""))
                    found.setdefault(match[1], labels).update(labels)
        assert wanted <= set(found), sorted(wanted - set(found))
        return found


def documented() -> Dict[str, Set[str]]:
    rows = re.findall(r"^\| `(millrace_\w+)` \| (.*?) \| .+ \|$", (ROOT / "docs" / "metrics.md").read_text(), re.M)
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def test_every_metric_is_documented_and_real(scraped: Dict[str, Set[str]]) -> None:
    """docs/metrics.md has each metric of the run with its labels, and no other but those of GPUs and object stores."""
    page = documented()
    assert {name: page.get(name) for name in scraped} == scraped
    assert {n for n in page if n not in scraped and not n.startswith(ELSEWHERE)} <= RARE


def expressions() -> List[str]:
    board = json.loads((ROOT / "dashboards" / "millrace.json").read_text())
    out = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(out) > 15 and len({p["id"] for p in board["panels"]}) == len(board["panels"])
    variables = [v["query"] for v in board["templating"]["list"] if v["type"] == "query"]
    rules = re.findall(r"^ +expr: (.+)$", RULES.read_text(), re.M)
    assert len(rules) >= 5
    return out + variables + rules


def test_dashboard_and_rules_use_real_metrics(scraped: Dict[str, Set[str]]) -> None:
    """Every name in the dashboard and the rules is one of the run's, with the labels that the expression selects."""
    for expression in expressions():
        names = NAME.findall(expression)
        assert names, expression
        for name in names:
            elsewhere = name.startswith(ELSEWHERE) and name in documented()
            assert name in scraped or name in RARE or elsewhere, f"{expression}: no run has {name}"
        known = set().union(*(scraped.get(n) or documented()[n] for n in names)) | {"job"}
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression))
        used |= {x.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for x in group.split(",")}
        assert used <= known, f"{expression}: no label {used - known}"


def test_labels_of_legends_are_real(scraped: Dict[str, Set[str]]) -> None:
    board = json.loads((ROOT / "dashboards" / "millrace.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            known = set().union(*(scraped.get(n) or documented()[n] for n in NAME.findall(target["expr"])))
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= known, panel["title"]


@pytest.mark.needs("promtool")
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
