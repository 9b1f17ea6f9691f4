"""The figures of a run, from what was counted."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from dragoman.loadtest.histogram import Histogram
from dragoman.loadtest.tally import Tally

__all__ = ["Figures", "Spread"]


@dataclass(frozen=True, slots=True)
class Spread:
    """How a duration was spread over the requests, in seconds; NaN when there were none."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float

    @staticmethod
    def of(histogram: Histogram) -> Spread:
        p50, p90, p95, p99 = histogram.percentiles_s((50, 90, 95, 99))
        return Spread(histogram.mean_s, p50, p90, p95, p99, histogram.max_s if histogram.count else math.nan)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run comes to. Rates are per second of the measurement."""

    requests: int
    answered_rate: float
    offered_rate: float
    source_token_rate: float
    target_token_rate: float
    error_share: float
    latency: Spread
    first_token: Spread | None
    per_token: Spread | None
    queue: Spread | None

    @staticmethod
    def of(tally: Tally) -> Figures:
        slices = tally.slices.values()
        due = sum(slot.due for slot in slices)
        per_s = 1 / tally.duration_s if tally.duration_s > 0 else math.nan
        return Figures(
            requests=due,
            answered_rate=sum(slot.answered for slot in slices) * per_s,
            offered_rate=due * per_s,
            source_token_rate=sum(slot.source_tokens for slot in slices) * per_s,
            target_token_rate=sum(slot.target_tokens for slot in slices) * per_s,
            error_share=sum(slot.errors for slot in slices) / due if due else math.nan,
            latency=Spread.of(tally.latency),
            first_token=Spread.of(tally.first_token) if tally.first_token.count else None,
            per_token=Spread.of(tally.per_token) if tally.per_token.count else None,
            queue=Spread.of(tally.queue) if tally.queue.count else None,
        )

    def to_json(self) -> dict[str, object]:
        """With None for what has no value: JSON knows no NaN."""
        cleaned = _without_nan(asdict(self))
        if not isinstance(cleaned, dict):  # pragma: no cover - asdict returns a dict
            raise TypeError("figures are a mapping")
        return cleaned


def _without_nan(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
