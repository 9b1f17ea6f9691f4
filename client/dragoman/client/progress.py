"""How far a long job is, on the terminal's error stream; silent where there is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

__all__ = ["line_progress"]


class _Rate(ProgressColumn):
    """Lines per second, as rich measures them for its estimate."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("– lines/s" if speed is None else f"{speed:,.1f} lines/s", style="progress.data.speed")


@contextmanager
def line_progress(name: str, lines: int) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with the number of lines that are done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=lines)
        yield lambda done: progress.update(task, completed=done)
