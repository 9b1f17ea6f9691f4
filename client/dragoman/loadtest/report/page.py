"""The page around the plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files

from dragoman.counts import counted
from dragoman.loadtest.capacity import Capacity
from dragoman.loadtest.figures import Figures, Spread
from dragoman.loadtest.quantities import format_duration
from dragoman.loadtest.remarks import remarks_on
from dragoman.loadtest.report.charts import capacity_chart, charts_of
from dragoman.loadtest.result import RunResult
from dragoman.loadtest.slo import Verdict
from dragoman.page import document, escaped

__all__ = ["render_page"]

PACKAGE = "dragoman.loadtest.report"
_COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max")


def render_page(result: RunResult, verdicts: Sequence[Verdict] = (), capacity: Capacity | None = None) -> str:
    """A whole HTML document that needs nothing but itself."""
    plots = charts_of(result, [verdict.objective for verdict in verdicts])
    if capacity is not None and any(not math.isnan(probe.p99_s) for probe in capacity.probes):
        plots.insert(0, capacity_chart(capacity.probes))
    body = "\n".join(
        [
            _header(result),
            _tiles(result, capacity),
            _verdicts(verdicts),
            *(f'<p class="note">{escaped(remark)}</p>' for remark in remarks_on(result)),
            f'<section class="plots">{"".join(plots)}</section>',
            _durations(result.figures),
            _errors(result),
            f"<footer>dragoman {version('dragoman')} · started {escaped(result.info.started)} · seed {result.info.seed} · "
            f"{_workers(result)}</footer>",
        ]
    )
    script = files(PACKAGE).joinpath("hover.js").read_text(encoding="utf-8")
    return document(f"Load test of {result.info.target}", body, package=PACKAGE, script=script)


def _header(result: RunResult) -> str:
    info = result.info
    options = [f"beam {info.beam_size}" if info.beam_size else "", "streaming" if info.stream else "", info.model or ""]
    facts = [
        info.load,
        f"{result.tally.duration_s:.3g} s",
        f"{info.workload} ({counted(info.sentences, 'sentence')})",
        *(option for option in options if option),
    ]
    return f'<h1>Load test of {escaped(info.target)}</h1><p class="facts">{escaped(" · ".join(facts))}</p>'


def _tiles(result: RunResult, capacity: Capacity | None) -> str:
    figures = result.figures
    tiles = [
        ("sentences/s", f"{figures.answered_rate:.1f}", ""),
        ("latency p50", format_duration(figures.latency.p50), ""),
        ("latency p99", format_duration(figures.latency.p99), ""),
        ("target tokens/s", f"{figures.target_token_rate:,.0f}".replace(",", " "), ""),
        (
            "errors",
            "–" if math.isnan(figures.error_share) else f"{figures.error_share:.2%}",
            "bad" if figures.error_share else "",
        ),
    ]
    if figures.first_token is not None:
        tiles.insert(3, ("first token p50", format_duration(figures.first_token.p50), ""))
    if result.quality.bleu is not None:
        tiles.append(("BLEU under load", f"{result.quality.bleu:.1f}", ""))
    if capacity is not None:
        tiles.insert(0, ("capacity", f"{'≥ ' if capacity.client_limited else ''}{capacity.rate:.4g}/s", ""))
    shown = (f'<div class="tile {style}"><span>{name}</span><b>{value}</b></div>' for name, value, style in tiles)
    return f'<section class="tiles">{"".join(shown)}</section>'


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    pills = (
        f'<li class="{"held" if verdict.holds else "broken"}">{"✓" if verdict.holds else "✗"} {escaped(str(verdict))}</li>'
        for verdict in verdicts
    )
    return f'<ul class="verdicts">{"".join(pills)}</ul>'


def _durations(figures: Figures) -> str:
    named: list[tuple[str, Spread | None]] = [
        ("latency", figures.latency),
        ("time to first token", figures.first_token),
        ("time per token", figures.per_token),
        ("queue in the server", figures.queue),
    ]
    rows = "".join(
        f"<tr><td>{name}</td>{''.join(f'<td>{format_duration(getattr(spread, c))}</td>' for c in _COLUMNS)}</tr>"
        for name, spread in named
        if spread is not None
    )
    heads = "".join(f"<th>{column}</th>" for column in _COLUMNS)
    return (
        f'<h2>Durations of {counted(figures.requests, "request")}</h2><div class="scroll"><table>'
        f"<thead><tr><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _errors(result: RunResult) -> str:
    if not result.tally.errors:
        return ""
    rows = "".join(
        f'<tr><td>{escaped(kind)}</td><td>{count}</td><td class="text">{escaped(result.tally.examples[kind])}</td></tr>'
        for kind, count in sorted(result.tally.errors.items(), key=lambda pair: -pair[1])
    )
    return (
        '<h2>Errors</h2><div class="scroll"><table><thead><tr><th>kind</th><th>requests</th>'
        f'<th style="text-align:left">for example</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _workers(result: RunResult) -> str:
    processes = f"{result.info.workers} worker process{'es' if result.info.workers > 1 else ''}"
    busiest = max(result.client.worker_cpu, default=None)
    return processes if busiest is None else f"{processes}, the busiest used {busiest:.0%} of a processor"
