"""When requests are due: the shape of a load is an object.

A shape is a chain of segments in which the rate runs straight from one value to another, so the number of arrivals up
to a moment, Λ(t) = ∫ rate, and its inverse are formulas: a schedule is exact, and every worker process can compute its
own share of it without the others.

Evenly spaced, arrival k is due where Λ(t) = k + ½. As a Poisson process it is due where Λ(t) is the sum of k + 1
exponential variables: random arrivals of any shape.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from dragoman.errors import UsageError

__all__ = ["SHAPES", "Segment", "Shape", "ShapeName", "shape_named"]

ShapeName = Literal["constant", "ramp", "step", "spike", "poisson"]
SHAPES: tuple[ShapeName, ...] = get_args(ShapeName)

_STAIRS = 5
_QUIET_SHARE = 0.25  # of the spike's rate, before and after it


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time in which the rate runs straight from `start` to `end`, both per second."""

    length_s: float
    start: float
    end: float

    @property
    def arrivals(self) -> float:
        return self.length_s * (self.start + self.end) / 2

    def rate_at(self, offset_s: float) -> float:
        return self.start + (self.end - self.start) * offset_s / self.length_s

    def offset_of(self, arrivals: float) -> float:
        """The moment at which this segment has brought `arrivals`: the root of start·t + slope·t²/2 = arrivals."""
        if arrivals <= 0:
            return 0.0
        slope = (self.end - self.start) / self.length_s
        # Written with the root in the denominator: no cancellation when the slope is small, and right when it is 0.
        return 2 * arrivals / (self.start + math.sqrt(max(self.start**2 + 2 * slope * arrivals, 0.0)))


@dataclass(frozen=True, slots=True)
class Shape:
    """A load over time: `tick` is the rate at a moment, `arrivals` when each request is due."""

    name: str
    segments: tuple[Segment, ...]
    spacing: Literal["even", "poisson"] = "even"

    def __post_init__(self) -> None:
        for segment in self.segments:
            if not (segment.length_s > 0 and segment.start >= 0 and segment.end >= 0):
                raise UsageError(f"{segment} is impossible: a segment needs a length above 0 and rates of at least 0")
        if self.expected_arrivals < 1:
            raise UsageError(
                f"the load {self.name!r} of {self.duration_s:g} s brings less than one request; raise --rate or --duration"
            )

    @property
    def duration_s(self) -> float:
        return sum(segment.length_s for segment in self.segments)

    @property
    def expected_arrivals(self) -> float:
        return sum(segment.arrivals for segment in self.segments)

    @property
    def peak(self) -> float:
        return max(max(segment.start, segment.end) for segment in self.segments)

    def tick(self, elapsed_s: float) -> float | None:
        """The rate at a moment, None when the load is over."""
        for segment in self.segments:
            if elapsed_s < segment.length_s:
                return segment.rate_at(max(elapsed_s, 0.0))
            elapsed_s -= segment.length_s
        return None

    def arrivals(self, seed: int = 0) -> Iterator[float]:
        """Seconds from the start at which each request is due, ascending."""
        begun_s, begun_arrivals = 0.0, 0.0
        dues = self._dues(seed)
        due = next(dues)
        for segment in self.segments:
            while due < begun_arrivals + segment.arrivals:
                yield begun_s + segment.offset_of(due - begun_arrivals)
                due = next(dues)
            begun_s += segment.length_s
            begun_arrivals += segment.arrivals

    def after_warm_up(self, warm_up_s: float) -> Shape:
        """The same load, preceded by `warm_up_s` at its first rate."""
        first = self.segments[0].start
        if warm_up_s <= 0:
            return self
        return replace(self, segments=(Segment(warm_up_s, first, first), *self.segments))

    def _dues(self, seed: int) -> Iterator[float]:
        if self.spacing == "even":
            return (k + 0.5 for k in itertools.count())
        random_numbers = random.Random(seed)  # noqa: S311 - arrivals, not secrets
        return itertools.accumulate(random_numbers.expovariate(1.0) for _ in itertools.count())


def shape_named(name: ShapeName, rate: float, duration_s: float) -> Shape:
    """One of the shapes of the command line; `rate` is the highest it reaches.

    constant  the rate, evenly spaced               ramp   from nothing straight up to the rate
    poisson   the rate, at random                   step   five stairs of equal length up to the rate
    spike     a quarter of the rate, and the rate itself in the middle fifth
    """
    if name == "ramp":
        return Shape(name, (Segment(duration_s, 0.0, rate),))
    if name == "step":
        stairs = (rate * (stair + 1) / _STAIRS for stair in range(_STAIRS))
        return Shape(name, tuple(Segment(duration_s / _STAIRS, stair, stair) for stair in stairs))
    if name == "spike":
        quiet = Segment(duration_s * 0.4, rate * _QUIET_SHARE, rate * _QUIET_SHARE)
        return Shape(name, (quiet, Segment(duration_s * 0.2, rate, rate), quiet))
    return Shape(name, (Segment(duration_s, rate, rate),), "poisson" if name == "poisson" else "even")
