"""How many servers a rate needs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dragoman.errors import UsageError
from dragoman.loadtest.planning.profile import Floats, ServerProfile, profile_of
from dragoman.loadtest.planning.simulator import Prediction, Server, simulate
from dragoman.loadtest.result import RunResult
from dragoman.loadtest.slo import Objective

__all__ = ["Sizing", "fitted_profile", "poisson", "predicted", "size_for"]

_REQUESTS = 12_000
_SHORTEST_S = 60.0
_MOST_SERVERS = 100_000
_LATENCY = re.compile(r"(queue_)?(?:p(\d+(?:\.\d+)?)|(mean|max))")


@dataclass(frozen=True, slots=True)
class Sizing:
    """A number of servers and what each of them is predicted to do at its share of the rate."""

    replicas: int
    prediction: Prediction
    values: tuple[float, ...]

    def holds(self, objectives: Sequence[Objective]) -> bool:
        return all(one.holds(value) for one, value in zip(objectives, self.values, strict=True))


def poisson(rate: float, seed: int = 0) -> Floats:
    """Arrivals of independent users: enough of them for a p99, and a minute at least."""
    count = int(max(_REQUESTS, rate * _SHORTEST_S))
    return np.random.default_rng(seed).exponential(1 / rate, count).cumsum()


def fitted_profile(result: RunResult, server: Server) -> ServerProfile:
    """The profile of a run, with the overhead that makes its own simulation as fast in the median as the run was."""
    profile = profile_of(result)
    rates = np.array([slot.due for slot in result.tally.ordered()]) / result.tally.slice_s
    arrivals = _replay(rates, result.tally.slice_s)
    simulated_s = simulate(profile, server, arrivals, warm_up=0.0).percentile_s(50)
    measured_s = result.tally.latency.percentile_s(50)
    return dataclasses.replace(profile, overhead_s=max(measured_s - simulated_s, 0.0))


def size_for(
    profile: ServerProfile, server: Server, rate: float, objectives: Sequence[Objective], replicas: int | None = None
) -> Sizing:
    """The fewest servers for which every objective holds, or what `replicas` servers would do."""
    check_objectives(objectives)
    if replicas is not None:
        return _sizing(profile, server, rate, objectives, replicas)

    _check_possible(profile, server, objectives)

    def sized(count: int) -> Sizing:
        return _sizing(profile, server, rate, objectives, count)

    enough, too_few = _least(profile, server, rate), 0
    while not (sizing := sized(enough)).holds(objectives):
        if enough >= _MOST_SERVERS:
            raise UsageError(
                f"even {enough:,} servers do not keep the objectives at {rate:g}/s; plan for less, or allow more"
            )
        too_few, enough = enough, 2 * enough
    while sizing.replicas - too_few > 1:  # bisection
        middle = sized((sizing.replicas + too_few) // 2)
        if middle.holds(objectives):
            sizing = middle
        else:
            too_few = middle.replicas
    return sizing


def check_objectives(objectives: Sequence[Objective]) -> None:
    """Only what a simulation can tell."""
    for one in objectives:
        if _LATENCY.fullmatch(one.name) is None and one.name != "errors":
            raise UsageError(f"a plan can't keep {one.written!r}: it knows latencies (p99, queue_p95, mean, max) and errors")


def predicted(name: str, prediction: Prediction) -> float:
    """The predicted value of an objective."""
    if name == "errors":
        return prediction.refused
    match = _LATENCY.fullmatch(name)
    if match is None:
        raise UsageError(f"a plan knows no {name!r}")
    values = prediction.queue_s if match[1] else prediction.latencies_s
    if not len(values):
        return float("inf")
    if match[2]:
        return float(np.percentile(values, float(match[2])))
    return float(values.mean() if match[3] == "mean" else values.max())


def _check_possible(profile: ServerProfile, server: Server, objectives: Sequence[Objective]) -> None:
    """A request that has a server to itself must keep the objectives, or no number of servers does."""
    alone = simulate(
        profile, server, np.arange(2000) * 100 * profile.mean_steps * profile.steps.at(profile.rows_per_request)
    )
    broken = [one.written for one in objectives if not one.holds(predicted(one.name, alone))]
    if broken:
        raise UsageError(
            f"no number of servers keeps {', '.join(broken)}: a request that has a server to itself does not. Use a faster "
            "machine or model, or allow more"
        )


def _sizing(profile: ServerProfile, server: Server, rate: float, objectives: Sequence[Objective], replicas: int) -> Sizing:
    # Each of many servers sees independent arrivals; taking turns, they would see steadier ones: this errs on the safe side.
    prediction = simulate(profile, server, poisson(rate / replicas))
    return Sizing(replicas, prediction, tuple(predicted(one.name, prediction) for one in objectives))


def _least(profile: ServerProfile, server: Server, rate: float) -> int:
    """Servers that could carry the rate if every batch were full: fewer are never enough."""
    step_s = profile.steps.at(server.max_rows / profile.calls_at_once)
    requests_per_s = server.max_rows / profile.rows_per_request / step_s / profile.mean_steps
    return max(1, int(rate / requests_per_s))


def _replay(rates: Floats, slice_s: float) -> Floats:
    """Evenly spaced arrivals with the rates that the run had in its slices."""
    times = [
        (index + (number + 0.5) / round(rate * slice_s)) * slice_s
        for index, rate in enumerate(rates)
        for number in range(round(rate * slice_s))
    ]
    return np.array(times)
