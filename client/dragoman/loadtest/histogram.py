"""Durations in buckets of equal relative width: any number of them in bounded memory, exact to 0.1%.

The layout is that of HdrHistogram: below 1024 µs a bucket is one microsecond; above, every doubling of the value is
cut in 1024 parts. Buckets are sparse, so that a slice of one second costs what its few requests cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["Histogram", "bucket_of", "value_of"]

_BITS = 10
_PARTS = 1 << _BITS


def bucket_of(microseconds: int) -> int:
    """The bucket a value falls in; monotonic, and exact below 1024."""
    if microseconds < _PARTS:
        return microseconds
    shift = microseconds.bit_length() - _BITS - 1
    return (shift << _BITS) + (microseconds >> shift)


def value_of(bucket: int) -> float:
    """The middle of a bucket, in microseconds."""
    if bucket < 2 * _PARTS:
        return float(bucket)
    shift = (bucket >> _BITS) - 1
    lowest = (bucket - (shift << _BITS)) << shift
    return lowest + ((1 << shift) - 1) / 2


@dataclass(slots=True)
class Histogram:
    """Counts of durations; `add` merges what another process has counted."""

    counts: dict[int, int] = field(default_factory=dict)
    count: int = 0
    sum_s: float = 0.0
    min_s: float = math.inf
    max_s: float = 0.0

    def record(self, seconds: float) -> None:
        seconds = max(seconds, 0.0)  # two clocks read a microsecond apart may disagree
        bucket = bucket_of(round(seconds * 1e6))
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.count += 1
        self.sum_s += seconds
        self.min_s = min(self.min_s, seconds)
        self.max_s = max(self.max_s, seconds)

    def add(self, other: Histogram) -> None:
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.count += other.count
        self.sum_s += other.sum_s
        self.min_s = min(self.min_s, other.min_s)
        self.max_s = max(self.max_s, other.max_s)

    @property
    def mean_s(self) -> float:
        return self.sum_s / self.count if self.count else math.nan

    def percentile_s(self, percent: float) -> float:
        """The smallest value that `percent` of all do not exceed; NaN when there is none."""
        return self.percentiles_s([percent])[0]

    def percentiles_s(self, percents: Iterable[float]) -> list[float]:
        """Several at once; they must ascend."""
        buckets = sorted(self.counts)
        found, seen, at = [], 0, -1
        for percent in percents:
            if not self.count:
                found.append(math.nan)
                continue
            rank = max(1, math.ceil(self.count * percent / 100 - 1e-9))
            while seen < rank:
                at += 1
                seen += self.counts[buckets[at]]
            value_s = min(max(value_of(buckets[at]) * 1e-6, self.min_s), self.max_s)
            found.append(self.max_s if rank == self.count else value_s)
        return found

    def values_s(self) -> Iterator[tuple[float, int]]:
        """(value, how many) of every bucket in use, ascending."""
        for bucket in sorted(self.counts):
            yield min(max(value_of(bucket) * 1e-6, self.min_s), self.max_s), self.counts[bucket]

    def to_json(self) -> dict[str, object]:
        return {
            "buckets": sorted(self.counts),
            "counts": [self.counts[bucket] for bucket in sorted(self.counts)],
            "sum_s": self.sum_s,
            "min_s": self.min_s if self.count else 0.0,
            "max_s": self.max_s,
        }

    @staticmethod
    def from_json(raw: Mapping[str, object]) -> Histogram:
        buckets, counts = raw["buckets"], raw["counts"]
        if not isinstance(buckets, list) or not isinstance(counts, list) or len(buckets) != len(counts):
            raise ValueError("a histogram needs as many counts as buckets")
        filled = Histogram(dict(zip(map(int, buckets), map(int, counts), strict=True)))
        filled.count = sum(filled.counts.values())
        filled.sum_s, filled.max_s = float(str(raw["sum_s"])), float(str(raw["max_s"]))
        filled.min_s = float(str(raw["min_s"])) if filled.count else math.inf
        return filled
