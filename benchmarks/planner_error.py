"""How far `dragoman plan` is from the truth: it sees one load test, and predicts others that are then measured.

python -m benchmarks.planner_error --bundle bundles/tatoeba-en-de
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine, load_average
from benchmarks.replicas import start_replicas
from benchmarks.results import write_results
from dragoman.client.addresses import parse_addresses
from dragoman.loadtest.arrivals import shape_named
from dragoman.loadtest.plan import OpenLoop, Plan
from dragoman.loadtest.planning.simulator import Server, simulate
from dragoman.loadtest.planning.sizing import calibrate, poisson
from dragoman.loadtest.result import RunResult
from dragoman.loadtest.run import run
from dragoman.loadtest.sender import RequestSettings, Target
from dragoman.loadtest.workload import read_workload

WORKLOAD = Path(__file__).resolve().parents[1] / "deploy" / "workload.txt"
NAMES = {"p50": 50, "p95": 95, "p99": 99}


@dataclass(frozen=True)
class Round:
    """A load test to plan from, and others that the plan is held against."""

    seen: RunResult
    measured: dict[float, RunResult]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--highest", type=float, default=24.0, help="requests/s of the load test that is planned from")
    parser.add_argument("--rates", type=float, nargs="+", default=[6.0, 12.0, 18.0, 24.0])
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--beam", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=2, help="of everything; how far they are apart is the noise")
    arguments = parser.parse_args()
    began_load = load_average()
    with tempfile.TemporaryDirectory(prefix="planner-") as directory:
        (replica,) = start_replicas(arguments.bundle.resolve(), Path(directory), 1)
        try:

            def measure(shape: str, rate: float, seconds: float) -> RunResult:
                load = OpenLoop(shape_named(shape, rate, seconds))
                target = Target(parse_addresses(replica.grpc), None)
                settings = RequestSettings(beam_size=arguments.beam)
                plan = Plan(target, read_workload(WORKLOAD).shuffled(1), load, settings, 1, 1.0, seed=1)
                return run(plan, f"http://{replica.metrics}/metrics")

            rounds = [
                Round(
                    measure("step", arguments.highest, 2 * arguments.seconds),
                    {rate: measure("poisson", rate, arguments.seconds) for rate in arguments.rates},
                )
                for _ in range(arguments.rounds)
            ]
        finally:
            replica.kill()
    report(rounds, began_load)


def report(rounds: Sequence[Round], began_load: float) -> None:
    cells = [cell for number, one in enumerate(rounds, start=1) for cell in compared(one, number)]
    errors = {name: median_of(cells, percent, lambda cell: abs(cell["error"])) for name, percent in NAMES.items()}
    noise = {name: noise_of(cells, percent) for name, percent in NAMES.items()}
    figures = {
        "machine": describe_machine(),
        "load_average_before": began_load,
        "cells": cells,
        "median_error": errors,
        "median_difference_between_rounds": noise,
    }
    lines = ["| round | requests/s | | measured | predicted | error |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {cell['round']} | {cell['rate']:g} | p{cell['percent']} | {cell['measured_s'] * 1e3:.0f} ms "
        f"| {cell['predicted_s'] * 1e3:.0f} ms | {cell['error']:+.0%} |"
        for cell in cells
    ]
    lines += [
        "",
        f"Median error: {_percentages(errors)}. The same measurement in two rounds differs by {_percentages(noise)} in the",
    ]
    lines += [f"median: other programs ran at the same time (load average before the run: {began_load:.1f})."]
    write_results("planner_error", figures, "\n".join(lines))


def compared(one: Round, number: int) -> list[dict[str, Any]]:
    """Each measured percentile beside the one predicted from the round's own load test."""
    server = Server()
    profile = calibrate(one.seen, server)
    cells = []
    for rate, result in one.measured.items():
        prediction = simulate(profile, server, poisson(result.figures.offered_rate))
        for percent in NAMES.values():
            truth, guess = result.tally.latency.percentile_s(percent), prediction.percentile_s(percent)
            both = {"measured_s": truth, "predicted_s": guess, "error": guess / truth - 1}
            cells.append({"round": number, "rate": rate, "percent": percent, **both})
    return cells


def noise_of(cells: Sequence[dict[str, Any]], percent: int) -> float:
    """How far the rounds of one measurement are apart, relative to their mean; the median over the rates."""
    by_rate: dict[float, list[float]] = {}
    for cell in cells:
        if cell["percent"] == percent:
            by_rate.setdefault(cell["rate"], []).append(cell["measured_s"])
    return statistics.median((max(values) - min(values)) / statistics.fmean(values) for values in by_rate.values())


def median_of(cells: Sequence[dict[str, Any]], percent: int, value: Callable[[dict[str, Any]], float]) -> float:
    return statistics.median(value(cell) for cell in cells if cell["percent"] == percent)


def _percentages(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.0%}" for name, value in values.items())


if __name__ == "__main__":
    main()
