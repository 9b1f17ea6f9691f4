from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import UsageError
from dragoman.loadtest.capacity import TriedRate, find_capacity


@given(st.floats(0.5, 5000), st.floats(0.5, 5000))
def test_the_capacity_is_found_within_five_percent_from_anywhere(true_capacity: float, first_rate: float) -> None:
    found = find_capacity(lambda rate: TriedRate(rate, rate <= true_capacity), first_rate)
    assert true_capacity / 1.06 <= found.rate <= true_capacity


def test_it_takes_few_probes() -> None:
    assert len(find_capacity(lambda rate: TriedRate(rate, rate <= 700), first_rate=50).probes) <= 10


@pytest.mark.parametrize("disturbed", range(8))
def test_one_disturbed_probe_does_not_change_the_capacity(disturbed: int) -> None:
    tried: list[float] = []

    def probe(rate: float) -> TriedRate:
        tried.append(rate)
        return TriedRate(rate, rate <= 700 and len(tried) - 1 != disturbed)

    assert find_capacity(probe, first_rate=50).rate == pytest.approx(700, rel=0.06)


def test_a_server_that_holds_nothing_has_no_capacity() -> None:
    found = find_capacity(lambda rate: TriedRate(rate, False), first_rate=50)
    assert found.rate == 0
    assert not found.client_limited


def test_a_capacity_where_the_client_gave_up_is_a_lower_bound() -> None:
    found = find_capacity(lambda rate: TriedRate(rate, rate <= 300, client_limited=rate > 300), first_rate=100)
    assert found.client_limited
    assert found.rate == pytest.approx(300, rel=0.06)


def test_a_search_needs_a_rate_to_begin_with() -> None:
    with pytest.raises(UsageError):
        find_capacity(lambda rate: TriedRate(rate, True), first_rate=0)
