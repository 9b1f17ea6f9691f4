"""What is measured: the grid of cells, and the sources each of them translates."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.enlarged_checkpoint import ENLARGED, write_enlarged_checkpoint
from benchmarks.random_checkpoint import OPUS_MT, OPUS_MT_32K, REFERENCE, write_random_checkpoint
from benchmarks.random_families import FAMILY_SHAPES, write_random_family

__all__ = [
    "FAMILIES",
    "FULL",
    "ONLINE",
    "QUICK",
    "TWO_WORKERS",
    "Cell",
    "Grid",
    "Workload",
    "checkpoint_of",
    "fixed_sources",
    "random_sources",
    "read_sentences",
]

Precision = Literal["fp32", "int8"]
CHECKOUT = Path(__file__).parent.parent
_FOLDERS = [folder / "shared" / "data" / "tatoeba-en-de" for folder in CHECKOUT.parents]
TATOEBA = next((folder for folder in _FOLDERS if folder.is_dir()), _FOLDERS[0]) / "test.tsv"
BUNDLED = CHECKOUT / "export" / "dragoman" / "export" / "sentences.txt"


@dataclass(frozen=True, slots=True)
class Workload:
    """A model and lengths: real sentences of any length, or sources and outputs of exactly so many tokens."""

    model: str
    source_tokens: int | None = None
    target_tokens: int | None = None

    @property
    def name(self) -> str:
        lengths = "" if self.source_tokens is None else f" {self.source_tokens}/{self.target_tokens}"
        return self.model + lengths


@dataclass(frozen=True, slots=True)
class Cell:
    """One comparison."""

    workload: Workload
    precision: Precision
    threads: int
    beam: int
    batch: int


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations, how long a cell may take and how many real sentences it translates."""

    workloads: tuple[Workload, ...]
    precisions: tuple[Precision, ...]
    threads: tuple[int, ...]
    beams: tuple[int, ...]
    batches: tuple[int, ...]
    sentences: int
    min_rounds: int
    cell_budget_s: float
    least_sources: int = 8
    """Of random ones in a round, so that a batch of 1 is not one lonely sentence."""
    tuning_tries: int = 3
    """How often CTranslate2 is tried with each of its matrix libraries."""
    quick: bool = False
    keeps_others: bool = False
    processor: str | None = None

    def cells(self) -> list[Cell]:
        """Cells of one model, precision and thread count stand together: they share the loaded workers."""
        axes = (self.workloads, self.precisions, self.threads, self.beams, self.batches)
        cells = [Cell(*combination) for combination in itertools.product(*axes)]
        return sorted(cells, key=lambda cell: (cell.workload.model, cell.precision, cell.threads))


REFERENCE_WORKLOAD = Workload(REFERENCE.name)
FIXED = tuple(Workload(size.name, *lengths) for size in (OPUS_MT, OPUS_MT_32K) for lengths in ((20, 24), (64, 80)))
FAMILIES = Grid(
    tuple(Workload(name, 20, 24) for name in FAMILY_SHAPES),
    ("fp32", "int8"),
    (1, 2),
    (1, 4),
    (1, 8, 32),
    sentences=0,
    min_rounds=3,
    cell_budget_s=20,
    least_sources=2,
    tuning_tries=1,
)
"""The other families. A step of these models takes so long that few sentences tell enough."""
FULL = Grid(
    (REFERENCE_WORKLOAD, *FIXED),
    ("fp32", "int8"),
    (1, 2),
    (1, 4),
    (1, 8, 32, 128),
    sentences=1000,
    min_rounds=3,
    cell_budget_s=20,
)
ONLINE = dataclasses.replace(FULL, workloads=(REFERENCE_WORKLOAD, Workload(ENLARGED.name), Workload("random-nllb-600m")))
"""What is served behind Triton, with sentences as they come."""
TWO_WORKERS = dataclasses.replace(FULL, threads=(2,), batches=(2, 16, 64))
"""As many sentences in flight as two workers of CTranslate2 have together: twice as many as each of them takes at once."""
QUICK = Grid(  # one thread: its ratios are the steadiest, and the time is for two models in two precisions
    (REFERENCE_WORKLOAD, Workload(OPUS_MT_32K.name, 20, 24)),
    ("fp32", "int8"),
    (1,),
    (1, 4),
    (1, 32),
    sentences=64,
    min_rounds=3,
    cell_budget_s=4,
    quick=True,
)


def checkpoint_of(model: str, cache: Path) -> Path:
    """Where the checkpoint of a workload's model is; all but the reference model are made when they are first needed."""
    if model == REFERENCE.name:
        return REFERENCE
    if model == ENLARGED.name:
        return write_enlarged_checkpoint(cache / "checkpoints" / model)
    if shape := FAMILY_SHAPES.get(model):
        return write_random_family(shape, cache / "checkpoints" / model)
    size = next(size for size in (OPUS_MT, OPUS_MT_32K) if size.name == model)
    return write_random_checkpoint(size, cache / "checkpoints" / model)


def read_sentences(count: int) -> tuple[list[str], list[list[str]]]:
    """Sources and their references: Tatoeba's test set where it lies beside the project, else the bundled sentences."""
    path = TATOEBA if TATOEBA.is_file() else BUNDLED
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    chosen = rows[:count]
    return [row[0] for row in chosen], [row[1:] for row in chosen]


def fixed_sources(count: int, length: int, vocabulary: int, seed: int = 7, eos: int = 0) -> list[list[int]]:
    """Sources of exactly `length` tokens, the end token included; special tokens (the first four, the last) never drawn."""
    draw = random.Random(seed)
    return [[*(draw.randrange(4, vocabulary - 1) for _ in range(length - 1)), eos] for _ in range(count)]


def random_sources(model: str, count: int, length: int) -> list[list[int]]:
    """The same for a random model, by its name."""
    if shape := FAMILY_SHAPES.get(model):
        return fixed_sources(count, length, shape.vocabulary, eos=shape.eos)
    size = next(size for size in (OPUS_MT, OPUS_MT_32K) if size.name == model)
    return fixed_sources(count, length, size.vocabulary)


def by_workers(cells: Sequence[Cell]) -> list[tuple[tuple[str, Precision, int], list[Cell]]]:
    """Cells that the same two loaded workers can measure."""

    def key(cell: Cell) -> tuple[str, Precision, int]:
        return cell.workload.model, cell.precision, cell.threads

    return [(shared, list(group)) for shared, group in itertools.groupby(cells, key)]
