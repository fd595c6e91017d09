"""Line charts as SVG, without anything but strings. Colours are CSS variables, so that a page decides about light and dark."""

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
    """A moment to be marked: a vertical line with a word at its top, which begins (or, with `before`, ends) at the line."""

    x: float
    text: str
    colour: str
    before: bool = False


@dataclasses.dataclass
class Chart:
    """One pair of axes."""

    lines: List[Line]
    span: Point  # of x
    unit: Callable[[float], str]  # how a value of y is written at the axis
    events: List[Event] = dataclasses.field(default_factory=list)
    low: Optional[float] = None  # of y; left out: as the points are
    high: Optional[float] = None
    labels: List[Tuple[float, str, str]] = dataclasses.field(
        default_factory=list
    )  # y, text and colour, at the right end
    words: bool = True  # whether the events' words are shown
    name: str = "step"  # of x; it takes the place of numbers at the right end

    def bounds(self) -> Point:
        """The least and the greatest y shown."""
        ys = [y for line in self.lines for _, y in line.points]
        low = min(ys) if self.low is None else self.low
        high = max(ys) if self.high is None else self.high
        return low, high if high > low else low + 1

    def svg(self, width: int, height: int) -> str:
        """The chart's inner SVG in a box of width x height."""
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
                    f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y(t)}" y2="{y(t)}"/><text class="axis" text-anchor="end" x="{LEFT - 8}" y="{y(t) + 4}">{self.unit(t)}</text>'
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
                f'<line x1="{x(e.x)}" x2="{x(e.x)}" y1="{top - 12 if self.words else top}" y2="{bottom}" stroke="{e.colour}" stroke-width="1.5" stroke-dasharray="3 3"/>'
            )
            if self.words:
                at = f'text-anchor="end" x="{x(e.x) - 5}"' if e.before else f'x="{x(e.x) + 5}"'
                out.append(f'<text class="event" {at} y="{top - 4}" fill="{e.colour}">{html.escape(e.text)}</text>')
        out += [_draw(line, x, y, bottom) for line in self.lines]
        for value, text, colour in _spread(self.labels, (high - low) * 15 / (bottom - top)):
            out.append(
                f'<text class="label" x="{right + 7}" y="{y(value) + 4}" fill="{colour}">{html.escape(text)}</text>'
            )
        box = f'data-left="{LEFT}" data-right="{right}" data-top="{top}" data-bottom="{bottom}" data-from="{self.span[0]}" data-to="{self.span[1]}"'
        return f'<g class="chart" {box}>{"".join(out)}</g>'


def _draw(line: Line, x: Callable[[float], float], y: Callable[[float], float], bottom: float) -> str:
    if not line.points:
        return ""
    if line.kind == "dots":
        dots = "".join(f"M{x(a)} {y(b)}h0" for a, b in line.points)
        return f'<path d="{dots}" stroke="{line.colour}" stroke-width="{line.width}" stroke-linecap="round" opacity="{line.opacity}" fill="none"/>'
    path = "M" + "L".join(f"{x(a)} {y(b)}" for a, b in line.points)
    if line.kind == "area":
        path += f"L{x(line.points[-1][0])} {bottom}L{x(line.points[0][0])} {bottom}Z"
        return f'<path d="{path}" fill="{line.colour}" opacity="{line.opacity}"/>'
    dash = ' stroke-dasharray="5 4"' if line.kind == "dashes" else ""
    return f'<path d="{path}" stroke="{line.colour}" stroke-width="{line.width}" opacity="{line.opacity}" fill="none" stroke-linejoin="round"{dash}/>'


def _spread(labels: Sequence[Tuple[float, str, str]], gap: float) -> List[Tuple[float, str, str]]:
    """The labels moved up as far as they would cover each other."""
    out: List[Tuple[float, str, str]] = []
    for value, text, colour in sorted(labels):
        if out and value < out[-1][0] + gap:
            value = out[-1][0] + gap
        out.append((value, text, colour))
    return out


def ticks(low: float, high: float, about: int) -> List[float]:
    """Round numbers from at or below low to at or above high, `about` of them."""
    raw = (high - low) / max(1, about - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]
