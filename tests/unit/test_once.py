from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from once import made_once


def test_what_many_ask_for_at_the_same_time_is_made_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    made: list[Path] = []

    def make(directory: Path) -> None:
        made.append(directory)
        (directory / "file").write_text("whole")

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(made_once, tmp_path_factory, "test-once", make) for _ in range(8)]
    assert {one.result() for one in asked} == set(made)
    assert len(made) == 1
    assert (made[0] / "file").read_text() == "whole"


def test_after_a_failure_it_is_made_anew(tmp_path_factory: pytest.TempPathFactory) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").touch()
        raise OSError("the disk is full")

    for _ in range(2):
        with pytest.raises(OSError, match="the disk is full"):
            made_once(tmp_path_factory, "test-failing", fail)
    assert list(made_once(tmp_path_factory, "test-failing", lambda directory: None).iterdir()) == []
