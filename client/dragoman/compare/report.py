"""A comparison as a table for the terminal and as a page."""

from __future__ import annotations

import html

from rich.table import Table

from dragoman.compare.figures import Comparison, SideFigures

__all__ = ["as_page", "as_table"]

SHOWN_DIFFERENCES = 200
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1c2024}"
    "table{border-collapse:collapse;width:100%;margin:1rem 0}th,td{text-align:left;vertical-align:top;padding:.4rem .6rem;"
    "border-bottom:1px solid #d9dde1}td.number{text-align:right;font-variant-numeric:tabular-nums}"
    "@media(prefers-color-scheme:dark){body{background:#15181b;color:#e6e8ea}th,td{border-color:#3a4046}}"
)


def as_table(found: Comparison) -> Table:
    """Both sides beside each other."""
    table = Table(title=f"{found.lines} lines, {found.rounds} interleaved rounds", title_justify="left")
    table.add_column("")
    for side in (found.ours, found.theirs):
        table.add_column(side.name, justify="right")
    for row in _rows(found):
        table.add_row(*row)
    table.caption = _summary(found)
    table.caption_justify = "left"
    return table


def as_page(found: Comparison) -> str:
    """A whole HTML document that needs nothing but itself."""
    rows = "".join(
        f"<tr><th>{_text(name)}</th>{''.join(f'<td class=number>{_text(value)}</td>' for value in values)}</tr>"
        for name, *values in _rows(found)
    )
    settings = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in found.settings.items())
    listed = found.differences[:SHOWN_DIFFERENCES]
    differences = "".join(
        f"<tr><td class=number>{one.line}</td><td>{_text(one.source)}</td><td>{_text(one.ours)}</td>"
        f"<td>{_text(one.theirs)}</td></tr>"
        for one in listed
    )
    shown = f"the first {len(listed)} of {len(found.differences)}" if len(found.differences) > len(listed) else "all"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dragoman beside CTranslate2</title>'
        f"<style>{STYLE}</style></head><body><h1>dragoman beside CTranslate2</h1><p>{_text(_summary(found))}</p>"
        f"<table><tr><th></th><th>{_text(found.ours.name)}</th><th>{_text(found.theirs.name)}</th></tr>{rows}</table>"
        f"<h2>Settings</h2><table>{settings}</table><h2>Lines that differ</h2><p>{shown}</p>"
        f"<table><tr><th>line</th><th>source</th><th>dragoman</th><th>CTranslate2</th></tr>{differences}</table>"
        "</body></html>\n"
    )


def _rows(found: Comparison) -> list[tuple[str, str, str]]:
    sides: tuple[SideFigures, SideFigures] = (found.ours, found.theirs)
    rows = [
        ("seconds", *(f"{side.seconds:.2f}" for side in sides)),
        ("lines/s", *(f"{side.lines_per_s:.1f}" for side in sides)),
    ]
    rows.append(("peak memory, MB", *("–" if side.peak_bytes is None else f"{side.peak_bytes / 1e6:.0f}" for side in sides)))
    if found.ours.bleu is not None:
        rows.append(("BLEU", *(f"{side.bleu:.2f}" for side in sides)))
        rows.append(("chrF", *(f"{side.chrf:.2f}" for side in sides)))
    return [(name, one, other) for name, one, other in rows]


def _summary(found: Comparison) -> str:
    parts = [
        f"{found.agreement:.1%} of the lines are equal",
        f"speed {found.speed_ratio:.2f}x ({min(found.speed_ratios):.2f} to {max(found.speed_ratios):.2f})",
    ]
    if found.chrf_between is not None:
        parts.insert(1, f"chrF between the two {found.chrf_between:.1f}")
    if found.memory_ratio is not None:
        parts.append(f"memory {found.memory_ratio:.2f}x")
    return ", ".join(parts)


def _text(value: str) -> str:
    return html.escape(value)
