"""Turns the engine's counters into metrics once a second."""

from __future__ import annotations

import copy
import time

from dragoman.serving import metrics
from dragoman.serving.engine import Counters, Engine

__all__ = ["MetricsSampler"]

_EVERY_S = 1.0


class MetricsSampler:
    """Compares the engine's counters with their last values."""

    def __init__(self, engine: Engine, recorder: metrics.Recorder) -> None:
        self._engine, self._recorder = engine, recorder
        self._before = Counters()
        self._due_s = 0.0

    def due_changes(self, cache_bytes: int) -> list[metrics.Change]:
        """The changes, when a sample is due; otherwise nothing."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return []
        self._due_s = now_s + _EVERY_S
        self._count()
        self._gauge(cache_bytes)
        return self._recorder.take_changes()

    def _count(self) -> None:
        before, now, count = self._before, self._engine.counters, self._recorder.count
        padded = now.encoded_slots - before.encoded_slots
        count(metrics.PADDING_TOKENS, padded - (now.encoded_tokens - before.encoded_tokens))
        count(metrics.STEPS, now.steps - before.steps)
        count(metrics.STEP_ROWS, now.decoded_rows - before.decoded_rows)
        count(metrics.STEP_SECONDS, now.quantum_s - before.quantum_s)
        count(metrics.PREEMPTIONS, now.preemptions - before.preemptions)
        self._before = copy.copy(now)

    def _gauge(self, cache_bytes: int) -> None:
        gauges, put = self._engine.gauges(), self._recorder.set
        put(metrics.RUNNING, gauges.running_requests)
        put(metrics.QUEUED, gauges.queued_requests)
        put(metrics.OCCUPANCY, gauges.running_rows / gauges.max_rows)
        put(metrics.CACHE_USED, gauges.kv_slots_reserved / gauges.kv_slots_limit)
        put(metrics.CALLS_AT_ONCE, gauges.calls_at_once)
        put(metrics.SESSIONS, gauges.sessions)
        put(metrics.CACHE_BYTES, cache_bytes)
