"""`dragoman plan`: how many servers a rate needs, from a load test of one."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dragoman.client.command_options import at_least_one
from dragoman.errors import UsageError
from dragoman.loadtest.planning.profile import ServerProfile
from dragoman.loadtest.planning.simulator import Prediction, Server
from dragoman.loadtest.planning.sizing import Sizing, fitted_profile, size_for
from dragoman.loadtest.quantities import format_duration, rate_per_s
from dragoman.loadtest.result import read_result
from dragoman.loadtest.slo import Objective, parse_objectives

__all__ = ["HELP", "configure", "run"]

HELP = "Compute how many servers a rate needs, simulated from a load test of one of them; docs/capacity.md explains how."

_EXAMPLES = """
examples:
  dragoman loadtest --server localhost:8001 --workload test.txt --rate 60/s --shape step --output step
  dragoman plan step.json --rate 2000/s --slo "p99<500ms"
  dragoman plan step.json --rate 2000/s --replicas 40

Exit code 0 when the plan keeps the objectives, 1 when the given replicas do not, 2 when nothing can.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = _EXAMPLES
    parser.add_argument("report", type=Path, metavar="LOADTEST.json", help="a load test of one server, with its metrics")
    parser.add_argument("--rate", required=True, metavar="2000/s", help="requests to plan for")
    parser.add_argument("--slo", action="append", default=[], metavar='"p99<500ms"', help="objectives that must hold")
    parser.add_argument("--replicas", type=at_least_one, metavar="N", help="predict for so many instead of searching")
    parser.add_argument("--spare", type=int, default=0, metavar="N", help="servers that may be missing (restart, failure)")
    parser.add_argument("--max-batch", type=at_least_one, default=128, metavar="ROWS", help="of the servers (default: 128)")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan; 1 when it breaks an objective."""
    objectives = parse_objectives(arguments.slo)
    if not objectives and arguments.replicas is None:
        raise UsageError('a plan needs an objective to keep (--slo "p99<500ms") or a number of --replicas to predict for')
    if arguments.spare < 0:
        raise UsageError(f"--spare {arguments.spare} must not be negative")
    server = Server(max_rows=arguments.max_batch)
    rate, profile = rate_per_s(arguments.rate), fitted_profile(read_result(arguments.report), server)
    replicas = None if arguments.replicas is None else max(1, arguments.replicas - arguments.spare)
    sizing = size_for(profile, server, rate, objectives, replicas)
    total = sizing.replicas + arguments.spare if replicas is None else arguments.replicas
    if arguments.json:
        print(json.dumps(_document(rate, total, sizing, profile), indent=2))
    else:
        out = Console(highlight=False)
        _print(out, rate, total, sizing, profile)
        _print_verdicts(out, sizing, objectives)
    return 0 if sizing.holds(objectives) else 1


def _document(rate: float, total: int, sizing: Sizing, profile: ServerProfile) -> dict[str, object]:
    one = sizing.prediction
    return {
        "rate": rate,
        "replicas": total,
        "serving": sizing.replicas,
        "latency_s": {f"p{percent}": one.percentile_s(percent) for percent in (50, 95, 99)},
        "busy": one.busy,
        "rows_per_step": one.rows_per_step,
        "refused": one.refused,
        "extrapolated": _is_extrapolated(one, profile),
        "step_s": {"base": profile.steps.base_s, "row": profile.steps.row_s},
    }


def _print(out: Console, rate: float, total: int, sizing: Sizing, profile: ServerProfile) -> None:
    one = sizing.prediction
    spare = f", {total - sizing.replicas} of them spare" if total > sizing.replicas else ""
    out.print(f"[bold]{total} server{'s' * (total > 1)}[/] for {rate:g} requests/s{spare}\n")
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("each of them", f"{rate / sizing.replicas:.1f} requests/s, decoding {one.busy:.0%} of the time")
    table.add_row("rows per step", f"{one.rows_per_step:.1f}")
    table.add_row(
        "latency", "   ".join(f"p{percent} {format_duration(one.percentile_s(percent))}" for percent in (50, 95, 99))
    )
    table.add_row("a step takes", f"{format_duration(profile.steps.base_s)} + {format_duration(profile.steps.row_s)} a row")
    table.add_row("beside its steps", f"a request takes {format_duration(profile.overhead_s)}")
    out.print(table)
    if _is_extrapolated(one, profile):
        out.print(
            f"! The load test saw at most {profile.steps.most_rows:.0f} rows per step; this plan needs "
            f"{one.rows_per_step:.0f}. Repeat it with a higher rate to be sure.",
            style="yellow",
        )


def _print_verdicts(out: Console, sizing: Sizing, objectives: tuple[Objective, ...]) -> None:
    for objective, value in zip(objectives, sizing.values, strict=True):
        style, sign = ("green", "✓") if objective.holds(value) else ("bold red", "✗")
        out.print(f"{sign} {objective.written}: {objective.format(value)}", style=style, markup=False)


def _is_extrapolated(prediction: Prediction, profile: ServerProfile) -> bool:
    return prediction.rows_per_step > 1.25 * profile.steps.most_rows
