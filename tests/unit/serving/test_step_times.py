"""The longest step to expect, which the supervisor's hang limit scales with."""

from __future__ import annotations

from dragoman.serving.engine import Counters
from dragoman.serving.process.step_times import StepTimes


def counted(counters: Counters, steps: int, rows: int, seconds: float) -> None:
    counters.steps += steps
    counters.decoded_rows += steps * rows
    counters.step_s += seconds


def test_there_is_none_before_the_first_step() -> None:
    assert StepTimes(Counters(), max_rows=8).longest_s() == 0.0


def test_steps_before_the_first_sample_count() -> None:
    counters = Counters()
    counted(counters, steps=4, rows=8, seconds=2.0)  # the engine has translated something before it was ready
    assert StepTimes(counters, max_rows=8).longest_s() == 0.5


def test_a_step_of_few_rows_stands_for_one_of_a_full_batch() -> None:
    counters = Counters()
    counted(counters, steps=10, rows=2, seconds=1.0)
    assert StepTimes(counters, max_rows=8).longest_s() == 0.4


def test_the_longest_recent_step_is_remembered_while_there_are_shorter_ones() -> None:
    counters = Counters()
    times = StepTimes(counters, max_rows=1)
    for seconds in (0.1, 3.0, 0.1, 0.1):
        counted(counters, steps=1, rows=1, seconds=seconds)
        longest_s = times.longest_s()
    assert abs(longest_s - 3.0) < 1e-9


def test_an_idle_engine_forgets_nothing_and_a_busy_one_forgets_after_a_minute() -> None:
    counters = Counters()
    times = StepTimes(counters, max_rows=1)
    counted(counters, steps=1, rows=1, seconds=3.0)
    assert [times.longest_s() for _ in range(1000)] == [3.0] * 1000
    for _ in range(240):
        counted(counters, steps=1, rows=1, seconds=0.5)
        times.longest_s()
    assert abs(times.longest_s() - 0.5) < 1e-9
