from __future__ import annotations

import math

import pytest
from known_results import result_of

from dragoman.errors import UsageError
from dragoman.loadtest.answers import Quality
from dragoman.loadtest.quantities import duration_s, format_duration, percentage, rate_per_s
from dragoman.loadtest.slo import judge, parse_objectives


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("60s", 60), ("2m", 120), ("1h", 3600), ("1.5", 1.5), ("250 us", 250e-6)]
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "rate"), [("50/s", 50), ("3000/m", 50), ("50", 50), ("0.5 / s", 0.5)])
def test_rates_are_read(text: str, rate: float) -> None:
    assert rate_per_s(text) == pytest.approx(rate)


@pytest.mark.parametrize("read", [duration_s, rate_per_s, percentage])
@pytest.mark.parametrize("text", ["", "fast", "-1", "1 lightyear", "nan", "1e400"])
def test_what_is_no_quantity_is_refused_with_an_example(read: object, text: str) -> None:
    with pytest.raises(UsageError, match="write it like"):
        read(text)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0000421, "42 µs"), (0.00123, "1.23 ms"), (0.0456, "45.6 ms"), (1.5, "1.50 s"), (321, "321 s")]
)
def test_durations_are_written_with_three_digits(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("written", "holds"),
    [
        ("p99<500ms", True),
        ("p99<100ms", False),
        ("p50<=100.5ms", True),
        ("p99.9<0.2s", False),
        ("max<1s", True),
        ("mean>1ms", True),
        ("errors<30%", True),
        ("errors<0.1", False),
        ("rate>4/s", True),
        ("rate>400/m", False),
        ("tokens>1/s", True),
        ("bleu>40", True),
        ("bleu>60", False),
    ],
)
def test_an_objective_is_held_against_the_run(written: str, holds: bool) -> None:
    # Ten seconds: 40 answers of 100 ms, 5 of 200 ms, 10 errors.
    result = result_of([(second / 4, 0.1) for second in range(40)] + [(5.0, 0.2)] * 5, errors=10, bleu=50.0)
    (verdict,) = judge(parse_objectives([written]), result)
    assert verdict.holds is holds


def test_several_objectives_stand_in_one_text_or_in_several() -> None:
    objectives = parse_objectives(["p99<500ms, errors < 1%", "rate>40/s"])
    assert [(one.name, one.comparison, one.limit) for one in objectives] == [
        ("p99", "<", 0.5),
        ("errors", "<", 0.01),
        ("rate", ">", 40),
    ]


@pytest.mark.parametrize("written", ["", "p99", "p99=500ms", "p101<1s", "p0<1s", "speed>9/s", "p99<fast", "errors<1%,"])
def test_what_is_no_objective_is_refused(written: str) -> None:
    with pytest.raises(UsageError):
        parse_objectives([written])


def test_an_objective_on_what_was_not_measured_does_not_hold() -> None:
    result = result_of([(1.0, 0.1)])
    assert result.quality == Quality(0, 0, None, None)
    verdicts = judge(parse_objectives(["bleu>0", "first_token_p50<10s", "first_token_max<10s"]), result)
    assert [verdict.holds for verdict in verdicts] == [False, False, False]
    assert all(math.isnan(verdict.value) for verdict in verdicts)
