"""`dragoman loadtest`: parse, run, show, write, and an exit code for scripts."""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path

from rich.console import Console

from dragoman.client.addresses import parse_addresses
from dragoman.client.blocking import BlockingCalls
from dragoman.client.blocking import run as run_blocking
from dragoman.client.channels import Connection
from dragoman.client.command_options import (
    add_language_flags,
    add_server_flags,
    add_task_flags,
    add_tls_flags,
    quiet_grpc,
    tls_of,
)
from dragoman.client.retry import RetryPolicy
from dragoman.client.status import find_metrics
from dragoman.client.transport import Transport
from dragoman.errors import UsageError
from dragoman.loadtest.answers import bleu_available
from dragoman.loadtest.arrivals import SHAPES, shape_named
from dragoman.loadtest.compare import compare, unlike
from dragoman.loadtest.live import live_view
from dragoman.loadtest.outputs import check_writable, write_outputs
from dragoman.loadtest.plan import ClosedLoop, OpenLoop, Plan, default_workers
from dragoman.loadtest.probing import search_capacity
from dragoman.loadtest.quantities import duration_s, percentage, rate_per_s
from dragoman.loadtest.result import RunResult, read_result
from dragoman.loadtest.run import run as run_plan
from dragoman.loadtest.sender import RequestSettings, Target
from dragoman.loadtest.slo import Verdict, judge, parse_objectives
from dragoman.loadtest.tables import capacity_table, comparison_table, summary
from dragoman.loadtest.workload import Workload, read_workload

__all__ = ["HELP", "configure", "run"]

HELP = "Put load on a server, measure it, and report whether its objectives hold."

_EPILOG = """\
examples:
  dragoman loadtest --server localhost:8001 --workload test.tsv --rate 50/s --duration 60s --slo "p99<500ms, errors<1%"
  dragoman loadtest --server localhost:8001 --workload test.txt --concurrency 32 --beam 4
  dragoman loadtest --server localhost:8001 --workload test.txt --find-capacity --slo "p99<500ms"
  dragoman loadtest --compare monday.json tuesday.json --regression-limit 5%

exit codes: 0 success, 1 an objective or the regression limit is broken or nothing was answered, 2 wrong usage,
130 interrupted (what was measured until then is reported)
"""
_RUN_S, _PROBE_S = 60.0, 15.0
_FIRST_RATE = 10.0
_KEEPALIVE_S = 60.0
OK, BROKEN, INTERRUPTED = 0, 1, 130


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = _EPILOG
    add_server_flags(parser)
    load = parser.add_argument_group("the load")
    load.add_argument("--workload", type=Path, metavar="FILE", help="sentences, one per line; .tsv: references after a tab")
    how = load.add_mutually_exclusive_group()
    how.add_argument(
        "--rate", metavar="50/s", help="open loop: send this many requests, even if earlier ones are not answered"
    )
    how.add_argument("--concurrency", type=int, metavar="N", help="closed loop: N requests at a time (default: 1)")
    load.add_argument(
        "--duration", metavar="60s", help="how long to measure (default: 60s; with --find-capacity 15s per rate)"
    )
    load.add_argument("--shape", choices=SHAPES, default="constant", help="course of --rate over time (default: constant)")
    load.add_argument("--warm-up", default="2s", metavar="2s", help="load before the measurement begins (default: 2s)")
    load.add_argument(
        "--workers", type=int, metavar="N", help="processes that generate the load (default: as many as it needs)"
    )
    load.add_argument("--seed", type=int, default=0, help="order of the sentences and random arrivals (default: 0)")
    ask = parser.add_argument_group("each request")
    ask.add_argument("--model", metavar="NAME", help="bundle to use, if the server has several")
    add_language_flags(ask)
    add_task_flags(ask)
    ask.add_argument("--beam", type=int, metavar="N", help="beam size (default: the model's)")
    ask.add_argument("--stream", action="store_true", help="stream the translations; measures the time to the first token")
    ask.add_argument(
        "--timeout", default="30s", metavar="30s", help="time after which a request counts as failed (default: 30s)"
    )
    ask.add_argument("--allow-cache", action="store_true", help="let the server answer from its response cache")
    goal = parser.add_argument_group("evaluation")
    goal.add_argument(
        "--slo",
        action="append",
        default=[],
        metavar='"p99<500ms"',
        help="objectives, separated by commas (docs/loadtest.md)",
    )
    goal.add_argument("--find-capacity", action="store_true", help="find the highest rate at which --slo holds")
    goal.add_argument(
        "--compare", nargs=2, type=Path, metavar=("A.json", "B.json"), help="compare two results instead of sending load"
    )
    goal.add_argument("--regression-limit", metavar="5%", help="with --compare: how much worse B may be")
    goal.add_argument("--metrics", metavar="URL", help="metrics endpoint, or 'off' (default: the server tells it)")
    goal.add_argument(
        "--output", type=Path, metavar="PREFIX", help="name of the .json and .html files (default: loadtest-TIME)"
    )
    add_tls_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    out, err = Console(highlight=False), Console(stderr=True, highlight=False)
    objectives = parse_objectives(arguments.slo)
    if arguments.compare:
        return _compare(arguments, out)
    if arguments.regression_limit:
        raise UsageError("--regression-limit is for --compare A.json B.json")
    prefix = arguments.output or Path(f"loadtest-{datetime.datetime.now():%Y%m%d-%H%M%S}")
    check_writable(prefix)
    plan = _plan(arguments)
    if plan.workload.has_references and not bleu_available():
        err.print("no BLEU although the workload has references: sacrebleu is missing (pip install sacrebleu)")
    quiet_grpc()
    metrics_url = _metrics_url(arguments, plan.target)
    capacity = None
    with live_view(err, f"load on {plan.target}") as observe:
        if arguments.find_capacity:
            result, capacity = search_capacity(plan, objectives, metrics_url, observe, _first_rate(arguments))
        else:
            result = run_plan(plan, metrics_url, observe)
    verdicts = judge(objectives, result)
    out.print(summary(result, verdicts))
    if capacity is not None:
        out.print("", capacity_table(capacity), sep="\n")
    paths = write_outputs(prefix, result, verdicts, capacity)
    err.print(f"\nwritten: {paths[0]}, {paths[1]}", markup=False)
    return _exit_code(result, verdicts)


