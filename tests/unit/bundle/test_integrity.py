from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dragoman.bundle.integrity import check_files, record_file
from dragoman.bundle.manifest import Manifest
from dragoman.cli import main
from dragoman.errors import BundleError


@pytest.fixture
def bundle(tmp_path: Path, manifest: Manifest) -> tuple[Path, Manifest]:
    contents = {"a.bin": b"abc", "b.bin": b"defg", "decoder.native.onnx": b"graph", "source.spm": b"pieces"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    manifest = dataclasses.replace(manifest, files={name: record_file(tmp_path / name) for name in contents})
    (tmp_path / "manifest.json").write_text(manifest.to_json())
    return tmp_path, manifest


def test_an_untouched_bundle_passes(bundle: tuple[Path, Manifest]) -> None:
    check_files(*bundle)


def test_every_wrong_file_is_listed_at_once(bundle: tuple[Path, Manifest]) -> None:
    directory, manifest = bundle
    (directory / "a.bin").write_bytes(b"abd")
    (directory / "b.bin").unlink()
    with pytest.raises(BundleError, match=r"a\.bin was changed.*b\.bin is missing"):
        check_files(directory, manifest)


def test_a_file_of_another_size_is_found_without_hashing(bundle: tuple[Path, Manifest]) -> None:
    directory, manifest = bundle
    (directory / "a.bin").write_bytes(b"abcd")
    with pytest.raises(BundleError, match="4 bytes, not 3"):
        check_files(directory, manifest)


def test_a_manifest_can_not_point_outside_its_bundle(bundle: tuple[Path, Manifest]) -> None:
    directory, manifest = bundle
    escaping = dataclasses.replace(manifest, files={"../a.bin": manifest.files["a.bin"]})
    with pytest.raises(BundleError, match="outside the bundle"):
        check_files(directory, escaping)


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside.bin"])
def test_a_symbolic_link_that_leaves_the_bundle_is_refused(bundle: tuple[Path, Manifest], target: str) -> None:
    directory, manifest = bundle
    (directory.parent / "outside.bin").write_bytes(b"abc")
    (directory / "a.bin").unlink()
    (directory / "a.bin").symlink_to(target)
    with pytest.raises(BundleError, match="outside the bundle"):
        check_files(directory, manifest)


def test_symbolic_links_within_and_to_the_bundle_are_fine(bundle: tuple[Path, Manifest], tmp_path: Path) -> None:
    directory, manifest = bundle
    (directory / "a.bin").rename(directory / "real.bin")
    (directory / "a.bin").symlink_to("real.bin")
    (directory / "self").symlink_to(directory)
    check_files(directory / "self", manifest)


def test_a_loop_of_symbolic_links_is_refused(bundle: tuple[Path, Manifest]) -> None:
    directory, manifest = bundle
    (directory / "a.bin").unlink()
    (directory / "a.bin").symlink_to("a.bin")
    with pytest.raises(BundleError, match=r"a\.bin"):
        check_files(directory, manifest)


def test_a_bundle_that_lists_no_files_is_not_trusted(bundle: tuple[Path, Manifest]) -> None:
    directory, manifest = bundle
    with pytest.raises(BundleError, match="lists no files"):
        check_files(directory, dataclasses.replace(manifest, files={}))


def test_inspect_shows_a_bundle_and_fails_when_it_was_changed(
    bundle: tuple[Path, Manifest], capsys: pytest.CaptureFixture[str]
) -> None:
    directory, manifest = bundle
    assert main(["inspect", str(directory)]) == 0
    shown = capsys.readouterr().out
    assert "tiny" in shown
    assert "a.bin" in shown
    assert main(["inspect", str(directory), "--json"]) == 0
    assert Manifest.from_json(capsys.readouterr().out) == manifest
    (directory / "a.bin").write_bytes(b"abd")
    assert main(["inspect", str(directory), "--json"]) == 1
    assert "a.bin" in capsys.readouterr().err
