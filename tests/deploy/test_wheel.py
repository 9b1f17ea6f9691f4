"""The distributions that `python -m build` makes, installed where no compiler is: the manylinux wheel exports, serves and
translates; the pure one exports and translates, and says why it does not serve."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from clean_environment import CleanEnvironment, install
from compose_files import ROOT
from native import build
from native.glibc import oldest_glibc

from served import Server

pytestmark = pytest.mark.timeout(3600)  # two compilations; two minutes each on two cores that do nothing else
REFERENCE_MODEL = ROOT / "models" / "tatoeba-en-de"
LIBRARIES = {f"dragoman/native/{name}" for name in build.NAMES}


def run_build(*arguments: str, directory: Path, **environment: str) -> None:
    """Without isolation: what the build needs is installed already, and nothing is downloaded."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), *arguments, str(ROOT)]
    variables = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(build.ZIG_CACHE), **environment}
    if find_spec("ziglang") is None:  # named, or the build would ask for ziglang
        variables.setdefault("CXX", build.compiler()[0])
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheel` makes."""
    directory = tmp_path_factory.mktemp("dist")
    run_build(directory=directory)  # the sdist, and the wheel from the sdist
    run_build("--wheel", directory=directory, DRAGOMAN_PURE_WHEEL="1")
    return directory


@pytest.fixture(scope="module")
def platform_wheel(distributions: Path) -> Path:
    (wheel,) = distributions.glob("*manylinux*.whl")
    return wheel


@pytest.fixture(scope="module")
def pure_wheel(distributions: Path) -> Path:
    (wheel,) = distributions.glob("*-none-any.whl")
    return wheel


@pytest.fixture(scope="module")
def with_libraries(platform_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    return install(platform_wheel, tmp_path_factory.mktemp("platform") / "venv")


@pytest.fixture(scope="module")
def pure(pure_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    return install(pure_wheel, tmp_path_factory.mktemp("pure") / "venv")


def export(environment: CleanEnvironment, model: Path, output: Path, *options: str) -> None:
    few = output.with_suffix(".txt")
    few.write_text("Where is the station?\nIt is raining.\n", encoding="utf-8")
    command = (environment.dragoman, "export", model, "--output", output, "--verify-file", few, *options)
    done = environment.run(*command, timeout_s=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_sdist_has_the_sources_and_neither_models_nor_libraries(distributions: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "native/build.py",
        "native/ops/register.cpp",
        "hatch_build.py",
        "model_repository/translate/config.pbtxt",
    } <= names
    assert not [name for name in names if name.startswith("models/") or name.endswith(".so")]


def test_the_platform_wheel_has_the_libraries_and_names_the_glibc_they_need(platform_wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(platform_wheel) as content:
        assert set(content.namelist()) >= LIBRARIES
        needed = max(oldest_glibc(Path(content.extract(name, tmp_path))) for name in LIBRARIES)
    _, minor = max((2, 28), needed)
    assert platform_wheel.name.endswith(f"-py3-none-manylinux_2_{minor}_x86_64.whl")


def test_the_wheels_differ_in_the_libraries_only(platform_wheel: Path, pure_wheel: Path) -> None:
    with zipfile.ZipFile(platform_wheel) as one, zipfile.ZipFile(pure_wheel) as other:
        assert set(one.namelist()) - set(other.namelist()) == LIBRARIES
        assert not set(other.namelist()) - set(one.namelist())


def test_the_types_of_an_installed_client_are_known(pure: CleanEnvironment, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    lines = (
        "from dragoman.client import Translator",
        "from dragoman.errors import Overloaded",
        "reveal_type(Translator('localhost:8001').translate('Hello').text)",
        "reveal_type(Overloaded('full', 5.0).retry_after_s)",
    )
    program.write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(pure.python), program.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout
    revealed = done.stdout.replace("builtins.", "")
    assert [f'Revealed type is "{kind}"' in revealed for kind in ("str", "float")] == [True, True]


def test_the_operators_of_the_platform_wheel_are_right(with_libraries: CleanEnvironment) -> None:
    tests = [ROOT / "tests" / "unit" / "native" / f"test_{name}.py" for name in ("attention", "linear", "norm")]
    done = with_libraries.run(with_libraries.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, timeout_s=900)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def test_the_platform_wheel_translates_without_a_compiler(
    with_libraries: CleanEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", with_libraries.variables["PATH"])
    assert not any(map(shutil.which, (*build.COMPILERS, "cc")))
    export(with_libraries, REFERENCE_MODEL, tmp_path / "en-de")
    with Server.of(["--bundle", f"en-de={tmp_path / 'en-de'}"], program=str(with_libraries.dragoman)) as server:
        program = "import sys; from dragoman.client import Translator\n"
        program += "print(Translator(sys.argv[1]).translate('Where is the station?').text)"
        asked = with_libraries.run(with_libraries.python, "-c", program, server.grpc)
    assert asked.stdout.strip() == "Wo ist der Bahnhof?", asked.stderr


def test_the_pure_wheel_exports_and_translates(pure: CleanEnvironment, tiny_checkpoint: Path, tmp_path: Path) -> None:
    export(pure, tiny_checkpoint, tmp_path / "tiny")
    assert pure.run(pure.dragoman, "inspect", tmp_path / "tiny").returncode == 0
    program = "import dragoman.client, dragoman.loadtest.command; from dragoman import native; print(native.ops_library())"
    assert pure.run(pure.python, "-c", program).stdout.strip() == "None"


def test_the_pure_wheel_explains_that_serving_needs_linux_on_x86_64(pure: CleanEnvironment, reference_bundle: Path) -> None:
    refused = pure.run(pure.dragoman, "serve", "--bundle", reference_bundle, "--grpc-address", "127.0.0.1:0")
    assert refused.returncode == 1
    assert refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith("dragoman serve: serving needs Linux on x86-64")
