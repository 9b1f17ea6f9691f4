"""The planner's simulation against the engine itself: same arrivals, same lengths, and a clock that steps move."""

from __future__ import annotations

import numpy as np
import pytest

from dragoman.loadtest.planning.profile import ServerProfile, StepTimes
from dragoman.loadtest.planning.simulator import Server, simulate
from dragoman.search import DecodingOptions
from dragoman.serving.engine import Engine, EngineLimits, Finished, ModelFacts, Sequence
from fake_runtime import FakeRuntime

MODEL = ModelFacts(
    ends=(0,), decoder_start=22, source_vocabulary=23, target_vocabulary=23, max_source_tokens=20, max_target_tokens=20
)
BASE_S, ROW_S = 0.004, 0.001


def engine_latencies(arrivals_s: np.ndarray, lengths: np.ndarray, max_rows: int) -> np.ndarray:
    """What the real engine makes of the requests when a step takes BASE_S and ROW_S a row."""
    now_s = 0.0
    engine = Engine(FakeRuntime(23), MODEL, EngineLimits(max_rows=max_rows, max_beam_size=1), clock=lambda: now_s)
    finished_s = np.zeros(len(arrivals_s))
    arrived, rows = 0, 0
    while arrived < len(arrivals_s) or engine.busy:
        if not engine.busy:
            now_s = max(now_s, float(arrivals_s[arrived]))
        while arrived < len(arrivals_s) and arrivals_s[arrived] <= now_s:
            length = int(lengths[arrived])
            options = DecodingOptions(max_length=length, min_length=length)
            engine.submit(Sequence((3, 4, 5), options, owner=arrived))
            arrived += 1
        events = engine.step()
        now_s += BASE_S + ROW_S * (engine.counters.decoded_rows - rows)
        rows = engine.counters.decoded_rows
        for event in events:
            if isinstance(event, Finished):
                finished_s[event.sequence.owner] = now_s
    return finished_s - arrivals_s


@pytest.mark.parametrize(("rate", "max_rows"), [(5, 128), (60, 128), (90, 128), (40, 4)])
def test_the_simulated_latencies_are_those_of_the_engine(rate: float, max_rows: int) -> None:
    """From idle to full, with a large batch and with one that is always full."""
    rng = np.random.default_rng(5)
    choices = np.array([2, 5, 9, 14])
    arrivals_s, lengths = rng.exponential(1 / rate, 900).cumsum(), rng.choice(choices, 900)
    measured = engine_latencies(arrivals_s, lengths, max_rows)
    profile = ServerProfile(StepTimes(BASE_S, ROW_S, (1.0,), 64.0), tuple(lengths.tolist()), 1.0, rows_per_request=1)
    predicted = simulate(profile, Server(max_rows=max_rows), arrivals_s, warm_up=0.0, steps=lengths)
    for percent in (50, 95, 99):
        assert predicted.percentile_s(percent) == pytest.approx(float(np.percentile(measured, percent)), rel=0.02)
