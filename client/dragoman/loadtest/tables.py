"""What a run, a comparison or a search comes to, as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dragoman.counts import counted
from dragoman.loadtest.capacity import Capacity
from dragoman.loadtest.compare import Difference, Unit
from dragoman.loadtest.figures import Spread
from dragoman.loadtest.quantities import format_duration
from dragoman.loadtest.remarks import remarks_on
from dragoman.loadtest.result import RunResult
from dragoman.loadtest.slo import Verdict

__all__ = ["capacity_table", "comparison_table", "summary"]

_COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max")


def summary(result: RunResult, verdicts: Sequence[Verdict]) -> RenderableType:
    """The figures of a run, its objectives, and what to know before believing them."""
    parts: list[RenderableType] = [_headline(result), Padding(_rates(result), (1, 0)), _durations(result)]
    if verdicts:
        parts.append(Text())
    parts += [_verdict(verdict) for verdict in verdicts]
    parts += [Text(f"! {remark}", style="yellow") for remark in remarks_on(result)]
    return Group(*parts)


def comparison_table(differences: Sequence[Difference], limit: float | None) -> RenderableType:
    """Every figure before and after; red is worse than the limit, yellow is certainly worse."""
    table = Table("", box=None, header_style="dim", pad_edge=False)
    for name in ("before", "after", "change", "95% interval"):
        table.add_column(name, justify="right")
    for difference in differences:
        worse = "bold red" if limit is not None and difference.exceeds(limit) else "yellow"
        style = worse if difference.is_worse else ("green" if difference.is_certain else "")
        known = not math.isnan(difference.low)
        table.add_row(
            difference.name,
            _written(difference.before, difference.unit),
            _written(difference.after, difference.unit),
            Text(_signed(difference.change, difference.unit), style=style),
            f"{_signed(difference.low, difference.unit)} … {_signed(difference.high, difference.unit)}" if known else "–",
        )
    return table


def capacity_table(capacity: Capacity) -> RenderableType:
    """Every rate that was tried, and the verdict."""
    table = Table("rate", "p50", "p99", "", box=None, header_style="dim", pad_edge=False)
    for probe in capacity.probes:
        verdict = Text("held", style="green") if probe.holds else Text(f"broke {probe.why_not}", style="red")
        table.add_row(f"{probe.rate:.4g}/s", format_duration(probe.p50_s), format_duration(probe.p99_s), verdict)
    least = "at least " if capacity.client_limited else ""
    found = f"{least}{capacity.rate:.4g}/s" if capacity.rate else "none of these rates"
    return Group(table, Text(f"\ncapacity: {found}", style="bold"))


def _verdict(verdict: Verdict) -> Text:
    return Text(f"✓ {verdict}", style="green") if verdict.holds else Text(f"✗ {verdict}", style="bold red")


def _headline(result: RunResult) -> Text:
    info = result.info
    facts = [info.load, f"{result.tally.duration_s:.3g} s", f"{info.workload} ({counted(info.sentences, 'sentence')})"]
    return Text.assemble((info.target, "bold"), f"  {' · '.join(facts)}")


def _rates(result: RunResult) -> Table:
    figures, client = result.figures, result.client
    table = Table.grid(padding=(0, 3))
    table.add_row("sentences/s", f"[bold]{figures.answered_rate:.1f}[/] of {figures.offered_rate:.1f} due")
    table.add_row("tokens/s", f"source {figures.source_token_rate:.0f}, target {figures.target_token_rate:.0f}")
    table.add_row("errors", _errors(result))
    if result.server:
        table.add_row("server", _server(result))
    cpu = ", ".join(f"{share:.0%}" for share in client.worker_cpu) or "–"
    table.add_row("client", f"CPU {cpu}; late by {format_duration(client.lag_p99_s)} (p99)")
    if result.quality.items:
        table.add_row("answers", _answers(result))
    return table


def _errors(result: RunResult) -> Text:
    share = result.figures.error_share
    kinds = sorted(result.tally.errors.items(), key=lambda pair: -pair[1])
    if not kinds:
        return Text("none", style="green")
    listed = "; ".join(f"{count} {kind} ({result.tally.examples[kind]})" for kind, count in kinds)
    return Text(f"{share:.2%}: {listed}", style="red")


def _server(result: RunResult) -> str:
    rows = _mean([sample.rows_per_step for sample in result.server])
    occupancy = _mean([sample.occupancy for sample in result.server])
    queue_s = _mean([sample.queue_mean_s for sample in result.server])
    figures = [
        "" if rows is None else f"{rows:.1f} rows per step",
        "" if occupancy is None else f"batch {occupancy:.0%} full",
        "" if queue_s is None else f"queue {format_duration(queue_s)}",
    ]
    return ", ".join(filter(None, figures)) or "its metrics have none of dragoman's figures"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _answers(result: RunResult) -> str:
    quality = result.quality
    steady = "each always the same" if not quality.changing_items else f"{quality.changing_items} changed"
    bleu = "" if quality.bleu is None else f", BLEU [bold]{quality.bleu:.1f}[/]"
    return f"{counted(quality.items, 'sentence')}, {steady}{bleu}"


def _durations(result: RunResult) -> Table:
    figures = result.figures
    table = Table("", box=None, header_style="dim", pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    named: tuple[tuple[str, Spread | None], ...] = (
        ("latency", figures.latency),
        ("first token", figures.first_token),
        ("per token", figures.per_token),
        ("queue", figures.queue),
    )
    for name, spread in named:
        if spread is not None:
            table.add_row(name, *(format_duration(getattr(spread, column)) for column in _COLUMNS))
    return table


def _signed(value: float, unit: Unit) -> str:
    if math.isnan(value):
        return "–"
    return f"{value * 100:+.2f} points" if unit == "share" else f"{value:+.1%}"


def _written(value: float, unit: Unit) -> str:
    if unit == "s":
        return format_duration(value)
    return f"{value:.2%}" if unit == "share" else f"{value:.1f}"
