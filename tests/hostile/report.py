"""What each round found, as a table for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

Verdict = Literal["ok", "FELL", "WRONG", "slow", "reported"]
"""`FELL`: a process died that must not. `WRONG`: an answer that no caller may get. `slow`: a bound in time was passed.
`reported`: a figure of the embedded Triton that no backend can change. `FELL` and `WRONG` fail the run."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of attack."""

    kind: str
    count: int
    engine_deaths: int = 0
    triton_deaths: int = 0
    verdict: Verdict = "ok"
    figures: dict[str, float | int | str] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    """Of what was wrong, the first few."""

    @property
    def failed(self) -> bool:
        return self.verdict in ("FELL", "WRONG")


def judged(
    kind: str,
    count: int,
    deaths: Mapping[str, int],
    wrong: list[str],
    figures: Mapping[str, float | int | str] | None = None,
    *,
    only_reported: bool = False,
    slow: bool = False,
) -> Row:
    """A row with the verdict that follows from what happened."""
    engine, triton = deaths.get("engine", 0), deaths.get("triton", 0)
    verdict: Verdict = "slow" if slow else "ok"
    if engine or triton or wrong:
        excused = only_reported and not engine  # Triton's own defects explain no death of an engine
        verdict = "reported" if excused else "FELL" if engine or triton else "WRONG"
    return Row(kind, count, engine, triton, verdict, dict(figures or {}), tuple(wrong[:5]))


def show(rows: list[Row], console: Console) -> None:
    """The table, and below it examples of what was wrong."""
    table = Table(title="hostile", title_justify="left")
    for name in ("kind", "count", "engine deaths", "Triton deaths", "verdict", "figures"):
        table.add_column(name, justify="right" if name in ("count", "engine deaths", "Triton deaths") else "left")
    for row in rows:
        style = "red" if row.failed else "yellow" if row.verdict != "ok" else ""
        figures = ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.figures.items()
        )
        table.add_row(
            row.kind, f"{row.count:,}", str(row.engine_deaths), str(row.triton_deaths), row.verdict, figures, style=style
        )
    console.print(table)
    for row in rows:
        for example in row.examples:
            console.print(f"{row.kind}: {example}"[:400], style="red" if row.failed else "", markup=False, highlight=False)


def write(rows: list[Row], path: Path, about: Mapping[str, object]) -> None:
    """The same as JSON."""
    document = {**about, "rows": [asdict(row) for row in rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
