"""Cells that were measured at different times, on one page."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.cells import FULL, Cell
from benchmarks.offline import combined


def record(cell: Cell, ratio: float) -> dict[str, Any]:
    return {"cell": {**asdict(cell), "workload": cell.workload.name}, "ratio": ratio}


def test_what_is_measured_now_takes_the_place_of_what_was_and_the_rest_stays_in_the_order_of_the_grid() -> None:
    first, second, third = FULL.cells()[:3]
    found = combined([record(third, 1.0), record(first, 1.0)], [record(second, 2.0), record(third, 2.0)])
    assert found == [record(first, 1.0), record(second, 2.0), record(third, 2.0)]


def test_every_cell_of_the_grid_is_another() -> None:
    everything = [record(cell, 1.0) for cell in FULL.cells()]
    assert combined(everything, everything) == everything
