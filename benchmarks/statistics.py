"""Ratios of interleaved rounds: what is said of a comparison is a median and how far the rounds were apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Spread", "geometric_mean", "ratios", "spread"]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some rounds, and the lowest and highest of them."""

    median: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def spread(values: Sequence[float]) -> Spread:
    """All of `values` in four numbers."""
    if not values:
        raise ValueError("a spread of no rounds")
    return Spread(statistics.median(values), min(values), max(values), len(values))


def ratios(baseline: Sequence[float], measured: Sequence[float]) -> Spread:
    """How many times the measured value the baseline is, round by round: both sides of a round saw the same machine."""
    if len(baseline) != len(measured):
        raise ValueError(f"{len(baseline)} rounds against {len(measured)}: rounds are compared in pairs")
    return spread([one / other for one, other in zip(baseline, measured, strict=True)])


def geometric_mean(values: Iterable[float]) -> float:
    """The mean that makes 2x and 0.5x cancel."""
    logarithms = [math.log(value) for value in values]
    if not logarithms:
        raise ValueError("a mean of nothing")
    return math.exp(statistics.fmean(logarithms))
