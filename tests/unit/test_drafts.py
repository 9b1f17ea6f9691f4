"""Files that are replaced as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.drafts import draft_of
from dragoman.errors import UsageError


def test_the_old_content_is_there_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    with draft_of(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_interrupts_the_writing_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    with pytest.raises(error), draft_of(path) as draft:
        draft.write_text("ne")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["nowhere/report.json", "a directory"])
def test_what_can_not_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "a directory").mkdir()
    with pytest.raises(UsageError, match=f"{name} can't be written: "), draft_of(tmp_path / name) as draft:
        draft.write_text("new")
    assert list(tmp_path.iterdir()) == [tmp_path / "a directory"]
