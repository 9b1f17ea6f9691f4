"""What is translated: a file of sentences, with references when there are any."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from dragoman.errors import UsageError

__all__ = ["Item", "Workload", "read_workload"]


@dataclass(frozen=True, slots=True)
class Item:
    """A source text and what good translations of it look like."""

    source: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """The items of a run in the order they are sent; after the last comes the first again."""

    name: str
    items: tuple[Item, ...]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def has_references(self) -> bool:
        return all(item.references for item in self.items)

    def shuffled(self, seed: int) -> Workload:
        """Long and short sentences mixed, so that every stretch of a run is alike and a seed repeats it."""
        items = list(self.items)
        random.Random(seed).shuffle(items)  # noqa: S311 - an order, not a secret
        return Workload(self.name, tuple(items))


def read_workload(path: Path) -> Workload:
    """A text file, one source per line; when it is named `.tsv`, references follow the source, each after a tab."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't read the workload {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise UsageError(f"the workload {path} is not UTF-8 (line {line}); convert it, for example with iconv") from error
    columns = path.suffix.lower() == ".tsv"
    lines = [line for line in text.lstrip("\ufeff").split("\n") if line.strip()]
    items = tuple(_item(line.rstrip("\r"), columns) for line in lines)
    if not items:
        raise UsageError(f"the workload {path} has no sentences; write one per line")
    if any(not item.source.strip() for item in items):
        raise UsageError(f"the workload {path} has a line without a source; it stands before the first tab")
    return Workload(path.name, items)


def _item(line: str, columns: bool) -> Item:
    if not columns:
        return Item(line)
    source, *references = line.split("\t")
    return Item(source, tuple(reference for reference in references if reference))
