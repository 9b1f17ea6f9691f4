"""Service level objectives as people write them: `p99<500ms, errors<1%, rate>40/s`.

objective  = name ("<" | "<=" | ">" | ">=") value
name       = ["first_token_" | "per_token_" | "queue_"] ("p50" … "p99.9" | "mean" | "max")     a duration
           | "errors"                                                                          a share
           | "rate" | "source_tokens" | "tokens"                                               per second
           | "bleu"                                                                            a number
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dragoman.errors import UsageError
from dragoman.loadtest.histogram import Histogram
from dragoman.loadtest.quantities import duration_s, format_duration, percentage, rate_per_s
from dragoman.loadtest.result import RunResult

__all__ = ["Objective", "Verdict", "judge", "parse_objectives"]

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OBJECTIVE = re.compile(r"\s*([a-z_]+(?:\d+(?:\.\d+)?)?)\s*(<=|>=|<|>)\s*(.+?)\s*")
_SPREAD = re.compile(r"(first_token_|per_token_|queue_)?(?:p(\d+(?:\.\d+)?)|(mean|max))")
_RATES = ("rate", "tokens", "source_tokens")
_EXAMPLE = "p99<500ms, errors<1%, rate>40/s"


@dataclass(frozen=True, slots=True)
class Objective:
    """One promise; `limit` is in seconds, per second or a share."""

    written: str
    name: str
    comparison: str
    limit: float

    def holds(self, value: float) -> bool:
        """NaN (nothing was measured) holds nothing."""
        return _COMPARE[self.comparison](value, self.limit)

    def format(self, value: float) -> str:
        if math.isnan(value):
            return "not measured"
        if self.name == "errors":
            return f"{value:.2%}"
        if self.name in _RATES:
            return f"{value:.1f}/s"
        return f"{value:.1f}" if self.name == "bleu" else format_duration(value)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An objective beside what was measured."""

    objective: Objective
    value: float

    @property
    def holds(self) -> bool:
        return self.objective.holds(self.value)

    def __str__(self) -> str:
        return f"{self.objective.written}: {self.objective.format(self.value)}"


def parse_objectives(texts: Iterable[str]) -> tuple[Objective, ...]:
    """Objectives from texts in which several may stand, separated by commas."""
    return tuple(_parse(part) for text in texts for part in text.split(","))


def judge(objectives: Iterable[Objective], result: RunResult) -> list[Verdict]:
    """Every objective beside its measured value."""
    return [Verdict(objective, _measured(objective.name, result)) for objective in objectives]


def _parse(text: str) -> Objective:
    match = _OBJECTIVE.fullmatch(text)
    if match is None:
        raise UsageError(f"--slo {text.strip()!r} is not an objective; write it like {_EXAMPLE}")
    name, comparison, value = match[1], match[2], match[3]
    return Objective(text.strip(), name, comparison, _limit(name, value))


def _limit(name: str, value: str) -> float:
    if name == "errors":
        return percentage(value)
    if name in _RATES:
        return rate_per_s(value)
    if name == "bleu":
        return percentage(value)
    spread = _SPREAD.fullmatch(name)
    if spread is None or not 0 < float(spread[2] or 1) <= 100:
        raise UsageError(f"--slo knows no {name!r}; it knows p50 … p99.9, mean, max, errors, rate, tokens and bleu")
    return duration_s(value)


def _measured(name: str, result: RunResult) -> float:
    figures = result.figures
    if name == "errors":
        return figures.error_share
    if name in _RATES:
        rates = (figures.answered_rate, figures.target_token_rate, figures.source_token_rate)
        return dict(zip(_RATES, rates, strict=True))[name]
    if name == "bleu":
        return math.nan if result.quality.bleu is None else result.quality.bleu
    match = _SPREAD.fullmatch(name)
    if match is None:  # pragma: no cover - _limit has refused it
        raise UsageError(f"unknown objective {name!r}")
    histogram = _histogram(match[1], result)
    if match[2]:
        return histogram.percentile_s(float(match[2]))
    return histogram.mean_s if match[3] == "mean" else (histogram.max_s if histogram.count else math.nan)


def _histogram(prefix: str | None, result: RunResult) -> Histogram:
    if prefix is None:
        return result.tally.latency
    return {
        "first_token_": result.tally.first_token,
        "per_token_": result.tally.per_token,
        "queue_": result.tally.queue,
    }[prefix]
