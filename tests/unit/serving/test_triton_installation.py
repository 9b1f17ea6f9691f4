import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dragoman.errors import ServeError
from dragoman.serving.triton.installation import (
    check_libpython,
    check_numpy,
    embedded,
    embedded_alone,
    find_installation,
    model_repository,
)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel with a stub for this Python and one other."""
    root = tmp_path / "pytriton" / "tritonserver"
    for version in ("3.8", f"3.{sys.version_info[1]}"):
        (root / "python_backend_stubs" / version).mkdir(parents=True)
        (root / "python_backend_stubs" / version / "triton_python_backend_stub").touch()
    return root


def test_numpy_1_is_accepted() -> None:
    check_numpy("1.26.4")


def test_numpy_2_is_refused_with_the_way_out() -> None:
    with pytest.raises(ServeError, match=r"numpy 2\.1\.0 is installed.*pip install 'numpy<2'"):
        check_numpy("2.1.0")


def test_a_python_without_a_shared_library_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match=r"there is no libpython3\.\d+\.so; install it"):
        check_libpython(tmp_path, lambda name: None)


def test_a_shared_library_that_the_system_knows_is_enough(tmp_path: Path) -> None:
    check_libpython(tmp_path, lambda name: f"lib{name}.so.1.0")


def test_a_python_without_a_stub_is_refused_with_those_that_have_one(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(ServeError, match=rf"no stub for Python 3\.99; use one of 3\.8, 3\.{sys.version_info[1]}"):
        embedded(wheel, tmp_path / "private", python=(3, 99))


def test_the_stub_stands_beside_the_backend(wheel: Path, tmp_path: Path) -> None:
    installation = embedded(wheel, tmp_path / "private")
    backend = installation.backend_directory / "python"
    assert (backend / "triton_python_backend_stub").is_file()
    assert (backend / "libtriton_python.so").is_symlink()


def test_with_the_door_no_stub_and_no_python_is_laid_out(wheel: Path, tmp_path: Path) -> None:
    installation = embedded_alone(wheel, tmp_path / "private")
    assert list(installation.backend_directory.iterdir()) == []
    assert "PATH" not in installation.environment


def test_the_first_python_on_the_servers_path_imports_what_this_one_does(tmp_path: Path) -> None:
    environment = find_installation(tmp_path).environment
    shown = subprocess.run(
        ["python3", "-I", "-c", "import numpy, dragoman.wire; print(numpy.__version__)"],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.strip() == np.__version__


def test_the_models_are_found() -> None:
    assert (model_repository() / "translate" / "config.pbtxt").is_file()
