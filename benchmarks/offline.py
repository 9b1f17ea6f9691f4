"""In process against in process: dragoman's engine and CTranslate2 take turns on the same sources, cell by cell."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.bundles import bundle_of
from benchmarks.cells import (
    FAMILIES,
    FULL,
    TWO_WORKERS,
    Cell,
    Grid,
    by_workers,
    checkpoint_of,
    random_sources,
    read_sentences,
)
from benchmarks.machine import load_average
from benchmarks.peers import CACHE, CTRANSLATE2, converted_to_ctranslate2
from benchmarks.statistics import geometric_mean, ratios
from benchmarks.tuning import Ct2Settings, best_settings, layouts
from benchmarks.worker_process import Worker, worker

__all__ = ["combined", "measure_offline", "summarise"]

Record = dict[str, Any]
Run = Callable[[], Record]


def measure_offline(grid: Grid) -> Iterator[list[Record]]:
    """Every cell of the grid as a record of rounds, ratios, settings and memory, those of the same workers at a time."""
    for (model, precision, threads), group in by_workers(grid.cells()):
        checkpoint = checkpoint_of(model, CACHE)
        bundle = bundle_of(checkpoint, precision)
        sources = sources_of(replace(group[0], batch=8), grid, bundle)
        peer = converted_to_ctranslate2(checkpoint, precision)
        asked = {"sources": sources[:24], "target_tokens": group[0].workload.target_tokens}
        settings = best_settings(peer, precision, threads, asked, grid.tuning_tries)
        with _sides(bundle, checkpoint, precision, threads, settings) as (ours, theirs, loads):
            measured = [_measure(cell, grid, sources_of(cell, grid, bundle), ours, theirs) for cell in group]
            memory = {"dragoman": ours.ask("memory"), "ctranslate2": theirs[0][1].ask("memory")}
        yield [{**record, "load": loads, "memory": memory} for record in measured]


def combined(earlier: Sequence[Record], now: Sequence[Record]) -> list[Record]:
    """All cells of both, in the order of the full grids; of a cell that is in both, what was measured now."""
    by_cell = {tuple(record["cell"].values()): record for record in (*earlier, *now)}
    return [by_cell[key] for key in map(_key, [*FULL.cells(), *TWO_WORKERS.cells(), *FAMILIES.cells()]) if key in by_cell]


def _key(cell: Cell) -> tuple[Any, ...]:
    return tuple({**asdict(cell), "workload": cell.workload.name}.values())


def sources_of(cell: Cell, grid: Grid, bundle: Path) -> list[list[int]]:
    """Token ids, the same for both sides: tokenising is not what is compared."""
    if cell.workload.source_tokens is None:
        from dragoman.bundle.manifest import read_manifest
        from dragoman.bundle.tokenizer import open_tokenizer

        manifest = read_manifest(bundle)
        tokenizer = open_tokenizer(bundle, manifest.tokenizer, manifest.tokens)
        return [tokenizer.encode(sentence) for sentence in read_sentences(grid.sentences)[0]]
    count = max(cell.batch, grid.least_sources)
    return random_sources(cell.workload.model, count, cell.workload.source_tokens)


@contextlib.contextmanager
def _sides(
    bundle: Path, checkpoint: Path, precision: str, threads: int, settings: Ct2Settings
) -> Iterator[tuple[Worker, list[tuple[Ct2Settings, Worker]], Record]]:
    """Our worker and one of theirs for each layout of its threads, loaded."""
    with contextlib.ExitStack() as stack:
        common = {"precision": precision, "threads": threads}
        ours = stack.enter_context(worker(Path(sys.executable), "dragoman_side", threads))
        loads = {"dragoman": ours.ask("load", model=str(bundle), **common)}
        theirs = []
        for layout in layouts(settings, threads):
            side = stack.enter_context(worker(CTRANSLATE2.python(), "ctranslate2_side", threads, layout.environment))
            model = str(converted_to_ctranslate2(checkpoint, precision))
            loaded = side.ask("load", model=model, inter=layout.inter, **common)
            loads.setdefault("ctranslate2", loaded)
            theirs.append((layout, side))
        yield ours, theirs, loads


def _measure(
    cell: Cell, grid: Grid, sources: list[list[int]], ours: Worker, theirs: Sequence[tuple[Ct2Settings, Worker]]
) -> Record:
    asked = {"sources": sources, "batch": cell.batch, "beam": cell.beam, "target_tokens": cell.workload.target_tokens}
    # the first run of each is warm-up, and for CTranslate2 the choice between its layouts
    ours.ask("run", **asked)
    for _, side in theirs if len(theirs) > 1 else ():
        side.ask("run", **asked)
    settings, best = min(theirs, key=lambda pair: float(pair[1].ask("run", **asked)["wall_s"]))
    mine, other = interleave(lambda: ours.ask("run", **asked), lambda: best.ask("run", **asked), grid)
    ratio = ratios([run["wall_s"] for run in other], [run["wall_s"] for run in mine])
    print(
        f"  {cell.workload.name:22} {cell.precision} {cell.threads}t beam {cell.beam} batch {cell.batch:3}  {ratio}",
        file=sys.stderr,
    )
    return {
        "cell": {**asdict(cell), "workload": cell.workload.name},
        "measured": {"date": date.today().isoformat(), "load_average": load_average()},
        "sentences": len(sources),
        "ctranslate2_settings": str(settings),
        "dragoman": mine,
        "ctranslate2": other,
        "wall_ratio": asdict(ratio),
        "cpu_ratio": asdict(ratios([run["cpu_s"] for run in other], [run["cpu_s"] for run in mine])),
    }


def interleave(ours: Run, theirs: Run, grid: Grid) -> tuple[list[Record], list[Record]]:
    """Rounds in turn, who begins changing, until there are enough and the cell's time is used."""
    mine: list[Record] = []
    other: list[Record] = []
    began = time.monotonic()
    while len(mine) < grid.min_rounds or (time.monotonic() - began < grid.cell_budget_s and len(mine) < 15):
        if len(mine) % 2:
            mine.append(ours())
            other.append(theirs())
        else:
            other.append(theirs())
            mine.append(ours())
    return mine, other


def summarise(records: Sequence[Record]) -> Record:
    """The goals in figures: geometric mean and the worst cell, in wall time and in CPU time."""
    wall = [record["wall_ratio"]["median"] for record in records]
    cpu = [record["cpu_ratio"]["median"] for record in records]
    memory = [
        record["memory"]["dragoman"]["peak_bytes"] / record["memory"]["ctranslate2"]["peak_bytes"] for record in records
    ]
    return {
        "cells": len(records),
        "wall_geometric_mean": geometric_mean(wall),
        "wall_worst": min(wall),
        "wall_cells_below_1": sum(value < 1 for value in wall),
        "cpu_geometric_mean": geometric_mean(cpu),
        "cpu_worst": min(cpu),
        "cpu_cells_below_1": sum(value < 1 for value in cpu),
        "memory_worst": max(memory),
    }
