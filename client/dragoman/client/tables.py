"""Results as tables: for people on a terminal, tab-separated for everything else."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from dragoman.client.results import Translation
from dragoman.client.status import ServerStatus

__all__ = ["print_hypotheses", "print_status"]

_WHOLE = ("server", "bundle", "model")
"""Names that are copied into the next command: on a narrow terminal other columns give way."""


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


def print_status(servers: Sequence[ServerStatus]) -> None:
    """Servers with their models, and what their engines are doing."""
    models = []
    for server in servers:
        state = "ready" if server.ready else "not ready"
        if not server.models:
            models.append((server.address, state, server.triton, "", server.problem or ""))
        for number, model in enumerate(server.models):
            shown = (server.address, state, server.triton) if number == 0 else ("", "", "")
            models.append((*shown, model.name, f"v{', v'.join(model.versions)}" if model.ready else "not ready"))
    _print(("server", "state", "triton", "model", "version"), models)
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
