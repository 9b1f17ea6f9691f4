"""CTranslate2 at its best on this machine: its own options, tried on a middling cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import CTRANSLATE2
from benchmarks.worker_process import WorkerFailed, worker

__all__ = ["Ct2Settings", "best_settings", "layouts"]

CHOICES: tuple[dict[str, str], ...] = (
    {},
    {"CT2_USE_MKL": "1"},
    {"CT2_USE_MKL": "1", "CT2_USE_EXPERIMENTAL_PACKED_GEMM": "1"},
)


@dataclass(frozen=True, slots=True)
class Ct2Settings:
    """How a CTranslate2 worker is started; `inter` of its threads take batches of their own."""

    environment: dict[str, str] = field(default_factory=dict)
    inter: int = 1

    def __str__(self) -> str:
        options = [f"{name}={value}" for name, value in self.environment.items()]
        return ", ".join([*options, f"inter_threads={self.inter}"])


def best_settings(model: Path, precision: str, threads: int, asked: Mapping[str, Any], tries: int) -> Ct2Settings:
    """The matrix library that CTranslate2 runs this model fastest with, over greedy and beam search.

    On one thread by CPU time, which neighbours on the machine disturb less than the wall clock.
    """
    clock = "cpu_s" if threads == 1 else "wall_s"

    def seconds(environment: dict[str, str]) -> float:
        with worker(CTRANSLATE2.python(), "ctranslate2_side", threads, environment) as side:
            try:
                side.ask("load", model=str(model), precision=precision, threads=threads)
                cells = [{**asked, "batch": 8, "beam": beam} for beam in (1, 4)]
                rounds = [[side.ask("run", **cell)[clock] for cell in cells] for _ in range(tries + 1)]
            except WorkerFailed:  # a library that this build or processor does not have
                return float("inf")
        greedy, beam = (min(column) for column in zip(*rounds[1:], strict=True))
        return math.sqrt(greedy * beam)

    return Ct2Settings(min(CHOICES, key=seconds))


def layouts(settings: Ct2Settings, threads: int) -> list[Ct2Settings]:
    """One worker with all threads, or a worker a thread."""
    several = [Ct2Settings(settings.environment, threads)] if threads > 1 else []
    return [settings, *several]
