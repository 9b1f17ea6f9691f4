"""The planner's error: the same arithmetic for every run, and no run left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.planner_error import HIGHEST_SHARE, SHARES, Compared, median_errors, noise, summary, table
from benchmarks.results import replace_block


def a_run(number: int, share: float, measured_s: float, predicted_s: float) -> Compared:
    return Compared(number, share, 40 * share, 1600, 0.0, (measured_s,) * 3, (predicted_s,) * 3)


RUNS = [a_run(1, 0.3, 0.1, 0.11), a_run(1, 0.6, 0.2, 0.1), a_run(2, 0.3, 0.1, 0.13), a_run(2, 0.6, 0.3, 0.3)]


def test_the_figure_is_the_median_of_the_absolute_errors_of_all_runs() -> None:
    assert median_errors(RUNS) == pytest.approx([0.2] * 3)  # of 10%, 50%, 30% and 0%


def test_the_noise_is_how_far_the_rounds_of_a_rate_are_apart() -> None:
    assert noise(RUNS) == pytest.approx([0.2] * 3)  # of 0% at one rate and 40% at the other


def test_every_run_is_a_row_of_the_table() -> None:
    rows = table(RUNS).splitlines()[2:]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == ["1", "1", "2", "2"]
    assert "200 → 100 (-50%)" in rows[1]
    assert f"all {len(RUNS)} runs: p50 20%" in summary(RUNS, 40.0, 40.0, 0.1)


def test_rates_stay_where_a_server_is_neither_idle_nor_at_its_end() -> None:
    assert min(SHARES) >= 0.3
    assert max(SHARES) <= HIGHEST_SHARE <= 0.8


def test_a_block_of_a_page_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- x: begin -->\nold\n<!-- x: end -->\nafter\n", encoding="utf-8")
    replace_block(page, "x", "new")
    assert page.read_text(encoding="utf-8") == "before\n<!-- x: begin -->\nnew\n<!-- x: end -->\nafter\n"


def test_a_page_without_the_block_is_refused_and_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"page\.md has no block"):
        replace_block(page, "x", "new")
    assert page.read_text(encoding="utf-8") == "nothing here\n"
