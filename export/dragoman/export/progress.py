"""The progress of an export: stages that a terminal shows as bars and a test reads as a list."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

__all__ = ["Advance", "QuietStages", "Stages", "TerminalStages", "peak_memory_bytes"]

Advance = Callable[[float], None]
"""Tells a stage that `share` (0 to 1) of it is done."""


@dataclass
class QuietStages:
    """Shows nothing; remembers how long each stage took."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[Advance]:
        """Everything done inside belongs to stage `name`."""
        started = time.monotonic()
        try:
            yield self._advance(name)
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

    def _advance(self, _name: str) -> Advance:
        return lambda _share: None


Stages = QuietStages
"""The interface is small enough to be its own base class."""


class TerminalStages(QuietStages):
    """A line a stage: a bar while it runs, its time when it is done."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._progress = Progress(
            TextColumn("{task.description:<28}"), BarColumn(bar_width=32), TimeElapsedColumn(), console=console
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> TerminalStages:
        self._progress.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._progress.stop()

    @contextmanager
    def stage(self, name: str) -> Iterator[Advance]:
        self._tasks[name] = self._progress.add_task(name, total=None)
        with super().stage(name) as advance:
            yield advance
        self._progress.update(self._tasks[name], total=1.0, completed=1.0)

    def _advance(self, name: str) -> Advance:
        return lambda share: self._progress.update(self._tasks[name], total=1.0, completed=share)


def peak_memory_bytes() -> int:
    """The most this process has held, 0 where that can't be asked; Linux counts in kB, macOS in bytes."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
