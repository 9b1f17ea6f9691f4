"""Hugging Face `generate` on torch and Optimum's ONNX Runtime pipeline, on the reference model: a few cells each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.bundles import bundle_of
from benchmarks.cells import REFERENCE_WORKLOAD, Cell, Grid
from benchmarks.offline import interleave, sources_of
from benchmarks.peers import CTRANSLATE2, OPTIMUM, Environment, EnvironmentUnavailable
from benchmarks.random_checkpoint import REFERENCE
from benchmarks.statistics import ratios
from benchmarks.worker_process import Worker, WorkerFailed, worker

__all__ = ["measure_other_peers"]

SIDES: tuple[tuple[str, str, Environment], ...] = (
    ("Hugging Face generate", "hugging_face_side", CTRANSLATE2),
    ("Optimum ONNX Runtime", "optimum_side", OPTIMUM),
)
CELLS = ((1, 1), (1, 32), (4, 1), (4, 32))  # beam, batch


def measure_other_peers(grid: Grid, threads: int = 1) -> list[dict[str, Any]]:
    """Records in fp32; a peer that cannot be installed or run here says why instead."""
    records: list[dict[str, Any]] = []
    bundle = bundle_of(REFERENCE, "fp32")
    common = {"precision": "fp32", "threads": threads}
    with worker(Path(sys.executable), "dragoman_side", threads) as ours:
        ours.ask("load", model=str(bundle), **common)
        for peer in SIDES:
            records += _against(peer, ours, common, grid, bundle)
    return records


def _against(
    peer: tuple[str, str, Environment], ours: Worker, common: dict[str, Any], grid: Grid, bundle: Path
) -> list[dict[str, Any]]:
    name, side, environment = peer
    try:
        with worker(environment.python(), side, common["threads"]) as theirs:
            version = theirs.ask("load", model=str(REFERENCE), **common)["version"]
            cells = [Cell(REFERENCE_WORKLOAD, "fp32", common["threads"], beam, batch) for beam, batch in CELLS]
            return [{"peer": name, "version": version, **_measure(ours, theirs, cell, grid, bundle)} for cell in cells]
    except (EnvironmentUnavailable, WorkerFailed) as failure:
        return [{"peer": name, "unavailable": _last_line(str(failure))}]


def _measure(ours: Worker, theirs: Worker, cell: Cell, grid: Grid, bundle: Path) -> dict[str, Any]:
    sources: Sequence[list[int]] = sources_of(cell, grid, bundle)[: grid.sentences // 3]
    asked = {"sources": sources, "batch": cell.batch, "beam": cell.beam, "target_tokens": None}
    for side in (ours, theirs):
        side.ask("run", **asked)
    mine, other = interleave(lambda: ours.ask("run", **asked), lambda: theirs.ask("run", **asked), grid)
    return {
        "beam": cell.beam,
        "batch": cell.batch,
        "sentences": len(sources),
        "dragoman": mine,
        "peer_runs": other,
        "wall_ratio": asdict(ratios([run["wall_s"] for run in other], [run["wall_s"] for run in mine])),
    }


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1][:200]
