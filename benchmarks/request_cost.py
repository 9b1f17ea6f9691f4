"""What a served request costs in CPU time, beside another checkout of dragoman.

    python -m benchmarks.request_cost --workload test.tsv --bundle bundles/int8 \\
        --other ../dragoman-0.1.0 --other-bundle ../dragoman-0.1.0/bundles/int8

Both servers run at the same time, and take turns; all of a server's processes are counted. CPU time, because a machine with
other work to do delays both sides, and seldom alike. The other checkout's libraries must be compiled.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.machine import describe_machine, load_average
from benchmarks.results import write_results
from benchmarks.served_overhead import Served, served
from benchmarks.statistics import ratios, spread

SOURCE_ROOTS = ("core", "client", "export", "serving", "kernels")


def main() -> int:
    """Measure, and write `results/request_cost.md`."""
    arguments = _arguments()
    lines = arguments.workload.read_text(encoding="utf-8").splitlines()
    texts = [line.split("\t")[0].strip() for line in lines if line.strip()]
    texts = (texts * (arguments.requests // len(texts) + 1))[: arguments.requests]
    roots = [str(arguments.other.resolve() / root) for root in SOURCE_ROOTS if (arguments.other / root).is_dir()]
    other_environment = {"PYTHONPATH": os.pathsep.join(roots)}
    rows, figures = [], {}
    with (
        served(arguments.bundle, 1) as ours,
        served(arguments.other_bundle, 1, other_environment) as other,
    ):
        for in_flight in arguments.in_flight:
            costs: dict[str, list[int]] = {"ours_us": [], "other_us": []}
            for server in (ours, other):
                server.translate_all(texts[:200], 1, in_flight)
            for _ in range(arguments.rounds):
                costs["other_us"].append(_cost_us(other, texts, in_flight))
                costs["ours_us"].append(_cost_us(ours, texts, in_flight))
            rate = ratios(costs["other_us"], costs["ours_us"])
            figures[str(in_flight)] = costs
            rows.append(f"| {in_flight} | {spread(costs['other_us'])} | {spread(costs['ours_us'])} | {rate} |")
    head = (
        "| in flight | the other, µs of CPU time a request | this one | requests in the same CPU time |\n|---|---|---|---|"
    )
    note = (
        f"{arguments.rounds} interleaved rounds of {arguments.requests} requests, greedy; load average {load_average():.1f}."
    )
    about = {"machine": describe_machine(), "load_average": load_average(), "costs": figures}
    write_results("request_cost", about, "\n".join([note, "", head, *rows]))
    return 0


def _cost_us(server: Served, texts: list[str], in_flight: int) -> int:
    begun_s = server.server.cpu_s()
    server.translate_all(texts, 1, in_flight)
    return round((server.server.cpu_s() - begun_s) / len(texts) * 1e6)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", type=Path, required=True, help="sentences, one a line; what follows a tab is ignored")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--other", type=Path, required=True, help="the other checkout")
    parser.add_argument("--other-bundle", type=Path, required=True, help="a bundle that it reads")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--requests", type=int, default=1500)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
