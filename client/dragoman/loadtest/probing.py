"""Runs as probes of a search for the capacity."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dragoman.loadtest.arrivals import Segment
from dragoman.loadtest.capacity import Capacity, TriedRate, find_capacity
from dragoman.loadtest.plan import OpenLoop, Plan, default_workers
from dragoman.loadtest.result import RunResult
from dragoman.loadtest.run import Observer, run
from dragoman.loadtest.slo import Objective, judge

__all__ = ["search_capacity"]

_KEPT_UP = 0.95


class _Interrupted(Exception):
    """Ctrl-C during a probe: the search ends with what it knows."""


def search_capacity(
    plan: Plan, objectives: Sequence[Objective], metrics_url: str | None, observe: Observer, first_rate: float
) -> tuple[RunResult, Capacity]:
    """The run at the highest rate that held (or at the lowest tried, when none did), and all the probes."""
    results: list[tuple[TriedRate, RunResult]] = []

    def probe(rate: float) -> TriedRate:
        result = run(_at(plan, rate), metrics_url, observe)
        results.append((_judged(rate, objectives, result), result))
        if result.info.interrupted:
            raise _Interrupted
        return results[-1][0]

    try:
        capacity = find_capacity(probe, first_rate)
    except _Interrupted:
        capacity = Capacity(tuple(tried for tried, _ in results))
        return results[-1][1], capacity
    held = [pair for pair in results if pair[0].holds]
    best = max(held, key=lambda pair: pair[0].rate) if held else min(results, key=lambda pair: pair[0].rate)
    return best[1], capacity


def _at(plan: Plan, rate: float) -> Plan:
    """The same plan at another rate, with the workers that rate needs."""
    if not isinstance(plan.load, OpenLoop):  # pragma: no cover - the command has refused it
        raise TypeError("only an open loop has a rate")
    shape = dataclasses.replace(plan.load.shape, segments=(Segment(plan.load.duration_s, rate, rate),))
    load = OpenLoop(shape)
    return dataclasses.replace(plan, load=load, workers=max(plan.workers, default_workers(load)))


def _judged(rate: float, objectives: Sequence[Objective], result: RunResult) -> TriedRate:
    """Whether every objective held and the server kept up.

    A queue that grows all the time may not have reached the latency limit when a short probe ends; it would have.
    """
    figures = result.figures
    broken = [str(verdict) for verdict in judge(objectives, result) if not verdict.holds]
    if figures.answered_rate < _KEPT_UP * figures.offered_rate * (1 - figures.error_share):
        broken.append(f"kept up: {figures.answered_rate:.1f}/s of {figures.offered_rate:.1f}/s")
    return TriedRate(
        rate,
        not broken,
        "; ".join(broken),
        client_limited=bool(result.client.limits),
        p50_s=figures.latency.p50,
        p99_s=figures.latency.p99,
    )
