"""Results as tables: for people on a terminal, tab-separated for everything else."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from dragoman.client.results import Translation
from dragoman.client.status import BundleStatus, ServerStatus

__all__ = ["print_alternatives", "print_hypotheses", "print_status"]

_WHOLE = ("server", "bundle", "model")
"""Names that are copied into the next command: on a narrow terminal other columns give way."""

_LANGUAGES_SHOWN = 4


def print_hypotheses(translation: Translation, number: int | None = None) -> None:
    """Every hypothesis with its rank, score and length; with the `number` of its text where there are several."""
    best = (translation.text, translation.score, translation.tokens)
    others = [(other.text, other.score, other.tokens) for other in translation.alternatives]
    which = () if number is None else (str(number),)
    rows = [
        (*which, str(rank), f"{score:.4f}", str(tokens), " ".join(text.splitlines()))
        for rank, (text, score, tokens) in enumerate([best, *others], start=1)
    ]
    header = ("rank", "score", "tokens", "translation")
    if number is None:
        _print(header, rows)
    elif number == 1 or sys.stdout.isatty():
        _print(("text", *header), rows)
    else:  # a script reads one table
        _print_rows(rows)


def print_alternatives(translation: Translation) -> None:
    """What could stand at each place that was asked about: of every token, what the translation would be up to it."""
    rows = [
        (
            str(found.start),
            str(rank),
            f"{one.log_probability:.4f}",
            " ".join((translation.text[: found.start] + one.text).split()),
        )
        for found in translation.alternatives_at
        if found is not None
        for rank, one in enumerate(found.tokens, start=1)
    ]
    _print(("at", "rank", "log-probability", "translation up to there"), rows)


def print_status(servers: Sequence[ServerStatus]) -> None:
    """Servers, their bundles, and what their engines are doing."""
    states = [
        (
            *(server.address, "ready" if server.ready else "not ready", server.triton, server.dragoman),
            f"{sum(model.ready for model in server.models)} of {len(server.models)} ready" if server.models else "",
        )
        for server in servers
    ]
    _print(("server", "state", "triton", "dragoman", "models"), states)
    bundles = [
        (
            *(server.address, one.name, one.model, one.version),
            _languages(one),
            one.precision,
            f"{one.parameters / 1e6:.0f} M",
        )
        for server in servers
        for one in server.bundles
    ]
    if bundles:
        _print(("server", "bundle", "model", "version", "languages", "precision", "parameters"), bundles)
    activity = [
        (
            *(server.address, one.bundle),
            *(f"{rate:.1f}" for rate in (one.requests, one.failures, one.texts, one.source_tokens, one.target_tokens)),
            *(f"{count:.0f}" for count in (one.running, one.queued)),
            *(f"{one.occupancy:.0%}", f"{one.cache_hits:.1f}"),
        )
        for server in servers
        for one in server.activity
    ]
    rates = ("req/s", "failed/s", "texts/s", "source tok/s", "target tok/s")
    if activity:
        _print(("server", "bundle", *rates, "running", "queued", "batch", "cache hits/s"), activity)
    for server in servers:
        if server.metrics_problem is not None:
            print(f"{server.address}: no rates: {server.metrics_problem}; name the endpoint with --metrics", file=sys.stderr)


def _languages(bundle: BundleStatus) -> str:
    """`en → de`, and which have shortlists; of a model of many languages the first few."""
    sides = (bundle.source_languages, bundle.target_languages)
    shown = (
        ", ".join(side[:_LANGUAGES_SHOWN]) + (f" +{len(side) - _LANGUAGES_SHOWN}" if len(side) > _LANGUAGES_SHOWN else "")
        for side in sides
    )
    lists = [f"{code} {count:,}" for code, count in list(bundle.shortlists.items())[:_LANGUAGES_SHOWN]]
    more = f" +{len(bundle.shortlists) - len(lists)}" if len(bundle.shortlists) > len(lists) else ""
    return " → ".join(names or "?" for names in shown) + (f" (shortlists: {', '.join(lists)}{more})" if lists else "")


def _print(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not sys.stdout.isatty():
        _print_rows([header, *rows])
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in header:
        table.add_column(name, no_wrap=name in _WHOLE)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _print_rows(rows: Sequence[Sequence[str]]) -> None:
    print("\n".join("\t".join(row) for row in rows), flush=True)
