"""What the engine counts, as metrics: only what is new, and not more often than is due."""

from __future__ import annotations

import pytest

from dragoman.search import DecodingOptions
from dragoman.serving.engine import Engine, EngineLimits, ModelFacts, Sequence
from dragoman.serving.metrics import Recorder
from dragoman.serving.process import metrics_sampler
from dragoman.serving.process.metrics_sampler import MetricsSampler
from fake_runtime import FakeRuntime

MODEL = ModelFacts((0,), 1, 40, 40, max_source_tokens=32, max_target_tokens=32)
FIVE = DecodingOptions(min_length=5, max_length=5)


@pytest.fixture
def engine() -> Engine:
    return Engine(FakeRuntime(40), MODEL, EngineLimits(max_rows=8, max_beam_size=4))


def changes(sampler: MetricsSampler) -> dict[str, float]:
    return {name: amount for name, _, amount in sampler.due_changes(cache_bytes=123)}


def test_metrics_are_what_the_engine_did(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_sampler, "_EVERY_S", 0.0)
    sampler = MetricsSampler(engine, Recorder())
    assert changes(sampler)["dragoman_calls_at_once"] == 1
    for length in (3, 7):  # encoded together: four tokens of padding
        engine.submit(Sequence((5,) * length, FIVE))
    engine.step()
    running = changes(sampler)
    assert (running["dragoman_running_requests"], running["dragoman_batch_occupancy"]) == (2, 2 / 8)
    assert 0 < running["dragoman_cache_used_ratio"] <= 1
    while engine.busy:
        engine.step()
    done = changes(sampler)
    assert running["dragoman_padding_tokens_total"] == 4
    assert running["dragoman_steps_total"] + done["dragoman_steps_total"] == 5
    assert running["dragoman_step_rows_total"] + done["dragoman_step_rows_total"] == 10
    assert (done["dragoman_running_requests"], done["dragoman_batch_occupancy"]) == (0, 0)
    assert done["dragoman_cache_used_ratio"] == 0


def test_nothing_is_sampled_before_it_is_due(engine: Engine) -> None:
    sampler = MetricsSampler(engine, Recorder())
    assert changes(sampler)["dragoman_response_cache_bytes"] == 123
    engine.submit(Sequence((5, 6), FIVE))
    engine.step()
    assert changes(sampler) == {}
