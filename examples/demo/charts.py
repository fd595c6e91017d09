"""Line charts as SVG strings. Colours are CSS variables, so that the page chooses light or dark."""

from __future__ import annotations

import dataclasses
import html
import math
from typing import Callable, List, Optional, Sequence, Tuple

Point = Tuple[float, float]

LEFT, RIGHT, TOP, BOTTOM = 52, 14, 12, 30


@dataclasses.dataclass
class Line:
    """A series. `kind` is line, dashes, dots or area; `colour` a CSS colour."""

    points: Sequence[Point]
    colour: str
    kind: str = "line"
    opacity: float = 1.0
    width: float = 2.0


@dataclasses.dataclass
class Event:
    """A marked moment: a vertical line with a word at its top, right of the line (left with `before`)."""

    x: float
    text: str
    colour: str
    before: bool = False


@dataclasses.dataclass
class Chart:
    """One pair of axes."""

    lines: List[Line]
    span: Point  # the range of x
    unit: Callable[[float], str]  # formats a value of y
    events: List[Event] = dataclasses.field(default_factory=list)
    low: Optional[float] = None  # the least y of the axis; None: the least of the points
    high: Optional[float] = None
    labels: List[Tuple[float, str, str]] = dataclasses.field(
        default_factory=list
    )  # y, text and colour, at the right end
    words: bool = True  # shows the words of events
    name: str = "step"  # of the x axis, shown at its right end

    def bounds(self) -> Point:
        """Returns the least and the greatest y of the chart."""
        ys = [y for line in self.lines for _, y in line.points]
        low = min(ys) if self.low is None else self.low
        high = max(ys) if self.high is None else self.high
        return low, high if high > low else low + 1

    def svg(self, width: int, height: int) -> str:
        """Returns the chart's inner SVG in a box of width x height."""
        low, high = self.bounds()
        steps = ticks(low, high, 5 if height > 190 else 4)
        if self.low is None:
            low = min(low, steps[0])
        if self.high is None:
            high = max(high, steps[-1])
        right = width - RIGHT - (52 if self.labels else 0)
        top = TOP + (16 if self.words and self.events else 0)
        bottom = height - BOTTOM

        def x(v: float) -> float:
            return round(LEFT + (v - self.span[0]) / (self.span[1] - self.span[0]) * (right - LEFT), 1)

        def y(v: float) -> float:
            return round(bottom - (min(max(v, low), high) - low) / (high - low) * (bottom - top), 1)

        out = []
        for t in steps:
            if low <= t <= high:
                out.append(
                    f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y(t)}" y2="{y(t)}"/>'
                    f'<text class="axis" text-anchor="end" x="{LEFT - 8}" y="{y(t) + 4}">{self.unit(t)}</text>'
                )
        for t in ticks(*self.span, 8 if width > 500 else 5):
            if self.span[0] <= t and x(t) < right - 40:
                out.append(f'<text class="axis" text-anchor="middle" x="{x(t)}" y="{bottom + 19}">{t:g}</text>')
        out.append(
            f'<text class="axis" text-anchor="end" x="{right}" y="{bottom + 19}">{html.escape(self.name)}</text>'
        )
        out.append(f'<line class="base" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        for e in self.events:
            out.append(
                f'<line x1="{x(e.x)}" x2="{x(e.x)}" y1="{top - 12 if self.words else top}" y2="{bottom}" '
                f'stroke="{e.colour}" stroke-width="1.5" stroke-dasharray="3 3"/>'
            )
            if self.words:
                at = f'text-anchor="end" x="{x(e.x) - 5}"' if e.before else f'x="{x(e.x) + 5}"'
                out.append(f'<text class="event" {at} y="{top - 4}" fill="{e.colour}">{html.escape(e.text)}</text>')
        out += [_draw(line, x, y, bottom) for line in self.lines]
        for value, text, colour in _spread(self.labels, (high - low) * 15 / (bottom - top)):
            out.append(
                f'<text class="label" x="{right + 7}" y="{y(value) + 4}" fill="{colour}">{html.escape(text)}</text>'
            )
        box = f'data-left="{LEFT}" data-right="{right}" data-top="{top}" data-bottom="{bottom}"'
        box += f' data-from="{self.span[0]}" data-to="{self.span[1]}"'
        return f'<g class="chart" {box}>{"".join(out)}</g>'


def _draw(line: Line, x: Callable[[float], float], y: Callable[[float], float], bottom: float) -> str:
    if not line.points:
        return ""
    if line.kind == "dots":
        dots = "".join(f"M{x(a)} {y(b)}h0" for a, b in line.points)
        return (
            f'<path d="{dots}" stroke="{line.colour}" stroke-width="{line.width}" stroke-linecap="round" '
            f'opacity="{line.opacity}" fill="none"/>'
        )
    path = "M" + "L".join(f"{x(a)} {y(b)}" for a, b in line.points)
    if line.kind == "area":
        path += f"L{x(line.points[-1][0])} {bottom}L{x(line.points[0][0])} {bottom}Z"
        return f'<path d="{path}" fill="{line.colour}" opacity="{line.opacity}"/>'
    dash = ' stroke-dasharray="5 4"' if line.kind == "dashes" else ""
    return (
        f'<path d="{path}" stroke="{line.colour}" stroke-width="{line.width}" opacity="{line.opacity}" '
        f'fill="none" stroke-linejoin="round"{dash}/>'
    )


def _spread(labels: Sequence[Tuple[float, str, str]], gap: float) -> List[Tuple[float, str, str]]:
    """Moves labels up as far as needed to keep them apart."""
    out: List[Tuple[float, str, str]] = []
    for value, text, colour in sorted(labels):
        if out and value < out[-1][0] + gap:
            value = out[-1][0] + gap
        out.append((value, text, colour))
    return out


def ticks(low: float, high: float, about: int) -> List[float]:
    """Returns about `about` round numbers that cover low to high."""
    raw = (high - low) / max(1, about - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]
