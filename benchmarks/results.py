"""Where figures go: benchmarks/results/NAME.json and NAME.md, written whole or not at all.

A page of the documentation may show them too, between two marks of the result's name; `replace_block` writes there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "ROOT", "Line", "machine_line", "read_results", "replace_block", "write_results"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a report: what was measured, the figure, and the aim."""

    what: str
    figure: str
    aim: str
    values: dict[str, object]


def write_results(name: str, figures: dict[str, Any], table: str) -> None:
    """The figures for machines and for people, and on the screen."""
    RESULTS.mkdir(exist_ok=True)
    _write(RESULTS / f"{name}.json", json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    text = f"# {name.replace('_', ' ').capitalize()}\n\n{machine_line(figures['machine'])}\n\n{table}\n"
    _write(RESULTS / f"{name}.md", text)
    print(text)


def read_results(name: str) -> dict[str, Any]:
    """The figures that were written last; empty when there are none."""
    path = RESULTS / f"{name}.json"
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return figures


def replace_block(page: Path, name: str, text: str) -> None:
    """Put `text` in the place of what stands between the page's marks; ValueError when it has none."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page.name} has no block {begin.strip()} … {end}")
    _write(page, f"{before}{begin}{text}\n{end}{after}")


def machine_line(machine: dict[str, Any]) -> str:
    """The machine in one sentence."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores ({', '.join(machine['vector_instructions'])}), "
        f"{machine['memory_gb']} GB; {machine['system']}, Python {machine['python']}; {versions}."
    )


def _write(path: Path, text: str) -> None:
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
