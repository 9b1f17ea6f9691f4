"""All comparisons: `python -m benchmarks [--quick] [--only PART …]`.

A part of the grid: `python -m benchmarks --only offline --workloads tatoeba-en-de "random-32k 20/24" --sentences 200`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.cells import FAMILIES, FULL, ONLINE, QUICK, TWO_WORKERS, Grid
from benchmarks.machine import describe_machine, load_average
from benchmarks.peers import CTRANSLATE2, ROOT
from benchmarks.results import RESULTS, read_results, write_results

QUIET_LOAD = 0.7
LESSER_PROCESSORS = {
    "avx2": {
        "DRAGOMAN_PROCESSOR": "avx2",
        **dict.fromkeys(("CT2_FORCE_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"), "AVX2"),
    }
}


def offline(grid: Grid) -> None:
    """Writes after every group of cells: the whole grid takes an hour, and what was measured is not lost with the rest."""
    _offline(grid, f"offline_{grid.processor}" if grid.processor else "offline")


def two_workers(grid: Grid) -> None:
    """The models of `offline` on two threads, with as many sentences in flight as two workers have together."""
    _offline(grid, "two_workers")


def families(grid: Grid) -> None:
    """The other families in the sizes that people use; one of them alone takes half an hour."""
    _offline(grid, "families")


def _offline(grid: Grid, name: str) -> None:
    from benchmarks.offline import combined, measure_offline, summarise
    from benchmarks.offline_report import offline_table

    records = read_results(name).get("records", []) if grid.keeps_others else []
    for measured in measure_offline(grid):
        records = combined(records, measured)
        summary = summarise(records)
        write_results(name, _described(summary=summary, records=records), offline_table(records, summary))


def growth(grid: Grid) -> None:
    from benchmarks.growth import AXES, measure_growth

    axes = {name: values[::2] for name, values in AXES.items()} if grid.quick else AXES
    figures = measure_growth(axes)
    shares = [f"| {shape} | {share:.0%} |" for shape, share in figures["outside_linear_layers"].items()]
    table = "\n".join(["| decode step, fp32, 32k vocabulary | outside linear layers (goal: 25%) |", "|---|---|", *shares])
    write_results("growth", _described(**figures), table)


def quality(grid: Grid) -> None:
    from benchmarks.quality import measure_quality, quality_table

    records = measure_quality(min(grid.sentences, 1000))
    write_results("quality", _described(records=records), quality_table(records))


def peers(grid: Grid) -> None:
    from benchmarks.offline_report import others_table
    from benchmarks.other_peers import measure_other_peers

    records = measure_other_peers(grid)
    write_results("other_peers", _described(records=records), others_table(records))


def shortlist(grid: Grid) -> None:
    from benchmarks.shortlist import measure_shortlist, shortlist_table

    figures = measure_shortlist(grid)
    write_results("shortlist", _described(**figures), shortlist_table(figures))


def language_shortlists(grid: Grid) -> None:
    from benchmarks.language_shortlists import language_shortlists_table, measure_language_shortlists

    figures = measure_language_shortlists(grid)
    write_results("language_shortlists", _described(**figures), language_shortlists_table(figures))


def export(grid: Grid) -> None:  # noqa: ARG001 - all parts are called alike
    from benchmarks.export_cost import measure_export, table
    from benchmarks.random_checkpoint import OPUS_MT

    figures = measure_export(OPUS_MT.name, 0)
    write_results("export_cost", figures, table(figures))


def online(grid: Grid) -> None:
    from benchmarks.online import PACES, measure_online
    from benchmarks.online_report import online_table

    models = [workload.model for workload in grid.workloads]
    earlier = read_results("online").get("contests", []) if grid.keeps_others else []
    contests = {contest["model"]: contest for contest in (*earlier, *measure_online(models, quick=grid.quick))}
    found = [contests[model] for model in PACES if model in contests]
    write_results("online", _described(contests=found), online_table(found))


PARTS: dict[str, Callable[[Grid], None]] = {
    "offline": offline,
    "two_workers": two_workers,
    "families": families,
    "growth": growth,
    "quality": quality,
    "shortlist": shortlist,
    "language_shortlists": language_shortlists,
    "peers": peers,
    "export": export,
    "online": online,
}
QUICK_PARTS = ("offline", "growth")
GRID_AXES = ("precisions", "threads", "beams", "batches")
OWN_GRIDS = {"families": FAMILIES, "two_workers": TWO_WORKERS, "online": ONLINE}
"""Parts that measure other workloads."""


def _described(**figures: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a part measured
    return {"machine": describe_machine(), "load_average": load_average(), "command": " ".join(sys.argv[1:]), **figures}


def _narrowed(grid: Grid, given: argparse.Namespace) -> Grid:
    axes: dict[str, Any] = {axis: tuple(chosen) for axis in GRID_AXES if (chosen := getattr(given, axis))}
    return dataclasses.replace(
        grid,
        workloads=tuple(one for one in grid.workloads if not given.workloads or one.name in given.workloads),
        **axes,
        sentences=given.sentences or grid.sentences,
        cell_budget_s=given.cell_seconds or grid.cell_budget_s,
        quick=given.quick,
        keeps_others=given.keep_others,
        processor=given.processor,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cells, fewer rounds: below ten minutes")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="some parts instead of all")
    names = dict.fromkeys(workload.name for grid in (FULL, FAMILIES, ONLINE) for workload in grid.workloads)
    parser.add_argument("--workloads", nargs="+", choices=names, metavar="NAME", help=f"some of: {', '.join(names)}")
    for axis in GRID_AXES:
        kind = type(getattr(FULL, axis)[0])
        parser.add_argument(f"--{axis}", nargs="+", type=kind, metavar="N", help="offline, families: some of them")
    parser.add_argument("--sentences", type=int, help=f"real ones in a cell ({FULL.sentences}, quick {QUICK.sentences})")
    parser.add_argument("--cell-seconds", type=float, help="how long a cell is measured, when its rounds are short")
    parser.add_argument(
        "--keep-others", action="store_true", help="keep results that are not measured now (offline, online)"
    )
    parser.add_argument("--processor", choices=LESSER_PROCESSORS, help="offline: let both sides take this one for a lesser")
    given = parser.parse_args()
    os.environ.update(LESSER_PROCESSORS.get(given.processor, {}))  # both sides' processes get them from here
    usual = QUICK if given.quick else FULL
    if load_average() > QUIET_LOAD:
        print(f"this machine is busy (load {load_average():.1f}): wall times will say little", file=sys.stderr)
    for part in given.only or (QUICK_PARTS if given.quick else PARTS):
        print(f"— {part} —", file=sys.stderr)
        PARTS[part](_narrowed(OWN_GRIDS.get(part, usual), given))
    subprocess.run([CTRANSLATE2.python(), "-m", "benchmarks.plots", str(RESULTS)], cwd=ROOT, check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
