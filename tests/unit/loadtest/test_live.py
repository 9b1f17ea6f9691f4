from __future__ import annotations

import io

from known_results import result_of
from rich.console import Console

from dragoman.client.addresses import parse_addresses
from dragoman.loadtest.arrivals import shape_named
from dragoman.loadtest.live import live_view
from dragoman.loadtest.plan import OpenLoop, Plan
from dragoman.loadtest.run import Snapshot
from dragoman.loadtest.sender import Target
from dragoman.loadtest.workload import Item, Workload

TALLY = result_of([(number / 20, 0.1 if number < 100 else 0.4) for number in range(200)], errors=3).tally
PLAN = Plan(
    Target(parse_addresses("localhost:8001")), Workload("w", (Item("x"),)), OpenLoop(shape_named("constant", 20, 10))
)


def seen(elapsed_s: float, terminal: bool = True) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)
    with live_view(console, "load on localhost:8001") as observe:
        observe(Snapshot(PLAN, elapsed_s, TALLY, in_flight=7))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_live_view_shows_the_last_seconds_and_their_history() -> None:
    view = seen(10.0)  # in the last five seconds 94 answers came, two of them to requests of before
    for expected in ("18.8/s answered", "p50 400 ms", "7 in flight", "3 errors", "0 s left", "constant", "▃▃▃███"):
        assert expected in view


def test_the_live_view_shows_what_it_waits_for() -> None:
    assert "warming up, 2 s" in seen(-1.6)
    assert "waiting for the last answers" in seen(10.5)


def test_nothing_is_drawn_without_a_terminal() -> None:
    assert seen(9.0, terminal=False) == ""
