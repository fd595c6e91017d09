"""The demo's report: one self-contained page, and its charts as one picture."""

from __future__ import annotations

import collections
import dataclasses
import html
import json
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from charts import Chart, Event, Line
from model import Shape
from ranks import LoaderKill, Step

SOURCES = ("python", "go", "docs")


@dataclasses.dataclass
class Facts:
    """The data of the page. `first` continued past its checkpoint; `second` began after it."""

    first: List[Step]
    second: List[Step]
    kill: LoaderKill
    plan: Dict[int, str]
    target: Dict[int, Dict[str, float]]  # weights by step
    documents: Dict[str, int]
    model: str
    shape: Shape
    seconds: float

    def __post_init__(self) -> None:
        self.resumed = self.second[0].step
        self.steps = [s for s in self.first if s.step < self.resumed] + self.second
        self.repeated = [s for s in self.first if s.step >= self.resumed]

    def shares(self) -> Tuple[Dict[str, List[Tuple[float, float]]], Dict[str, List[Tuple[float, float]]]]:
        """Returns the realised and the target share of each source by step, cumulated from the beginning."""
        tokens: Dict[str, float] = collections.defaultdict(float)
        wanted: Dict[str, float] = collections.defaultdict(float)
        total = 0
        realised: Dict[str, List[Tuple[float, float]]] = {name: [] for name in SOURCES}
        target: Dict[str, List[Tuple[float, float]]] = {name: [] for name in SOURCES}
        for s in self.steps:
            total += s.total()
            for name in SOURCES:
                tokens[name] += s.tokens.get(name, 0)
                wanted[name] += self.target[s.step][name] * s.total()
                realised[name].append((s.step, 100 * tokens[name] / total))
                target[name].append((s.step, 100 * wanted[name] / total))
        return realised, target


def _percent(v: float) -> str:
    return f"{v:g} %"


def _loss(f: Facts, words: bool = True) -> Chart:
    first = [(s.step, s.loss) for s in f.first]
    lines = [
        Line([p for p in first if p[0] >= f.resumed - 1], "var(--muted)", "line", 0.55, 5),
        Line([(s.step, s.loss) for s in f.steps], "var(--loss)", "line", 0.4, 1.4),
        Line(_smooth([(s.step, s.loss) for s in f.steps], 6), "var(--loss)", width=2.4),
    ]
    return Chart(lines, _span(f), lambda v: f"{v:g}", _events(f), words=words)


def _smooth(points: Sequence[Tuple[float, float]], reach: int) -> List[Tuple[float, float]]:
    """Returns the mean of each point with up to `reach` neighbours on each side. Near the steep
    beginning, both sides have equally many."""
    out = []
    for i, (x, _) in enumerate(points):
        near = points[max(0, i - reach) : i + min(reach, i) + 1]
        out.append((x, sum(y for _, y in near) / len(near)))
    return out


def _span(f: Facts) -> Tuple[float, float]:
    return 0, f.steps[-1].step


def _events(f: Facts) -> List[Event]:
    ranks = f"{f.second[0].ranks} rank{'s' * (f.second[0].ranks > 1)}"
    return [
        Event(f.kill.step, "kill -9 of a loader", "var(--kill)"),
        Event(f.resumed - 0.5, f"checkpoint, resumed on {ranks}", "var(--resume)"),
    ]


def _bare(f: Facts) -> List[Event]:
    return [dataclasses.replace(e, text="") for e in _events(f)]


def _mixture(f: Facts) -> Chart:
    realised, target = f.shares()
    lines: List[Line] = []
    for name in SOURCES:
        each = [(s.step, 100 * s.tokens.get(name, 0) / s.total()) for s in f.steps]
        lines += [
            Line(each, f"var(--{name})", "dots", 0.28, 3.5),
            Line(realised[name], f"var(--{name})", "line", 0.55, 4.5),
            Line(target[name], "var(--ink)", "dashes", 0.9, 1.3),
        ]
    labels = [(realised[name][-1][1], name, f"var(--{name})") for name in SOURCES]
    return Chart(lines, _span(f), _percent, _bare(f), low=0, labels=labels, words=False)


