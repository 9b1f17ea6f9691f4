"""What a reader of a run's figures must know before believing them."""

from __future__ import annotations

from dragoman.counts import counted
from dragoman.loadtest.result import RunResult

__all__ = ["remarks_on"]

_UNMET_SHARE = 0.95


def remarks_on(result: RunResult) -> list[str]:
    """Sentences, the gravest first; none is the best report."""
    remarks = [f"The client was the limit, not the server: {limit}." for limit in result.client.limits]
    remarks += [f"Caution: {caution}." for caution in result.client.cautions]
    if result.info.interrupted:
        remarks.append(f"The run was interrupted after {result.tally.duration_s:.1f} s; the figures are of that time.")
    figures = result.figures
    failed = figures.offered_rate * figures.error_share
    if figures.answered_rate < _UNMET_SHARE * (figures.offered_rate - failed):
        remarks.append(
            f"The server fell behind: {figures.offered_rate:.1f} requests per second were due and "
            f"{figures.answered_rate:.1f} were answered. Latencies grew with the length of the run."
        )
    if result.tally.held_back:
        remarks.append(
            f"{counted(result.tally.held_back, 'request')} left late, because as many as a run keeps open were not "
            "answered yet. Their latencies count from when they were due."
        )
    if result.info.load.startswith("closed loop"):
        remarks.append("Closed loop: a slow server gets fewer requests. For latencies under load use --rate.")
    if result.quality.changing_items:
        remarks.append(
            f"{result.quality.changing_items} of {counted(result.quality.items, 'sentence')} were translated in more "
            "than one way."
        )
    if result.info.metrics_problem:
        remarks.append(f"No batch occupancy: {result.info.metrics_problem}.")
    return remarks
