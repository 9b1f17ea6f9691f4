"""How far `dragoman plan` is from the truth: it sees one load test, and predicts others that are then measured.

python -m benchmarks.planner_error --bundle bundles/tatoeba-en-de      (seven minutes; nothing else may run)

The estimator is fixed. One server is asked as fast as it answers; rates are shares of that, where it is neither idle nor
near its end. In each round a load test in steps is planned from, and each rate is measured with random arrivals. The error
of a run's percentile is predicted / measured − 1; the figure is the median of its absolute value over all runs, and every
run is listed: none is left out, and none repeated.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.machine import describe_machine, load_average
from benchmarks.replicas import start_replicas
from benchmarks.results import ROOT, replace_block, write_results
from dragoman.client.addresses import parse_addresses
from dragoman.loadtest.arrivals import shape_named
from dragoman.loadtest.plan import ClosedLoop, OpenLoop, Plan
from dragoman.loadtest.planning.profile import ServerProfile
from dragoman.loadtest.planning.simulator import Server, simulate
from dragoman.loadtest.planning.sizing import fitted_profile, poisson
from dragoman.loadtest.result import RunResult
from dragoman.loadtest.run import run
from dragoman.loadtest.sender import RequestSettings, Target
from dragoman.loadtest.workload import read_workload

WORKLOAD = ROOT / "deploy" / "workload.txt"
PAGE = ROOT / "docs" / "capacity.md"
PERCENTILES = (50, 95, 99)
SHARES = (0.3, 0.45, 0.6, 0.75)
HIGHEST_SHARE = 0.8
"""Of the load test that is planned from: no measured rate is beyond what the plan has seen."""
USERS = 32
FULL_SPEED_S = 8.0

Measure = Callable[[ClosedLoop | OpenLoop], RunResult]


@dataclass(frozen=True, slots=True)
class Compared:
    """One measured run beside its prediction; `share` is its rate as a part of what the server can do."""

    round: int
    share: float
    rate: float
    requests: int
    failed: float
    measured_s: tuple[float, ...]
    predicted_s: tuple[float, ...]

    def error(self, place: int) -> float:
        return self.predicted_s[place] / self.measured_s[place] - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=2, help="of everything; how far they are apart is the noise")
    parser.add_argument("--beam", type=int, default=None)
    arguments = parser.parse_args()
    began_load = load_average()
    with measuring(arguments.bundle.resolve(), arguments.beam) as measure:
        most = measure(ClosedLoop(USERS, FULL_SPEED_S)).figures.answered_rate
        runs = [
            compared
            for number in range(1, arguments.rounds + 1)
            for compared in one_round(measure, number, most, arguments.seconds)
        ]
    report(runs, most, arguments.seconds, began_load)


@contextmanager
def measuring(bundle: Path, beam_size: int | None) -> Iterator[Measure]:
    """A server of one thread, and what measures it under a load."""
    with tempfile.TemporaryDirectory(prefix="planner-") as directory:
        (replica,) = start_replicas(bundle, Path(directory), 1)

        def measure(load: ClosedLoop | OpenLoop) -> RunResult:
            target, settings = Target(parse_addresses(replica.grpc), None), RequestSettings(beam_size=beam_size)
            plan = Plan(target, read_workload(WORKLOAD).shuffled(1), load, settings, workers=1, seed=1)
            return run(plan, f"http://{replica.metrics}/metrics")

        try:
            yield measure
        finally:
            replica.kill()


def one_round(measure: Measure, number: int, most: float, seconds: float) -> list[Compared]:
    """The load test that is planned from, then every rate."""
    server = Server()
    profile = fitted_profile(measure(OpenLoop(shape_named("step", HIGHEST_SHARE * most, seconds))), server)
    return [
        compare(number, share, profile, server, measure(OpenLoop(shape_named("poisson", share * most, seconds))))
        for share in SHARES
    ]


def compare(number: int, share: float, profile: ServerProfile, server: Server, result: RunResult) -> Compared:
    figures = result.figures
    prediction = simulate(profile, server, poisson(figures.offered_rate))
    return Compared(
        round=number,
        share=share,
        rate=figures.offered_rate,
        requests=figures.requests,
        failed=figures.error_share,
        measured_s=tuple(result.tally.latency.percentile_s(percent) for percent in PERCENTILES),
        predicted_s=tuple(prediction.percentile_s(percent) for percent in PERCENTILES),
    )


def report(runs: Sequence[Compared], most: float, seconds: float, began_load: float) -> None:
    figures = {
        "machine": describe_machine(),
        "load_average_before": began_load,
        "full_speed_per_s": most,
        "seconds": seconds,
        "runs": [asdict(one) for one in runs],
        "median_error": dict(zip(map(str, PERCENTILES), median_errors(runs), strict=True)),
        "difference_between_rounds": dict(zip(map(str, PERCENTILES), noise(runs), strict=True)),
    }
    text = f"{table(runs)}\n\n{summary(runs, most, seconds, began_load)}"
    write_results("planner_error", figures, text)
    replace_block(PAGE, "planner_error", text)


def table(runs: Sequence[Compared]) -> str:
    """Every run in a row, measured → predicted."""
    names = " | ".join(f"p{percent}, ms" for percent in PERCENTILES)
    lines = [f"| round | of full speed | requests/s | requests | failed | {names} |", "|---|---|---|---|---|---|---|---|"]
    for one in runs:
        cells = " | ".join(
            f"{one.measured_s[place] * 1e3:.0f} → {one.predicted_s[place] * 1e3:.0f} ({one.error(place):+.0%})"
            for place in range(len(PERCENTILES))
        )
        row = f"| {one.round} | {one.share:.0%} | {one.rate:.1f} | {one.requests:,} | {one.failed:.1%} | {cells} |"
        lines.append(row)
    return "\n".join(lines)


def summary(runs: Sequence[Compared], most: float, seconds: float, began_load: float) -> str:
    return (
        f"Measured → predicted (error), {seconds:.0f} s a run; one server of one thread: {most:.0f} requests/s, no faster.\n"
        f"Median of the absolute error over all {len(runs)} runs: {_percentages(median_errors(runs))}. The same "
        f"measurement in another round differs by\n{_percentages(noise(runs))} in the median (load average before the first "
        f"run: {began_load:.1f})."
    )


def median_errors(runs: Sequence[Compared]) -> list[float]:
    """Of each percentile."""
    return [statistics.median(abs(one.error(place)) for one in runs) for place in range(len(PERCENTILES))]


def noise(runs: Sequence[Compared]) -> list[float]:
    """How far the rounds of one measurement are apart, relative to their mean; the median over the rates."""
    return [
        statistics.median(_spread([one.measured_s[place] for one in runs if one.share == share]) for share in _shares(runs))
        for place in range(len(PERCENTILES))
    ]


def _shares(runs: Sequence[Compared]) -> list[float]:
    return sorted({one.share for one in runs})


def _spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / statistics.fmean(values)


def _percentages(values: Sequence[float]) -> str:
    return ", ".join(f"p{percent} {value:.0%}" for percent, value in zip(PERCENTILES, values, strict=True))


if __name__ == "__main__":
    main()
