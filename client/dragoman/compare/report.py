"""A comparison as a table for the terminal."""

from __future__ import annotations

from rich.table import Table

from dragoman.compare.figures import Comparison, SideFigures
from dragoman.counts import counted

__all__ = ["as_table"]


def as_table(found: Comparison) -> Table:
    """Both sides beside each other."""
    table = Table(
        title=f"{counted(found.lines, 'line')}, {counted(found.rounds, 'interleaved round')}", title_justify="left"
    )
    table.add_column("")
    for side in (found.dragoman, found.ctranslate2):
        table.add_column(side.name, justify="right")
    for row in _rows(found):
        table.add_row(*row)
    table.caption = _summary(found)
    table.caption_justify = "left"
    return table


def _rows(found: Comparison) -> list[tuple[str, str, str]]:
    sides: tuple[SideFigures, SideFigures] = (found.dragoman, found.ctranslate2)
    rows = [
        ("seconds", *(f"{side.seconds:.2f}" for side in sides)),
        ("lines/s", *(f"{side.lines_per_s:.1f}" for side in sides)),
    ]
    rows.append(("peak memory, MB", *("–" if side.peak_bytes is None else f"{side.peak_bytes / 1e6:.0f}" for side in sides)))
    if found.dragoman.bleu is not None:
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
