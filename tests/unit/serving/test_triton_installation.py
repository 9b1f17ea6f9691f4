from pathlib import Path

import pytest

from dragoman import native
from dragoman.errors import ServeError
from dragoman.serving.triton.installation import BACKEND, embedded, find_installation, model_repository, official


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    library = tmp_path / "libtriton_dragoman.so"
    library.touch()
    monkeypatch.setattr(native, "BACKEND_LIBRARY", library)
    return library


def test_the_backend_lies_where_triton_looks_for_it(library: Path, tmp_path: Path) -> None:
    installation = find_installation(tmp_path / "private")
    assert (installation.backend_directory / BACKEND / f"libtriton_{BACKEND}.so").resolve() == library


def test_the_error_for_a_missing_backend_library_says_how_to_build_it(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "BACKEND_LIBRARY", tmp_path / "none.so")
    with pytest.raises(
        ServeError, match=r"the Triton backend is not built .* `python native/build\.py` with a C\+\+ compiler"
    ):
        find_installation(tmp_path / "private")


def test_the_embedded_server_finds_the_libraries_of_its_wheel(tmp_path: Path) -> None:
    installation = embedded(tmp_path / "pytriton" / "tritonserver", tmp_path / "backends")
    assert installation.environment["LD_PRELOAD"].startswith(str(native.FIXES_LIBRARY))
    assert str(tmp_path / "nvidia_pytriton.libs") in installation.environment["LD_LIBRARY_PATH"].split(":")


def test_the_official_server_gets_no_changed_environment(tmp_path: Path) -> None:
    assert official(tmp_path, tmp_path / "backends").environment == {}


def test_the_models_are_found() -> None:
    assert (model_repository() / "translate" / "config.pbtxt").is_file()
