"""The run while it runs: progress, rate, latencies and their sparkline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dragoman.counts import counted
from dragoman.loadtest.histogram import Histogram
from dragoman.loadtest.quantities import format_duration
from dragoman.loadtest.run import Snapshot
from dragoman.loadtest.tally import Slice

__all__ = ["live_view", "sparkline"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_RECENT_S = 5.0
_SPARK_WIDTH = 48


@contextmanager
def live_view(console: Console, title: str) -> Iterator[Callable[[Snapshot], None]]:
    """An observer for `run`; it shows nothing where there is no terminal."""
    if not console.is_terminal:
        yield lambda _: None
        return
    with Live(Text(f"{title}: starting the workers"), console=console, refresh_per_second=8, transient=True) as live:
        yield lambda snapshot: live.update(_view(title, snapshot))


def sparkline(values: list[float]) -> str:
    """A line of blocks from 0 to the highest value; a space where there is none."""
    highest = max((value for value in values if not math.isnan(value)), default=0.0)
    if highest <= 0:
        return " " * len(values)
    last = len(_BLOCKS) - 1
    return "".join(" " if math.isnan(value) else _BLOCKS[min(last, round(value / highest * last))] for value in values)


def _view(title: str, snapshot: Snapshot) -> RenderableType:
    duration_s, tally = snapshot.plan.duration_s, snapshot.tally
    if snapshot.elapsed_s < 0:
        return Text(f"{title}: warming up, {-snapshot.elapsed_s:.0f} s")
    elapsed_s = min(snapshot.elapsed_s, duration_s)
    recent = _recent(snapshot, elapsed_s)
    latency = Histogram()
    for slot in recent:
        latency.add(slot.latency)
    seconds = max(min(len(recent) * tally.slice_s, elapsed_s), tally.slice_s)
    p50, p99 = latency.percentiles_s((50, 99))
    errors = sum(slot.errors for slot in tally.slices.values())
    facts = Table.grid(padding=(0, 3))
    facts.add_row(
        f"[bold]{sum(slot.answered for slot in recent) / seconds:.1f}[/]/s answered",
        f"p50 [bold]{format_duration(p50)}[/]",
        f"p99 [bold]{format_duration(p99)}[/]",
        f"{snapshot.in_flight} in flight",
        f"[{'red' if errors else 'dim'}]{counted(errors, 'error')}[/]",
    )
    waiting = "waiting for the last answers" if snapshot.elapsed_s > duration_s else f"{duration_s - elapsed_s:.0f} s left"
    head = Table.grid(padding=(0, 2))
    head.add_row(ProgressBar(duration_s, elapsed_s, width=30), waiting)
    history = [slot.latency.percentile_s(99) for slot in tally.ordered()[-_SPARK_WIDTH:]]
    highest = max((value for value in history if not math.isnan(value)), default=math.nan)
    spark = Text(f"p99 {sparkline(history)} up to {format_duration(highest)}", style="cyan")
    return Group(Text(f"{title}, {snapshot.plan.load.describe()}"), head, facts, spark)


def _recent(snapshot: Snapshot, elapsed_s: float) -> list[Slice]:
    """The slices of the last five seconds that are over, or what there is."""
    tally = snapshot.tally
    now = int(elapsed_s / tally.slice_s)
    count = max(1, round(_RECENT_S / tally.slice_s))
    return [tally.slices.get(index, Slice()) for index in range(max(0, now - count), now)] or tally.ordered()
