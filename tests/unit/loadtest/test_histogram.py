from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.loadtest.histogram import Histogram, bucket_of, value_of

durations_s = st.floats(min_value=1e-6, max_value=3600.0)


def filled(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(st.integers(min_value=0, max_value=2**42))
def test_a_bucket_is_exact_to_a_thousandth(microseconds: int) -> None:
    assert value_of(bucket_of(microseconds)) == pytest.approx(microseconds, rel=1 / 1024, abs=0)


@given(st.integers(min_value=0, max_value=2**42))
def test_buckets_ascend_without_holes(microseconds: int) -> None:
    assert bucket_of(microseconds + 1) - bucket_of(microseconds) in (0, 1)


@given(st.lists(durations_s, min_size=1), st.floats(min_value=0.1, max_value=100))
def test_a_percentile_is_the_nearest_rank_of_the_sorted_values(values: list[float], percent: float) -> None:
    exact = sorted(values)[max(1, math.ceil(len(values) * percent / 100 - 1e-9)) - 1]
    assert filled(values).percentile_s(percent) == pytest.approx(exact, rel=1.1e-3, abs=1e-6)


@given(st.lists(durations_s), st.lists(durations_s))
def test_merged_histograms_are_the_histogram_of_all(first: list[float], second: list[float]) -> None:
    merged, whole = filled(first), filled(first + second)
    merged.add(filled(second))
    assert merged.counts == whole.counts
    assert (merged.count, merged.min_s, merged.max_s) == (whole.count, whole.min_s, whole.max_s)
    assert merged.sum_s == pytest.approx(whole.sum_s)


@given(st.lists(durations_s))
def test_a_histogram_survives_json(values: list[float]) -> None:
    histogram = filled(values)
    assert Histogram.from_json(json.loads(json.dumps(histogram.to_json()))) == histogram


def test_the_maximum_is_exact_and_no_percentile_exceeds_it() -> None:
    histogram = filled([0.1, 0.2, 0.7654321])
    assert histogram.max_s == 0.7654321
    assert histogram.percentile_s(100) == 0.7654321


def test_an_empty_histogram_has_no_percentiles() -> None:
    assert math.isnan(Histogram().percentile_s(50))
    assert math.isnan(Histogram().mean_s)


def test_memory_is_bounded_however_many_values_come() -> None:
    histogram = filled([0.01 + (number % 5000) * 1e-5 for number in range(50_000)])
    assert len(histogram.counts) < 4000
    assert histogram.count == 50_000
