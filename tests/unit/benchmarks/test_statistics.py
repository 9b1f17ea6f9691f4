from __future__ import annotations

import pytest
from benchmarks.statistics import geometric_mean, ratios, spread


def test_a_ratio_compares_the_two_sides_of_each_round() -> None:
    found = ratios(baseline=[2.0, 30.0, 4.0], measured=[1.0, 10.0, 4.0])
    assert (found.median, found.low, found.high, found.rounds) == (2.0, 1.0, 3.0, 3)


def test_rounds_that_have_no_partner_are_refused() -> None:
    with pytest.raises(ValueError, match="pairs"):
        ratios([1.0], [1.0, 2.0])


def test_twice_as_fast_and_half_as_fast_cancel() -> None:
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)


def test_nothing_measured_is_no_figure() -> None:
    with pytest.raises(ValueError, match="no rounds"):
        spread([])
    with pytest.raises(ValueError, match="nothing"):
        geometric_mean([])
