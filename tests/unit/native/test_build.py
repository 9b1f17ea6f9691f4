"""How the library is compiled, and what a package is where it can't be."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import onnxruntime
import pytest
from native import build

from dragoman.native import OPS_LIBRARY

ROOT = Path(__file__).parents[3]
BACKEND_ENTRIES = ("Initialize", "Finalize", "ModelInitialize", "ModelFinalize", "ModelInstanceExecute")
COMPILERS = ("g++", "clang++", "c++")
can_compile = pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="there is no C++ compiler")


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)


@can_compile
def test_a_built_library_is_complete_alone_and_onnxruntime_takes_it(tmp_path: Path) -> None:
    library = build.build_ops(tmp_path)
    assert list(tmp_path.iterdir()) == [library]
    assert library.name == OPS_LIBRARY.name
    onnxruntime.SessionOptions().register_custom_ops_library(str(library))
    if (ldd := shutil.which("ldd")) is not None:
        needed = subprocess.run([ldd, str(library)], capture_output=True, text=True, check=True).stdout
        assert "libstdc++" not in needed
        assert "libgcc" not in needed


@can_compile
def test_a_built_backend_is_complete_but_for_what_triton_has(tmp_path: Path) -> None:
    library = build.build_backend(tmp_path)
    assert list(tmp_path.iterdir()) == [library]
    if (nm := shutil.which("nm")) is not None:
        names = subprocess.run([nm, "-D", str(library)], capture_output=True, text=True, check=True).stdout.splitlines()
        exported = {line.split()[-1] for line in names if " T " in line}
        assert exported == {f"TRITONBACKEND_{name}" for name in BACKEND_ENTRIES}
        missing = {line.split()[-1].partition("@") for line in names if " U " in line}
        assert all(name.startswith("TRITON") or version for name, _, version in missing)


@can_compile
def test_the_fixes_of_the_embedded_triton_need_the_c_library_alone(tmp_path: Path) -> None:
    library = build.build_fixes(tmp_path)
    assert list(tmp_path.iterdir()) == [library]
    if (ldd := shutil.which("ldd")) is not None:
        needed = subprocess.run([ldd, str(library)], capture_output=True, text=True, check=True).stdout
        assert "libstdc++" not in needed
        assert "libm" not in needed


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_it_says_which_ones_it_looked_for(tmp_path: Path) -> None:
    with pytest.raises(build.CannotBuild, match=r"no C\+\+ compiler was found \(g\+\+, clang\+\+ or c\+\+\); install one"):
        build.build_ops(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_is_named_but_missing_is_named_in_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++ -m64")
    with pytest.raises(build.CannotBuild, match=r"CXX=/nowhere/g\+\+ is no program"):
        build.build_ops(tmp_path)


@pytest.mark.parametrize("processor", ["aarch64", "arm64", "ppc64le"])
def test_other_processors_are_refused(processor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: processor)
    with pytest.raises(build.CannotBuild, match=f"for x86-64, and this is {processor}"):
        build.build_ops(tmp_path)


def test_without_its_sources_nothing_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "HERE", tmp_path)
    with pytest.raises(build.CannotBuild, match=r"register\.cpp.* can't be found"):
        build.build_ops(tmp_path)


def test_a_failed_compile_leaves_the_old_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / build.OPS_NAME
    old.write_bytes(b"old")
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(build.CannotBuild, match="false ended with 1"):
        build.build_ops(tmp_path)
    assert list(tmp_path.iterdir()) == [old]
    assert old.read_bytes() == b"old"


def test_the_command_says_in_a_line_what_is_missing() -> None:
    command = [sys.executable, str(ROOT / "native" / "build.py")]
    done = subprocess.run(
        command, env={**os.environ, "CXX": "/nowhere/g++"}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("the native libraries are not built: CXX=/nowhere/g++")
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What a wheel is made of, with a library from another time in it; no .gitignore, as in an image."""
    copy = tmp_path / "source"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py"):
        shutil.copy(ROOT / name, copy)
    for name in ("core", "client", "export", "native", "serving", "model_repository"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (copy / "core" / "dragoman" / "native" / build.OPS_NAME).write_bytes(b"old")
    return copy


def made_wheel(source: Path, **environment: str) -> tuple[Path, str]:
    """The wheel, and what was said while it was made."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(source / "dist")]
    done = subprocess.run(
        command, cwd=source, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (source / "dist").glob("*.whl")
    return wheel, done.stderr


needs_hatchling = pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling makes the wheel")


@needs_hatchling
@can_compile
def test_a_wheel_has_the_library_and_is_for_this_system_only(source: Path) -> None:
    wheel, _ = made_wheel(source)
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")
    with zipfile.ZipFile(wheel) as content:
        for library in (build.OPS_NAME, build.BACKEND_NAME):
            assert content.read(f"dragoman/native/{library}").startswith(b"\x7fELF")
        assert not any("/src/" in name for name in content.namelist())


@needs_hatchling
def test_a_wheel_made_without_a_compiler_is_pure(source: Path) -> None:
    """A library that lay about is not taken."""
    wheel, said = made_wheel(source, CXX="/nowhere/g++")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "dragoman is built without its operators: CXX=/nowhere/g++ is no program" in said
    assert not any(name.endswith(".so") for name in zipfile.ZipFile(wheel).namelist())
