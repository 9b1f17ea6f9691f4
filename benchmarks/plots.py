"""PNG plots of the results, drawn in the peers' environment: `python -m benchmarks.plots RESULTS_DIRECTORY`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

OURS, THEIRS, LIMIT = "#1f77b4", "#d62728", "#7f7f7f"
GROWTH_AXES = {
    "groups": "step: sources (batch)",
    "width": "step: beam",
    "cache": "step: tokens generated before",
    "source": "step: source tokens",
    "vocabulary": "step: vocabulary",
}


def plot_offline(figures: dict[str, Any], directory: Path) -> None:
    """Every cell's ratio with its spread, sorted; the goals as lines."""
    records = sorted(figures["records"], key=lambda record: record["cpu_ratio"]["median"])
    names = [_name(record["cell"]) for record in records]
    _, axes = plt.subplots(figsize=(9, 1.5 + 0.22 * len(records)))
    for place, record in enumerate(records):
        for key, colour, shift in (("cpu_ratio", OURS, -0.15), ("wall_ratio", THEIRS, 0.15)):
            ratio = record[key]
            axes.plot([ratio["low"], ratio["high"]], [place + shift] * 2, color=colour, alpha=0.5)
            axes.plot(ratio["median"], place + shift, "o", color=colour, markersize=4, label=key if place == 0 else None)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.axvline(1.3, color="black", linewidth=1, linestyle=":")
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_xlabel("CTranslate2's time / dragoman's time (above 1: dragoman is faster); lowest to highest round")
    axes.legend(loc="lower right")
    _save(directory / "offline.png")


def plot_growth(figures: dict[str, Any], directory: Path) -> None:
    """Milliseconds of a step and of whole translations along each axis, beside their matrix products alone."""
    curves = figures["curves"]
    columns = -(-len(curves) // 2)
    _, grid = plt.subplots(2, columns, figsize=(3.6 * columns, 6.2))
    for axes in grid.flat[len(curves) :]:
        axes.axis("off")
    for axes, (axis, points) in zip(grid.flat, curves.items(), strict=False):
        values = [point["value"] for point in points]
        axes.plot(values, [point["step_s"] * 1000 for point in points], "o-", color=OURS, label="all of it")
        axes.plot(
            values, [point["products_s"] * 1000 for point in points], "s--", color=LIMIT, label="matrix products alone"
        )
        axes.set_xlabel(GROWTH_AXES.get(axis, axis))
        highest = max(max(point["step_s"], point["products_s"]) for point in points)
        axes.set_ylim(0, 1.08 * highest * 1000)
        axes.set_ylabel("ms")
    grid[0, 0].legend()
    _save(directory / "growth.png")


def plot_online(figures: dict[str, Any], directory: Path) -> None:
    """p50 and p99 against the offered rate, a picture for each model."""
    contests = figures["contests"]
    _, grid = plt.subplots(1, len(contests), figsize=(7 * len(contests), 4.5), squeeze=False)
    for axes, contest in zip(grid[0], contests, strict=True):
        for side, colour in (("dragoman", OURS), ("ctranslate2", THEIRS)):
            points = contest[side]["points"]
            for quantile, style in (("p50_ms", "o--"), ("p99_ms", "o-")):
                axes.plot(
                    [p["rate"] for p in points],
                    [p[quantile] for p in points],
                    style,
                    color=colour,
                    label=f"{side} {quantile[:3]}",
                )
            axes.axhline(contest[side]["limit_ms"], color=colour, linewidth=0.8, linestyle=":")
        axes.set_title(f"{contest['model']}, {contest['precision']}, beam {contest['beam']}")
        axes.set_yscale("log")
        axes.set_xlabel("requests a second (Poisson arrivals)")
        axes.set_ylabel("latency, ms")
        axes.legend()
    _save(directory / "online.png")


def _name(cell: dict[str, Any]) -> str:
    return f"{cell['workload']}, {cell['precision']}, {cell['threads']} thr, beam {cell['beam']}, batch {cell['batch']}"


def _save(path: Path) -> None:
    plt.tight_layout()
    plt.savefig(path, dpi=110)
    plt.close()


if __name__ == "__main__":
    results = Path(sys.argv[1])
    for name, draw in (("offline", plot_offline), ("growth", plot_growth), ("online", plot_online)):
        if (results / f"{name}.json").is_file():
            draw(json.loads((results / f"{name}.json").read_text(encoding="utf-8")), results)
