"""How far `dragoman plan` is from the truth: it sees one load test, and predicts others that are then measured.

python -m benchmarks.planner_error --bundle bundles/tatoeba-en-de
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
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
PERCENTS = (50, 95, 99)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--highest", type=float, default=24.0, help="requests/s of the load test that is planned from")
    parser.add_argument("--rates", type=float, nargs="+", default=[6.0, 12.0, 18.0, 24.0])
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--beam", type=int, default=None)
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

            seen = measure("step", arguments.highest, 2 * arguments.seconds)
            measured = {rate: measure("poisson", rate, arguments.seconds) for rate in arguments.rates}
        finally:
            replica.kill()
    report(seen, measured, began_load)


def report(seen: RunResult, measured: dict[float, RunResult], began_load: float) -> None:
    server = Server()
    profile = calibrate(seen, server)
    cells: list[dict[str, Any]] = []
    for rate, result in measured.items():
        prediction = simulate(profile, server, poisson(result.figures.offered_rate))
        for percent in PERCENTS:
            truth, guess = result.tally.latency.percentile_s(percent), prediction.percentile_s(percent)
            cells.append(
                {"rate": rate, "percent": percent, "measured_s": truth, "predicted_s": guess, "error": guess / truth - 1}
            )
    figures = {
        "machine": describe_machine(),
        "load_average_before": began_load,
        "step_s": {"base": profile.steps.base_s, "row": profile.steps.row_s},
        "overhead_s": profile.overhead_s,
        "cells": cells,
        "median_error": {
            f"p{percent}": statistics.median(abs(cell["error"]) for cell in cells if cell["percent"] == percent)
            for percent in PERCENTS
        },
    }
    lines = [
        f"A step takes {profile.steps.base_s * 1e3:.2f} ms + {profile.steps.row_s * 1e3:.3f} ms a row; a request "
        f"{profile.overhead_s * 1e3:.1f} ms besides.",
        "",
        "| requests/s | | measured | predicted | error |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {cell['rate']:g} | p{cell['percent']} | {cell['measured_s'] * 1e3:.0f} ms | {cell['predicted_s'] * 1e3:.0f} ms "
        f"| {cell['error']:+.0%} |"
        for cell in cells
    ]
    errors = ", ".join(f"{name} {error:.0%}" for name, error in figures["median_error"].items())  # type: ignore[attr-defined]
    lines.append(f"\nMedian error: {errors}. Load average before the run: {began_load:.1f}; other programs ran meanwhile.")
    write_results("planner_error", figures, "\n".join(lines))


if __name__ == "__main__":
    main()