def _fill(f: Facts) -> Chart:
    points = [(s.step, 100 * s.fill) for s in f.steps]
    low = min(90.0, 10 * (min(p[1] for p in points) // 10))
    return Chart(
        [Line(points, "var(--fill)", "area", 0.16), Line(points, "var(--fill)", width=1.6)],
        _span(f),
        _percent,
        _bare(f),
        low=low,
        high=100,
        words=False,
    )


def _speed(f: Facts) -> Chart:
    raw = [(s.step, s.total() / s.seconds / 1e3) for s in f.steps if s.seconds]
    return Chart(
        [Line(raw, "var(--speed)", "dots", 0.4, 3.5), Line(_smooth(raw, 5), "var(--speed)")],
        _span(f),
        lambda v: f"{v:g}k",
        _bare(f),
        low=0,
        words=False,
    )


def _waits(f: Facts) -> Chart:
    # The first step of a part waits for processes to start. In the chart, this wait would hide all others.
    points = [(s.step, 1e3 * s.waited) for s in f.steps if s.seconds]
    bars = [Line([(x, 0), (x, y)], "var(--wait)", width=2.2) for x, y in points]
    return Chart(
        bars, _span(f), lambda v: f"{v:g} ms", _bare(f), low=0, high=max(10.0, max(y for _, y in points)), words=False
    )


def page(f: Facts) -> str:
    """Returns the page."""
    template = Path(__file__).with_name("report.html").read_text(encoding="utf-8")
    fields = {
        "colours": Path(__file__).with_name("colours.css").read_text(encoding="utf-8"),
        "subtitle": _subtitle(f),
        "tiles": "".join(
            f'<div class="tile"><b>{html.escape(v)}</b><span>{html.escape(k)}</span></div>' for k, v in _tiles(f)
        ),
        "loss": _loss(f).svg(1064, 330),
        "mixture": _mixture(f).svg(522, 280),
        "fill": _fill(f).svg(522, 280),
        "speed": _speed(f).svg(522, 220),
        "waits": _waits(f).svg(522, 220),
        "digests": "".join(_digest_row(f, s) for s in f.repeated),
        "sources": "".join(_source_row(f, name) for name in SOURCES),
        "waited": f"{100 * sum(s.waited for s in f.steps if s.seconds) / sum(s.seconds for s in f.steps):.1f}",
        "ranks1": str(f.first[0].ranks),
        "ranks2": str(f.second[0].ranks),
        "data": json.dumps([_tip(f, s) for s in f.steps]).replace("</", "<\\/"),
    }
    for name, value in fields.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def _subtitle(f: Facts) -> str:
    kind = "PyTorch" if f.model == "torch" else "NumPy"
    return (
        f"A GPT with {f.shape.size() / 1e6:.1f} M parameters, computed by {kind}, "
        f"learnt from {sum(f.documents.values()):,} documents of this machine in "
        f"{f.seconds:.0f} seconds, corpus and checks included. A loader was killed, and its shadow took over. "
        "The training was stopped and resumed from its checkpoint on other ranks."
    )


def _tiles(f: Facts) -> List[Tuple[str, str]]:
    few = max(2, len(f.steps) // 20)
    begun, ended = (sum(s.loss for s in part) / few for part in (f.steps[:few], f.steps[-few:]))
    equal = sum(s.digest == f.plan.get(s.step) for s in f.first + f.second)
    realised, target = f.shares()
    off = max(abs(realised[n][-1][1] - target[n][-1][1]) for n in SOURCES)
    return [
        ("tokens learnt from", f"{sum(s.total() for s in f.steps):,}"),
        ("loss, nats a token", f"{begun:.2f} → {ended:.2f}"),
        ("content digests as planned", f"{equal} of {len(f.first) + len(f.second)}"),
        ("longest wait after the kill", f"{1e3 * longest_wait(f):.0f} ms"),
        ("farthest source from its target", f"{off:.2f} points"),
    ]


def longest_wait(f: Facts) -> float:
    """Returns the longest wait of a trainer for a batch after the kill, in seconds."""
    return max(s.waited for s in f.first if s.step > f.kill.step)


def _digest_row(f: Facts, before: Step) -> str:
    after = next(s for s in f.second if s.step == before.step)
    cells = "".join(f"<td><code>{d[:20]}</code></td>" for d in (before.digest, after.digest, f.plan[before.step]))
    same = before.digest == after.digest == f.plan[before.step]
    verdict = f"<td class={'good' if same else 'bad'}>{'equal' if same else 'differ'}</td>"
    return f"<tr><td>{before.step}</td>{cells}{verdict}</tr>"


def _source_row(f: Facts, name: str) -> str:
    realised, target = f.shares()
    tokens = sum(s.tokens.get(name, 0) for s in f.steps)
    return (
        f'<tr><td><i style="background:var(--{name})"></i>{name}</td><td>{f.documents[name]:,}</td><td>{tokens:,}</td>'
        f"<td>{realised[name][-1][1]:.2f} %</td><td>{target[name][-1][1]:.2f} %</td></tr>"
    )


def _tip(f: Facts, s: Step) -> Dict[str, Any]:
    shares = {n: [round(100 * s.tokens.get(n, 0) / s.total(), 1), round(100 * f.target[s.step][n], 1)] for n in SOURCES}
    rate = round(s.total() / s.seconds) if s.seconds else None
    return {
        "step": s.step,
        "ranks": s.ranks,
        "loss": round(s.loss, 3),
        "shares": shares,
        "fill": round(100 * s.fill, 1),
        "rate": rate,
        "wait": round(1e3 * s.waited, 1),
        "digest": s.digest[:16],
    }


def picture(f: Facts) -> str:
    """Returns the charts as one SVG file for a README."""
    width, height = 960, 590
    style = Path(__file__).with_name("colours.css").read_text(encoding="utf-8")
    cells: Sequence[Tuple[int, int, int, int, str, Chart]] = (
        (0, 0, 960, 300, "Loss, nats a token", _loss(f)),
        (0, 300, 480, 280, "Mixture, % of all tokens so far (dashed: target)", _mixture(f)),
        (480, 300, 480, 280, "Fill of every step, % of its places", _fill(f)),
    )
    body = "".join(
        f'<g transform="translate({x + 14},{y + 14})"><text class="title" x="8" y="14">{html.escape(title)}</text>'
        f'<g transform="translate(0,22)">{chart.svg(w - 28, h - 42)}</g></g>'
        for x, y, w, h, title, chart in cells
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        f'aria-label="Loss, mixture and fill of a demo run, with a killed loader and a resume">\n'
        f"<style>{style.replace(':root', 'svg')}</style>\n"
        f'<rect width="{width}" height="{height}" rx="10" fill="var(--card)"/>\n{body}</svg>\n'
    )
