from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from known_results import result_of

from dragoman.errors import UsageError
from dragoman.loadtest.compare import Difference, compare
from dragoman.loadtest.outputs import write_outputs
from dragoman.loadtest.result import RunResult, read_result


def noisy(seed: int, slower: float = 1.0, errors: int = 0) -> RunResult:
    """Thirty seconds at 40/s whose latencies vary from request to request and, as real ones do, from second to second."""
    chance = random.Random(seed)
    moods = [chance.uniform(0.8, 1.2) for _ in range(31)]
    due = [number / 40 for number in range(1200)]
    return result_of([(at, slower * moods[int(at)] * chance.uniform(0.05, 0.15)) for at in due], 30.0, errors)


def by_name(before: RunResult, after: RunResult) -> dict[str, Difference]:
    return {difference.name: difference for difference in compare(before, after)}


def test_two_runs_of_the_same_server_rarely_differ_with_certainty() -> None:
    certain = [by_name(noisy(2 * seed), noisy(2 * seed + 1))["latency p50"].is_certain for seed in range(20)]
    assert sum(certain) <= 5  # 5% are expected: 1 of 20; six or more would happen once in three thousand times


def test_a_slower_server_is_found_out_and_by_how_much() -> None:
    for seed in range(5):
        p50 = by_name(noisy(seed), noisy(seed + 100, slower=1.3))["latency p50"]
        assert p50.is_worse
        assert p50.low < 0.3 < p50.high
        assert p50.exceeds(0.1)
        assert not p50.exceeds(0.5)


def test_a_faster_server_is_no_regression() -> None:
    p99 = by_name(noisy(1, slower=1.5), noisy(2))["latency p99"]
    assert p99.is_certain
    assert not p99.is_worse
    assert not p99.exceeds(0.0)


def test_new_errors_are_a_regression_in_points_not_in_percent() -> None:
    errors = by_name(noisy(1), noisy(2, errors=300))["errors"]
    assert errors.change == pytest.approx(0.2, abs=0.01)
    assert errors.is_worse


def test_a_lower_rate_is_worse_and_a_higher_one_is_not() -> None:
    many = result_of([(number / 40, 0.1) for number in range(1200)], 30.0)
    few = result_of([(number / 20, 0.1) for number in range(600)], 30.0)
    assert by_name(many, few)["sentences/s"].is_worse
    assert not by_name(few, many)["sentences/s"].is_worse


def test_bleu_is_compared_when_both_runs_have_it() -> None:
    first, second = result_of([(1.0, 0.1)] * 9, bleu=40.0), result_of([(1.0, 0.1)] * 9, bleu=30.0)
    assert by_name(first, second)["BLEU"].change == pytest.approx(-0.25)
    assert "BLEU" not in by_name(first, result_of([(1.0, 0.1)] * 9))


def test_a_run_without_answers_is_not_compared() -> None:
    with pytest.raises(UsageError, match="answered nothing"):
        compare(noisy(1), result_of([], errors=5))


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    result = noisy(1, errors=3)
    (tmp_path / "a.json").write_text(json.dumps(result.to_json()))
    again = read_result(tmp_path / "a.json")
    assert again.to_json() == result.to_json()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not the result of a load test"),
        ('{"kind": "dragoman loadtest", "schema": 99}', "schema 99"),
        ('{"kind": "dragoman loadtest", "schema": 1, "run": {}}', "incomplete"),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(UsageError, match=said):
        read_result(tmp_path / "bad.json")


def test_a_result_that_can_not_be_written_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        write_outputs(tmp_path / "nowhere" / "a", noisy(1), [])
