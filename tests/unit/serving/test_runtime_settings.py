"""How many threads compute when nobody says."""

from __future__ import annotations

import os

import pytest

from dragoman.serving.runtime.settings import RuntimeSettings


@pytest.mark.parametrize(("cores", "precision", "threads"), [(1, "int8", 1), (2, "int8", 1), (4, "int8", 3), (4, "fp32", 4)])
def test_int8_leaves_a_core_to_others(cores: int, precision: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert RuntimeSettings().thread_count(precision) == threads


def test_what_was_asked_for_holds() -> None:
    assert RuntimeSettings(threads=3).thread_count("int8") == 3
