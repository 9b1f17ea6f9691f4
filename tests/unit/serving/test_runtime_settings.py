"""How many threads compute by default, and how they share the work."""

from __future__ import annotations

import os

import pytest

from dragoman.serving.runtime.settings import RuntimeSettings, ThreadLayout


@pytest.mark.parametrize(("cores", "precision", "threads"), [(1, "int8", 1), (2, "int8", 1), (4, "int8", 3), (4, "fp32", 4)])
def test_int8_leaves_a_core_to_others(cores: int, precision: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert RuntimeSettings().thread_count(precision) == threads


def test_a_given_thread_count_is_used() -> None:
    assert RuntimeSettings(threads=3).thread_count("int8") == 3


@pytest.mark.parametrize(
    ("precision", "threads", "weight_bytes", "layout"),
    [
        ("int8", 1, 30 << 20, ThreadLayout(1, 1)),
        ("fp32", 1, 30 << 20, ThreadLayout(1, 1)),
        ("int8", 2, 2 << 20, ThreadLayout(2, 1, 0)),
        ("int8", 2, 30 << 20, ThreadLayout(2, 1, 16)),
        ("int8", 2, 400 << 20, ThreadLayout(2, 1, 64)),
        ("fp32", 2, 8 << 20, ThreadLayout(2, 1, 64)),
        ("int8", 9, 30 << 20, ThreadLayout(4, 2, 16)),
    ],
)
def test_custom_operators_run_calls_side_by_side_and_share_calls_of_few_rows(
    precision: str, threads: int, weight_bytes: int, layout: ThreadLayout
) -> None:
    assert RuntimeSettings(threads=threads).thread_layout(precision, weight_bytes) == layout