def _exit_code(result: RunResult, verdicts: list[Verdict]) -> int:
    if result.info.interrupted:
        return INTERRUPTED
    return OK if result.tally.latency.count and all(verdict.holds for verdict in verdicts) else BROKEN


def _compare(arguments: argparse.Namespace, out: Console) -> int:
    before, after = (read_result(path) for path in arguments.compare)
    limit = percentage(arguments.regression_limit) if arguments.regression_limit else None
    differences = compare(before, after)
    verdicts = judge(parse_objectives(arguments.slo), after)
    out.print(comparison_table(differences, limit))
    for difference in unlike(before, after):
        out.print(f"! The runs are not alike in {difference}.", style="yellow", markup=False)
    for verdict in verdicts:
        out.print(f"[{'green' if verdict.holds else 'bold red'}]{'✓' if verdict.holds else '✗'} {verdict}[/]")
    broken = [one.name for one in differences if limit is not None and one.exceeds(limit)]
    if broken:
        out.print(f"[bold red]worse by more than {limit:.3g}: {', '.join(broken)}[/]")
    return BROKEN if broken or not all(verdict.holds for verdict in verdicts) else OK


def _plan(arguments: argparse.Namespace) -> Plan:
    if not arguments.workload:
        raise UsageError("a load test needs --workload FILE, sentences to translate (or --compare A.json B.json)")
    workload: Workload = read_workload(arguments.workload).shuffled(arguments.seed)
    load = _load(arguments)
    settings = RequestSettings(
        model=arguments.model,
        source_language=arguments.source_language,
        target_language=arguments.target_language,
        task=arguments.task,
        task_prefix=arguments.task_prefix,
        beam_size=arguments.beam,
        stream=arguments.stream,
        use_cache=arguments.allow_cache,
        timeout_s=duration_s(arguments.timeout),
    )
    settings.checked()  # impossible options are found out here, not in a worker
    workers = arguments.workers if arguments.workers is not None else default_workers(load)
    target = Target(parse_addresses(arguments.server), tls_of(arguments))
    return Plan(target, workload, load, settings, workers, duration_s(arguments.warm_up), arguments.seed)


def _load(arguments: argparse.Namespace) -> OpenLoop | ClosedLoop:
    length_s = duration_s(arguments.duration) if arguments.duration else (_PROBE_S if arguments.find_capacity else _RUN_S)
    if length_s <= 0:
        raise UsageError(f"--duration {arguments.duration} must be above 0")
    if arguments.find_capacity:
        if arguments.concurrency is not None or not arguments.slo:
            raise UsageError('--find-capacity searches a rate: give --slo "p99<500ms" and no --concurrency')
        if arguments.shape not in ("constant", "poisson"):
            raise UsageError(f"--find-capacity needs a steady load: --shape {arguments.shape} must be constant or poisson")
        return OpenLoop(shape_named(arguments.shape, _first_rate(arguments), length_s))
    if arguments.rate is not None:
        return OpenLoop(shape_named(arguments.shape, rate_per_s(arguments.rate), length_s))
    if arguments.shape != "constant":
        raise UsageError(f"--shape {arguments.shape} needs --rate: a closed loop sends as fast as it is answered")
    return ClosedLoop(1 if arguments.concurrency is None else arguments.concurrency, length_s)


def _first_rate(arguments: argparse.Namespace) -> float:
    return rate_per_s(arguments.rate) if arguments.rate else _FIRST_RATE


def _metrics_url(arguments: argparse.Namespace, target: Target) -> str | None:
    """The endpoint given, or the one that the first server names."""
    if arguments.metrics == "off":
        return None
    if arguments.metrics:
        return str(arguments.metrics)
    connection = Connection(target.addresses, target.tls, _KEEPALIVE_S, RetryPolicy.never())
    transport = Transport(connection, BlockingCalls(connection))
    try:
        return run_blocking(find_metrics(transport, server=0))
    finally:
        run_blocking(transport.calls.close())
