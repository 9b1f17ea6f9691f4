"""Which translations are suspicious, and what is tried instead."""

from __future__ import annotations

import time

import numpy as np
import pytest

from calm import on_a_calm_machine
from dragoman.search import DecodingOptions
from dragoman.serving.text.suspicion import Evidence, collect_evidence, coverage_of, is_better, longest_answer, other_search


def suspicions(source_tokens: int, target: list[int], ended: bool = True) -> set[str]:
    return set(collect_evidence(source_tokens, target, ended).suspicions)


def test_a_translation_about_as_long_as_its_source_is_not_suspicious() -> None:
    assert collect_evidence(10, list(range(9)), ended=True) == Evidence(0.9)


@pytest.mark.parametrize(
    ("source_tokens", "target", "ended", "expected"),
    [
        (10, list(range(5)), True, {"short"}),
        (10, list(range(6)), True, set()),
        (7, list(range(1)), True, set()),  # "Come in." may be one word
        (10, list(range(25)), True, {"long"}),
        (10, list(range(24)), True, set()),
        (10, list(range(9)), False, {"unfinished"}),
        (10, [7] * 9, True, {"repetition"}),
        (10, [7, 8, 9] * 3, True, {"repetition"}),
        (10, [1, 2, *[7, 8, 9] * 3, 3], True, {"repetition"}),
        (10, [7, 8, 9, 7, 8, 9, 1, 2, 3], True, set()),
        (3, [5, 5, 5], True, set()),  # "no, no, no"
    ],
)
def test_what_is_suspicious(source_tokens: int, target: list[int], ended: bool, expected: set[str]) -> None:
    assert suspicions(source_tokens, target, ended) == expected


@on_a_calm_machine
def test_looking_takes_linear_time() -> None:
    def seconds(length: int) -> float:
        began_s = time.thread_time()
        collect_evidence(length, list(range(length)), ended=True)
        return time.thread_time() - began_s

    once, ten_times = (min(seconds(length) for _ in range(3)) for length in (2_000, 20_000))
    assert ten_times <= 25 * max(once, 0.0002)


def test_an_omission_is_searched_with_a_wider_beam_that_may_not_end_early() -> None:
    options = DecodingOptions(sampling=True, max_length=40)
    other = other_search(options, Evidence(0.3, ("short",)), 20, widest=16)
    assert (other.beam_size, other.min_length, other.sampling, other.no_repeat_ngram_size) == (4, 12, False, 0)


def test_repetition_is_searched_without_repeated_phrases() -> None:
    other = other_search(DecodingOptions(beam_size=6), Evidence(3.0, ("long", "repetition")), 20, widest=16)
    assert (other.beam_size, other.min_length, other.no_repeat_ngram_size) == (6, 0, 3)


def test_the_other_search_stays_within_what_is_allowed() -> None:
    options = DecodingOptions(max_length=5, no_repeat_ngram_size=2)
    other = other_search(options, Evidence(0.2, ("short", "unfinished")), 30, widest=2)
    assert (other.beam_size, other.min_length, other.no_repeat_ngram_size) == (2, 5, 2)


def test_fewer_suspicions_are_better_than_a_better_score() -> None:
    fine, short = Evidence(1.0), Evidence(0.3, ("short",))
    assert is_better((fine, -2.0), (short, -1.0))
    assert not is_better((short, -1.0), (fine, -2.0))
    assert is_better((short, -1.0), (short, -2.0))
    assert not is_better((short, -1.0), (short, -1.0))


def test_the_longest_answer_leaves_room_for_languages_with_long_words() -> None:
    assert longest_answer(1) >= 20
    assert longest_answer(100) >= 400


def test_a_source_token_is_covered_when_it_gets_the_attention_of_one() -> None:
    everything = np.array([[0.9, 0.1, 0.0], [0.1, 0.9, 0.5], [0.0, 0.0, 0.5]], np.float32)
    assert coverage_of(everything) == pytest.approx(1.0)
    assert coverage_of(np.array([[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]], np.float32)) == pytest.approx(0.25)
    assert coverage_of(np.zeros((0, 0), np.float32)) == 1.0


def test_an_uncovered_source_is_suspicious() -> None:
    assert collect_evidence(10, list(range(9)), True, 0.3) == Evidence(0.9, ("uncovered",), 0.3)
    assert collect_evidence(10, list(range(9)), True, 0.9).suspicions == ()
    assert collect_evidence(7, list(range(7)), True, 0.3).suspicions == ()


def test_coverage_decides_between_equal_suspicions() -> None:
    assert is_better((Evidence(1.0, (), 0.9), -1.2), (Evidence(1.0, (), 0.6), -1.0))
    assert not is_better((Evidence(1.0, (), 0.9), -1.2), (Evidence(1.0, (), 0.85), -1.0))
