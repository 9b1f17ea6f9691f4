from __future__ import annotations

import json

import pytest

from dragoman.loadtest.figures import Figures
from dragoman.loadtest.sender import Outcome
from dragoman.loadtest.tally import Tally, slice_length_s


def answered(at_s: float) -> Outcome:
    return Outcome(at_s, text="x", source_tokens=2, target_tokens=3, queue_s=0.01)


def test_a_request_belongs_to_the_slice_in_which_it_was_due() -> None:
    tally = Tally(10.0, 1.0)
    tally.record(102.5, answered(107.5), started_at=100.0)
    assert tally.slices[2].latency.max_s == pytest.approx(5.0)
    assert (tally.slices[2].due, tally.slices[2].answered) == (1, 0)
    assert (tally.slices[7].due, tally.slices[7].answered, tally.slices[7].target_tokens) == (0, 1, 3)


def test_the_warm_up_counts_as_output_only() -> None:
    tally = Tally(10.0, 1.0)
    tally.record(99.9, answered(100.1), started_at=100.0)
    tally.record(99.0, answered(99.5), started_at=100.0)
    assert tally.latency.count == 0
    assert Figures.of(tally).answered_rate == pytest.approx(0.1)


def test_an_answer_after_the_end_has_a_latency_and_is_no_throughput() -> None:
    tally = Tally(10.0, 1.0)
    tally.record(9.9, answered(10.2), started_at=0.0)
    assert tally.latency.count == 1
    assert Figures.of(tally).answered_rate == 0


def test_errors_are_counted_by_kind_with_an_example_each() -> None:
    tally = Tally(10.0, 1.0)
    for number in range(3):
        tally.record(1.0, Outcome(1.1, "Overloaded", f"full {number}"), started_at=0.0)
    tally.record(2.0, Outcome(2.1, "DeadlineExceeded", "late"), started_at=0.0)
    tally.record(2.0, answered(2.1), started_at=0.0)
    assert tally.errors == {"Overloaded": 3, "DeadlineExceeded": 1}
    assert tally.examples == {"Overloaded": "full 0", "DeadlineExceeded": "late"}
    assert Figures.of(tally).error_share == pytest.approx(0.8)


def test_streams_have_a_first_token_from_when_they_were_due_and_a_time_per_token() -> None:
    tally = Tally(10.0, 1.0)
    tally.record(1.0, Outcome(2.0, target_tokens=9, first_token_at=1.2), started_at=0.0)
    assert tally.first_token.max_s == pytest.approx(0.2)
    assert tally.per_token.max_s == pytest.approx(0.1)


def test_tallies_of_two_workers_add_up() -> None:
    first, second, both = Tally(10.0, 1.0), Tally(10.0, 1.0), Tally(10.0, 1.0)
    for number in range(20):
        outcome = answered(number / 2 + 0.1) if number % 5 else Outcome(number / 2, "ServerError", "broken")
        for tally in ((first, second)[number % 2], both):
            tally.record(number / 2, outcome, started_at=0.0)
    first.add(second)
    assert first.to_json() == both.to_json()


def test_a_tally_survives_json() -> None:
    tally = Tally(10.0, 1.0)
    tally.record(1.0, answered(1.5), started_at=0.0)
    tally.record(7.0, Outcome(7.5, "ServerError", "broken"), started_at=0.0)
    assert Tally.from_json(json.loads(json.dumps(tally.to_json()))).to_json() == tally.to_json()


@pytest.mark.parametrize(("duration_s", "slices"), [(3.0, 30), (60.0, 60), (200.0, 200), (3600.0, 300)])
def test_a_run_has_neither_too_few_nor_too_many_slices(duration_s: float, slices: int) -> None:
    assert duration_s / slice_length_s(duration_s) == pytest.approx(slices)


def test_requests_that_were_held_back_are_added_up_and_written_down() -> None:
    whole, part = Tally(10.0, 1.0, held_back=2), Tally(10.0, 1.0, held_back=3)
    whole.add(part)
    assert Tally.from_json(json.loads(json.dumps(whole.to_json()))).held_back == 5
