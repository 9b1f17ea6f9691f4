from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import UsageError
from dragoman.loadtest.arrivals import SHAPES, Segment, Shape, shape_named

segments = st.lists(
    st.builds(Segment, st.floats(0.1, 50), st.floats(0, 200), st.floats(0, 200)), min_size=1, max_size=5
).filter(lambda some: sum(segment.arrivals for segment in some) >= 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("constant", 500), ("ramp", 250), ("step", 300), ("spike", 200)],
)
def test_a_shape_brings_the_promised_number_of_arrivals(name: str, expected: int) -> None:
    assert len(list(shape_named(name, rate=50, duration_s=10).arrivals())) == expected  # type: ignore[arg-type]


def test_poisson_arrivals_come_at_the_rate_and_at_random() -> None:
    due = list(shape_named("poisson", rate=100, duration_s=100).arrivals(seed=1))
    gaps = [later - earlier for earlier, later in itertools.pairwise(due)]
    assert len(due) == pytest.approx(10_000, rel=0.04)  # four standard deviations
    assert statistics.mean(gaps) == pytest.approx(0.01, rel=0.04)
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.05)  # what exponential gaps have


def test_a_seed_repeats_poisson_arrivals_and_another_does_not() -> None:
    shape = shape_named("poisson", rate=10, duration_s=10)
    assert list(shape.arrivals(seed=3)) == list(shape.arrivals(seed=3))
    assert list(shape.arrivals(seed=3)) != list(shape.arrivals(seed=4))


def test_constant_arrivals_are_evenly_spaced() -> None:
    due = list(shape_named("constant", rate=4, duration_s=2).arrivals())
    assert due == pytest.approx([0.125, 0.375, 0.625, 0.875, 1.125, 1.375, 1.625, 1.875])


def test_a_spike_stands_in_the_middle() -> None:
    due = list(shape_named("spike", rate=40, duration_s=10).arrivals())
    assert sum(4 <= moment < 6 for moment in due) == 80
    assert sum(moment < 4 for moment in due) == sum(moment >= 6 for moment in due) == 40


@given(segments)
def test_any_shape_brings_as_many_as_the_integral_of_its_rate(some: list[Segment]) -> None:
    shape = Shape("any", tuple(some))
    due = list(shape.arrivals())
    assert abs(len(due) - shape.expected_arrivals) <= 0.5 + 1e-6
    assert due == sorted(due)
    assert all(0 <= moment <= shape.duration_s + 1e-9 for moment in due)


@given(segments, st.floats(0, 1))
def test_the_number_of_arrivals_up_to_any_moment_follows_the_rate(some: list[Segment], share: float) -> None:
    shape = Shape("any", tuple(some))
    moment = share * shape.duration_s
    steps = 2000
    rates = [shape.tick(moment * (step + 0.5) / steps) or 0.0 for step in range(steps)]
    integral = sum(rates) * moment / steps
    assert abs(sum(due <= moment for due in shape.arrivals()) - integral) <= 1 + 200 * 250 / steps


def test_tick_has_the_rate_and_the_end_of_the_load() -> None:
    ramp = shape_named("ramp", rate=100, duration_s=10)
    assert ramp.tick(2.5) == pytest.approx(25)
    assert ramp.tick(10) is None


@pytest.mark.parametrize("name", SHAPES)
def test_no_shape_exceeds_its_rate(name: str) -> None:
    shape = shape_named(name, rate=30, duration_s=10)  # type: ignore[arg-type]
    assert max(shape.tick(moment / 10) or 0 for moment in range(100)) <= 30


def test_a_warm_up_precedes_the_load_at_its_first_rate() -> None:
    step = shape_named("step", rate=50, duration_s=10)
    due = list(step.after_warm_up(2).arrivals())
    assert sum(moment < 2 for moment in due) == 20
    assert [moment - 2 for moment in due if moment >= 2] == pytest.approx(list(step.arrivals()))


@pytest.mark.parametrize("impossible", [(0.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 0.1, 0.1)])
def test_a_load_that_can_bring_no_request_is_refused(impossible: tuple[float, float, float]) -> None:
    with pytest.raises(UsageError):
        Shape("bad", (Segment(*impossible),))
