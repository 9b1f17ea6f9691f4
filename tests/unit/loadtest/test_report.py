from __future__ import annotations

import dataclasses
import io
import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from known_results import result_of, with_client
from rich.console import Console

from dragoman.loadtest.capacity import Capacity, TriedRate
from dragoman.loadtest.client_use import ClientUse
from dragoman.loadtest.compare import compare
from dragoman.loadtest.live import sparkline
from dragoman.loadtest.remarks import remarks_on
from dragoman.loadtest.report import render_page
from dragoman.loadtest.report.scale import Scale
from dragoman.loadtest.result import RunResult
from dragoman.loadtest.scraper import ServerSample
from dragoman.loadtest.slo import judge, parse_objectives
from dragoman.loadtest.tables import capacity_table, comparison_table, summary

SERVER = tuple(ServerSample(second + 0.5, 0.002, 4.0 + second, 0.25, 1.0) for second in range(10))
STEADY = result_of([(number / 20, 0.1 + number % 7 / 100) for number in range(200)], errors=4, bleu=41.25, server=SERVER)
TITLES = [
    "Latency over time",
    "Requests per second",
    "Latency distribution",
    "Latency by percentile",
    "Rate against latency",
    "Errors",
    "Batch occupancy",
    "Queue time in the server",
]


def plots_of(page: str) -> dict[str, ET.Element]:
    figures = re.findall(r"<figcaption><b>([^<]+)</b>.*?(<svg.*?</svg>)", page, re.DOTALL)
    return {title: ET.fromstring(svg) for title, svg in figures}  # noqa: S314 - our own page


def p50_line(result: RunResult) -> str:
    marks = plots_of(render_page(result))["Latency over time"].iter()
    return next(str(mark.get("d")) for mark in marks if mark.get("class") == "line p50")


def printed(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_page_has_every_plot_as_well_formed_svg() -> None:
    assert list(plots_of(render_page(STEADY))) == TITLES


def test_the_page_fetches_nothing() -> None:
    page = render_page(STEADY, judge(parse_objectives(["p99<1s"]), STEADY))
    assert not re.search(r"""(src|href)\s*=|@import|url\(|https?://""", page)


def test_what_came_from_outside_is_shown_as_text() -> None:
    nasty = "<script>alert('x')</script>"
    info = dataclasses.replace(STEADY.info, target=nasty, workload=nasty, model=nasty)
    result = dataclasses.replace(STEADY, info=info)
    result.tally.examples["Overloaded"] = nasty
    assert nasty not in render_page(result)


def test_the_line_of_latencies_stands_where_its_values_are() -> None:
    # One request a slice, 100 ms in the first half and 400 ms in the second: axis 0 … 400 ms, so ¾ from the top and at it.
    result = result_of([(slot / 3 + 0.1, 0.1 if slot < 15 else 0.4) for slot in range(30)])
    line = next(
        mark for mark in plots_of(render_page(result))["Latency over time"].iter() if mark.get("class") == "line p50"
    )
    heights = [float(place.split(" ")[1]) for place in re.split("[ML]", str(line.get("d")))[1:]]
    bottom, top = 212.0, 14.0
    assert len(heights) == 30
    assert heights[0] == pytest.approx(bottom - (bottom - top) / 4, abs=0.3)
    assert heights[-1] == pytest.approx(top, abs=0.3)


def test_a_slice_without_answers_is_a_gap_in_the_line() -> None:
    result = result_of([(slot / 3 + 0.1, 0.1) for slot in range(30) if not 10 <= slot < 20])
    line = next(
        mark for mark in plots_of(render_page(result))["Latency over time"].iter() if mark.get("class") == "line p50"
    )
    assert str(line.get("d")).count("M") == 2


def test_a_run_that_answered_nothing_still_has_a_page() -> None:
    page = render_page(result_of([], errors=7))
    assert list(plots_of(page)) == ["Errors"]
    assert "Overloaded" in page


def test_a_single_request_still_has_a_page() -> None:
    assert len(plots_of(render_page(result_of([(0.1, 0.05)])))) == 6


def test_a_search_shows_the_rates_it_tried() -> None:
    probes = (TriedRate(10, True, p50_s=0.1, p99_s=0.2), TriedRate(20, False, "p99", p50_s=0.3, p99_s=0.9))
    page = render_page(STEADY, capacity=Capacity(probes))
    assert "Rates tried" in plots_of(page)
    assert "10/s" in page


@given(st.floats(1e-6, 1e9))
def test_a_linear_axis_begins_at_zero_holds_its_values_and_has_round_ticks(high: float) -> None:
    scale = Scale.linear(high, 0, 100)
    ticks = scale.ticks()
    assert high <= scale.high * (1 + 1e-9) <= high * 2.6
    assert 3 <= len(ticks) <= 7
    assert ticks[0] == 0
    step = ticks[1] / 10 ** math.floor(math.log10(ticks[1]) + 1e-9)
    assert min(abs(step - round_step) for round_step in (1, 2, 5, 10)) < 1e-6


@example(0.99, 1.0)  # the next tick is just beyond the end
@given(st.floats(1e-6, 1e3), st.floats(1.0, 1e6))
def test_a_logarithmic_axis_keeps_its_values_inside(low: float, ratio: float) -> None:
    scale = Scale.logarithmic(low, low * ratio, 0, 100)
    assert all(-0.1 <= scale.at(tick) <= 100.1 for tick in scale.ticks())
    assert scale.at(low) == pytest.approx(0)


def test_the_summary_has_the_figures_the_objectives_and_the_errors() -> None:
    text = printed(summary(STEADY, judge(parse_objectives(["p99<500ms", "errors<1%"]), STEADY)))
    for expected in (
        "19.8 of 20.4",
        "119",
        "✓ p99<500ms",
        "✗ errors<1%: 1.96%",
        "4 Overloaded",
        "8.5 rows per step",
        "BLEU 41.2",
    ):
        assert expected in text


def test_the_comparison_names_every_figure() -> None:
    text = printed(comparison_table(compare(STEADY, STEADY), 0.05))
    for expected in ("sentences/s", "latency p99", "errors", "BLEU", "+0.0%"):
        assert expected in text


def test_a_capacity_the_client_could_not_reach_is_at_least_that() -> None:
    table = printed(
        capacity_table(Capacity((TriedRate(10, True), TriedRate(20, False, "p99<1s: 2 s", client_limited=True))))
    )
    assert "capacity: at least 10/s" in table
    assert "broke p99<1s: 2 s" in table


def test_a_sparkline_is_relative_to_its_highest_value() -> None:
    assert sparkline([0.0, 1.0, math.nan, 0.5]) == "▁█ ▅"
    assert sparkline([math.nan]) == " "


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (with_client(STEADY, ClientUse((0.99,), None, 0, 0, 0.1)), "client was the limit"),
        (with_client(STEADY, ClientUse((0.1,), 0.99, 0, 0, 0.1)), "Caution"),
        (dataclasses.replace(STEADY, info=dataclasses.replace(STEADY.info, interrupted=True)), "interrupted"),
        (result_of([(number / 20, number / 20) for number in range(200)]), "fell behind"),
        (dataclasses.replace(STEADY, quality=dataclasses.replace(STEADY.quality, changing_items=3)), "more than one way"),
        (dataclasses.replace(STEADY, info=dataclasses.replace(STEADY.info, load="closed loop, 2 at a time")), "Closed loop"),
    ],
)
def test_the_report_has_a_remark_for_every_reservation(result: RunResult, said: str) -> None:
    assert remarks_on(STEADY) == []
    assert len([remark for remark in remarks_on(result) if said in remark]) == 1
