"""Results of runs that never ran: known requests, known latencies."""

from __future__ import annotations

import dataclasses

from dragoman.loadtest.answers import Quality
from dragoman.loadtest.client_use import ClientUse
from dragoman.loadtest.result import RunInfo, RunResult
from dragoman.loadtest.scraper import ServerSample
from dragoman.loadtest.sender import Outcome
from dragoman.loadtest.tally import Tally

INFO = RunInfo(
    target="localhost:8001",
    workload="test.txt",
    sentences=100,
    load="open loop, constant, up to 50/s",
    model=None,
    beam_size=4,
    stream=False,
    workers=1,
    warm_up_s=1.0,
    seed=0,
    started="2025-01-01T12:00:00+01:00",
)


def result_of(
    requests: list[tuple[float, float]],
    duration_s: float = 10.0,
    errors: int = 0,
    bleu: float | None = None,
    server: tuple[ServerSample, ...] = (),
) -> RunResult:
    """A run of requests (due at second, latency in seconds), and errors spread evenly over it."""
    tally = Tally(duration_s, slice_s=duration_s / 30)
    for due_s, latency_s in requests:
        outcome = Outcome(due_s + latency_s, text="x", source_tokens=4, target_tokens=6, queue_s=latency_s / 2)
        tally.record(due_s, outcome, started_at=0.0)
    for number in range(errors):
        due_s = duration_s * number / errors
        tally.record(due_s, Outcome(due_s, "Overloaded", "the queue is full (256 requests)"), started_at=0.0)
    for _ in requests:
        tally.lag.record(0.0003)
    quality = Quality(0, 0, None, None) if bleu is None else Quality(len(requests), 0, bleu, "nrefs:1")
    client = ClientUse((0.2,), 0.5, 0.0003, 0.0005, 0.1)
    return RunResult(INFO, tally, client, quality, server)


def with_client(result: RunResult, client: ClientUse) -> RunResult:
    return dataclasses.replace(result, client=client)
