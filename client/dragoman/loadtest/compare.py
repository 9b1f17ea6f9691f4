"""The difference of two runs, with its uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dragoman.errors import UsageError
from dragoman.loadtest.bootstrap import PERCENTS, Draws, draw
from dragoman.loadtest.figures import Figures
from dragoman.loadtest.result import RunResult

__all__ = ["Difference", "compare", "unlike"]

_DRAWS = 2000
_CONFIDENCE = 0.95

Unit = Literal["per_s", "s", "share", "number"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure before and after; `low` and `high` enclose its relative change with 95% confidence.

    A share of errors has no relative change worth the name: its change is absolute.
    """

    name: str
    unit: Unit
    lower_is_better: bool
    before: float
    after: float
    change: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        """The interval leaves out zero: more than luck."""
        return self.low > 0 or self.high < 0

    @property
    def is_worse(self) -> bool:
        return self.is_certain and (self.change > 0) == self.lower_is_better

    def exceeds(self, limit: float) -> bool:
        """Worse by more than `limit`, and certainly worse at all."""
        return self.is_worse and abs(self.change) > limit


def compare(before: RunResult, after: RunResult, seed: int = 0) -> list[Difference]:
    """Rate, latencies and errors of two runs; BLEU when both have it."""
    for name, result in (("first", before), ("second", after)):
        if not result.tally.latency.count:
            raise UsageError(f"the {name} run answered nothing; there is nothing to compare")
    draws = draw(before.tally, _DRAWS, seed), draw(after.tally, _DRAWS, seed + 1)
    old, new = before.figures, after.figures
    found = [
        _relative("sentences/s", "per_s", False, (old.answered_rate, new.answered_rate), [d.rate for d in draws]),
        _relative(
            "target tokens/s",
            "per_s",
            False,
            (old.target_token_rate, new.target_token_rate),
            [d.target_token_rate for d in draws],
        ),
        _relative("latency mean", "s", True, (old.latency.mean, new.latency.mean), [d.latency_mean for d in draws]),
        *(_percentile(old, new, draws, column) for column in range(len(PERCENTS))),
        _absolute("errors", (old.error_share, new.error_share), [d.error_share for d in draws]),
    ]
    return [*found, *_bleu(before, after)]


def unlike(before: RunResult, after: RunResult) -> list[str]:
    """What was not the same in the two runs, so that the server is not blamed for it."""
    pairs = {
        "load": (before.info.load, after.info.load),
        "workload": (before.info.workload, after.info.workload),
        "model": (before.info.model, after.info.model),
        "beam": (before.info.beam_size, after.info.beam_size),
        "streaming": (before.info.stream, after.info.stream),
    }
    return [f"{name}: {old} and {new}" for name, (old, new) in pairs.items() if old != new]


def _percentile(old: Figures, new: Figures, draws: tuple[Draws, Draws], column: int) -> Difference:
    name = f"p{PERCENTS[column]:g}"
    values = getattr(old.latency, name), getattr(new.latency, name)
    return _relative(f"latency {name}", "s", True, values, [d.latency[:, column] for d in draws])


def _relative(
    name: str, unit: Unit, lower_is_better: bool, values: tuple[float, float], draws: list[NDArray[np.float64]]
) -> Difference:
    before, after = values
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = _interval(draws[1] / draws[0] - 1)
    change = after / before - 1 if before else math.nan
    return Difference(name, unit, lower_is_better, before, after, change, low, high)


def _absolute(name: str, values: tuple[float, float], draws: list[NDArray[np.float64]]) -> Difference:
    low, high = _interval(draws[1] - draws[0])
    return Difference(name, "share", True, *values, values[1] - values[0], low, high)


def _interval(changes: NDArray[np.float64]) -> tuple[float, float]:
    """NaN both ways when a draw had nothing to divide by."""
    if not np.isfinite(changes).all():
        return math.nan, math.nan
    low, high = np.quantile(changes, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return float(low), float(high)


def _bleu(before: RunResult, after: RunResult) -> list[Difference]:
    """Exact when both runs have answered the same number of sentences: answers do not vary by chance."""
    old, new = before.quality, after.quality
    if old.bleu is None or new.bleu is None:
        return []
    change = new.bleu / old.bleu - 1 if old.bleu else math.nan
    bound = change if (old.items, old.signature) == (new.items, new.signature) else math.nan
    return [Difference("BLEU", "number", False, old.bleu, new.bleu, change, bound, bound)]
