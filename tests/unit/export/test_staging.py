from __future__ import annotations

import errno
from pathlib import Path

import pytest

from dragoman.errors import ExportError
from dragoman.export.staging import staged_directory


def _bundle(directory: Path, content: str) -> Path:
    directory.mkdir()
    (directory / "manifest.json").write_text(content)
    return directory


def test_a_bundle_appears_only_when_the_block_ends_well(tmp_path: Path) -> None:
    destination = tmp_path / "deep" / "bundle"
    with staged_directory(destination, force=False) as staging:
        (staging / "manifest.json").write_text("new")
        assert not destination.exists()
    assert (destination / "manifest.json").read_text() == "new"
    assert [path.name for path in destination.parent.iterdir()] == ["bundle"]


@pytest.mark.parametrize("failure", [ValueError("broken"), KeyboardInterrupt()])
def test_a_failed_or_interrupted_export_leaves_nothing(tmp_path: Path, failure: BaseException) -> None:
    with pytest.raises(type(failure)), staged_directory(tmp_path / "bundle", force=False) as staging:
        (staging / "half").write_text("…")
        raise failure
    assert list(tmp_path.iterdir()) == []


def test_an_existing_output_is_refused_without_force(tmp_path: Path) -> None:
    old = _bundle(tmp_path / "bundle", "old")
    with pytest.raises(ExportError, match="--force"), staged_directory(old, force=False):
        pytest.fail("the block must not run")
    assert (old / "manifest.json").read_text() == "old"


def test_force_replaces_a_bundle_and_a_failure_keeps_the_old_one(tmp_path: Path) -> None:
    old = _bundle(tmp_path / "bundle", "old")
    with pytest.raises(RuntimeError), staged_directory(old, force=True):
        raise RuntimeError
    assert (old / "manifest.json").read_text() == "old"
    with staged_directory(old, force=True) as staging:
        (staging / "manifest.json").write_text("new")
    assert (old / "manifest.json").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_force_never_deletes_what_is_not_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").write_bytes(b"jpg")
    with pytest.raises(ExportError, match="not a bundle"), staged_directory(tmp_path / "photos", force=True):
        pytest.fail("the block must not run")
    assert (tmp_path / "photos" / "holiday.jpg").exists()


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is full"), staged_directory(tmp_path / "bundle", force=False):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ExportError, match="can't write beside"),
        staged_directory(tmp_path / "file" / "bundle", force=False),
    ):
        pytest.fail("the block must not run")
