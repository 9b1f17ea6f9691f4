"""Where figures go: benchmarks/results/NAME.json and NAME.md, written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "machine_line", "write_results"]

RESULTS = Path(__file__).parent / "results"


def write_results(name: str, figures: dict[str, Any], table: str) -> None:
    """The figures for machines and for people, and on the screen."""
    RESULTS.mkdir(exist_ok=True)
    _write(RESULTS / f"{name}.json", json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    text = f"# {name.replace('_', ' ').capitalize()}\n\n{machine_line(figures['machine'])}\n\n{table}\n"
    _write(RESULTS / f"{name}.md", text)
    print(text)


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
