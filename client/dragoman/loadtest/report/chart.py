"""One plot as SVG: axes, then marks on them. Colours come from the page's style sheet by class."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dragoman.loadtest.report.scale import Scale

__all__ = ["HEIGHT", "WIDTH", "Chart", "Hover", "Point"]

WIDTH, HEIGHT = 560, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 14, 38

Point = tuple[float, float]
"""(x, y) in values; a NaN breaks a line."""


@dataclass(frozen=True, slots=True)
class Hover:
    """What a reader sees at a point: a title and rows of (name, value)."""

    x: float
    title: str
    rows: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Chart:
    """Axes with marks; every method draws over what is there."""

    title: str
    x: Scale
    y: Scale
    x_label: str
    format_x: Callable[[float], str]
    format_y: Callable[[float], str]
    x_ticks: Sequence[float] | None = None
    _marks: list[str] = field(default_factory=list)
    _legend: list[tuple[str, str]] = field(default_factory=list)
    _hovers: list[Hover] = field(default_factory=list)

    @staticmethod
    def x_range() -> tuple[float, float]:
        return _LEFT, WIDTH - _RIGHT

    @staticmethod
    def y_range() -> tuple[float, float]:
        return HEIGHT - _BOTTOM, _TOP

    def line(self, points: Iterable[Point], style: str, name: str) -> None:
        self._marks.append(f'<path class="line {style}" d="{self._path(points)}"/>')
        self._legend.append((style, name))

    def area(self, points: Sequence[Point], style: str, name: str) -> None:
        """A line with the space below it filled."""
        known = [point for point in points if not math.isnan(point[1])]
        if known:
            floor = f"{self.y.at(self.y.low):.1f}"
            shape = f"{self._path(known)}L{self.x.at(known[-1][0]):.1f} {floor}L{self.x.at(known[0][0]):.1f} {floor}Z"
            self._marks.append(f'<path class="area {style}" d="{shape}"/>')
        self.line(points, style, name)

    def bars(self, bars: Iterable[tuple[float, float, float]], style: str, name: str) -> None:
        """(from x, to x, height) each, with a hair of space between neighbours."""
        for left, right, height in bars:
            if height <= 0:
                continue
            x, width, y = self.x.at(left), self.x.at(right) - self.x.at(left), self.y.at(height)
            gap = min(1.0, width / 4)
            box = f'x="{x + gap / 2:.1f}" y="{y:.1f}" width="{max(width - gap, 0.5):.1f}"'
            self._marks.append(f'<rect class="bar {style}" {box} height="{self.y.at(self.y.low) - y:.1f}"/>')
        self._legend.append((style, name))

    def dots(self, points: Iterable[Point], style: str, name: str) -> None:
        places = [(self.x.at(x), self.y.at(y)) for x, y in points if not math.isnan(y)]
        self._marks += [f'<circle class="dot {style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places]
        self._legend.append((style, name))

    def mark_x(self, value: float, label: str) -> None:
        """A dashed line across the plot, with its name at the top."""
        x = self.x.at(value)
        self._marks.append(f'<path class="limit" d="M{x:.1f} {_TOP}V{HEIGHT - _BOTTOM}"/>')
        anchor = "end" if x > WIDTH * 0.75 else "start"
        offset = -4 if anchor == "end" else 4
        place = f'x="{x + offset:.1f}" y="{_TOP + 9}"'
        self._marks.append(f'<text class="mark" {place} text-anchor="{anchor}">{html.escape(label)}</text>')

    def mark_y(self, value: float, label: str) -> None:
        """A dashed limit, when it is within the plot."""
        if not self.y.low <= value <= self.y.high:
            return
        y = self.y.at(value)
        self._marks.append(f'<path class="limit" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>')
        place = f'x="{_LEFT + 4}" y="{y - 4:.1f}"'  # at the left: latencies tend to grow to the right
        self._marks.append(f'<text class="mark" {place}>{html.escape(label)}</text>')

    def note(self, words: str) -> None:
        """Words in the middle of a plot that has nothing to show."""
        place = f'x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{(_TOP + HEIGHT - _BOTTOM) / 2}"'
        self._marks.append(f'<text class="nothing" {place} text-anchor="middle">{html.escape(words)}</text>')

    def hover(self, hovers: Iterable[Hover]) -> None:
        self._hovers += hovers

    def render(self) -> str:
        legend = "".join(
            f'<span class="key"><i class="{style}"></i>{html.escape(name)}</span>' for style, name in self._legend
        )
        label = html.escape(f"{self.title}: {', '.join(name for _, name in self._legend)}", quote=True)
        return (
            f'<figure class="plot"><figcaption><b>{html.escape(self.title)}</b>{legend}</figcaption>'
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" data-hover="{self._hover_data()}">'
            f"{self._axes()}{''.join(self._marks)}"
            f'<path class="cross" d="M0 {_TOP}V{HEIGHT - _BOTTOM}"/></svg></figure>'
        )

    def _path(self, points: Iterable[Point]) -> str:
        drawn, pen_down = [], False
        for x, y in points:
            if math.isnan(y):
                pen_down = False
                continue
            drawn.append(f"{'L' if pen_down else 'M'}{self.x.at(x):.1f} {self.y.at(y):.1f}")
            pen_down = True
        return "".join(drawn)

    def _axes(self) -> str:
        parts = []
        for tick in self.y.ticks():
            y = self.y.at(tick)
            parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>')
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{self.format_y(tick)}</text>')
        for tick in self.x.ticks() if self.x_ticks is None else self.x_ticks:
            x = self.x.at(tick)
            parts.append(f'<path class="tick" d="M{x:.1f} {HEIGHT - _BOTTOM}v4"/>')
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{self.format_x(tick)}</text>')
        parts.append(f'<path class="axis" d="M{_LEFT} {HEIGHT - _BOTTOM}H{WIDTH - _RIGHT}"/>')
        parts.append(
            f'<text class="label" x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 5}" text-anchor="middle">'
            f"{html.escape(self.x_label)}</text>"
        )
        return "".join(parts)

    def _hover_data(self) -> str:
        data = [[round(self.x.at(hover.x), 1), hover.title, *hover.rows] for hover in self._hovers]
        return html.escape(json.dumps(data, ensure_ascii=False, separators=(",", ":")), quote=True)
