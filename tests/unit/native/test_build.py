"""How the native libraries are compiled, with which compiler, and what a wheel has inside."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import onnxruntime
import pytest
from native import build
from native.glibc import oldest_glibc

from compiled import can_compile, shared_library
from dragoman import native
from dragoman.native import BACKEND_LIBRARY, OPS_LIBRARY

ROOT = Path(__file__).parents[3]
BACKEND_FUNCTIONS = ("Initialize", "Finalize", "ModelInitialize", "ModelFinalize", "ModelInstanceExecute")
has_ziglang = importlib.util.find_spec("ziglang") is not None
needs_operators = pytest.mark.skipif(native.ops_library() is None, reason="the operators are not built: no C++ compiler")
needs_backend = pytest.mark.skipif(native.backend_library() is None, reason="the Triton backend is not built")
needs_ziglang = pytest.mark.skipif(not has_ziglang, reason="ziglang is not installed; `make test-zig` installs it")
needs_hatchling = pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling makes the wheel")


@pytest.fixture
def empty_path(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No compiler on PATH; ziglang may be installed."""
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    monkeypatch.delenv("CXX", raising=False)


@pytest.fixture
def no_ziglang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_zig", lambda: None)


def exported_symbols(library: Path) -> set[str]:
    names = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in names.splitlines()}


# What `make native` compiled is looked at: compiling it again would take a minute. Wheels are compiled in tests/deploy.


@needs_operators
def test_the_operators_depend_on_no_cpp_runtime_and_load_in_onnxruntime() -> None:
    onnxruntime.SessionOptions().register_custom_ops_library(str(OPS_LIBRARY))
    if (ldd := shutil.which("ldd")) is not None:
        needed = subprocess.run([ldd, str(OPS_LIBRARY)], capture_output=True, text=True, check=True).stdout
        assert "libstdc++" not in needed
        assert "libgcc" not in needed
    if shutil.which("nm") is not None:
        assert all(name == "RegisterCustomOps" or name.startswith("dragoman_") for name in exported_symbols(OPS_LIBRARY))


@needs_backend
@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")
def test_the_backend_exports_only_tritons_interface_and_needs_only_triton_and_glibc() -> None:
    assert exported_symbols(BACKEND_LIBRARY) == {f"TRITONBACKEND_{name}" for name in BACKEND_FUNCTIONS}
    names = subprocess.run(
        ["nm", "-D", str(BACKEND_LIBRARY)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    missing = {line.split()[-1].partition("@") for line in names if " U " in line}
    assert all(name.startswith("TRITON") or version for name, _, version in missing)


@can_compile
def test_the_fixes_of_the_embedded_triton_need_the_c_library_alone(tmp_path: Path) -> None:
    library = build.build_fixes(tmp_path)
    assert list(tmp_path.iterdir()) == [library]
    exported = exported_symbols(library)
    of_the_c_library = {"accept4", "inflate", "recvmsg"}
    assert {"TRITONSERVER_ErrorNew", "TRITONSERVER_InferenceRequestAddInput", *of_the_c_library} <= exported
    assert all(name.startswith("TRITONSERVER_") for name in exported - of_the_c_library)


@needs_ziglang
@pytest.mark.usefixtures("empty_path")
def test_without_a_compiler_on_path_ziglang_compiles(tmp_path: Path) -> None:
    """The smallest library; the wheel of tests/deploy/test_wheel.py has all of them."""
    assert "ziglang" in build.compiler()
    assert oldest_glibc(build.build_fixes(tmp_path)) <= (2, 28)


def test_ziglang_has_one_version_everywhere() -> None:
    (asked,) = re.findall(r'^ZIG = "(.*)"', (ROOT / "hatch_build.py").read_text(encoding="utf-8"), re.MULTILINE)
    for lock in (ROOT / "constraints").glob("*.txt"):
        assert asked in lock.read_text(encoding="utf-8").splitlines()


@pytest.mark.usefixtures("no_ziglang")
def test_an_installed_compiler_comes_before_ziglang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "clang++").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build, "_zig", lambda: ["python", "-m", "ziglang", "c++"])
    assert build.compiler() == [str(tmp_path / "clang++")]
    assert build.portable_compiler()[2] == "ziglang"  # what is used elsewhere runs on an old glibc
    monkeypatch.setenv("CXX", "clang++ -m64")
    assert build.compiler() == build.portable_compiler() == ["clang++", "-m64"]


@pytest.mark.usefixtures("empty_path", "no_ziglang")
def test_without_any_compiler_the_message_names_those_that_would_do(tmp_path: Path) -> None:
    with pytest.raises(build.CannotBuild, match=r"no C\+\+ compiler was found \(g\+\+, clang\+\+, c\+\+\).*ziglang"):
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
    assert not build.supported()
    for make in (build.build_ops, build.build_backend, build.build_fixes):
        with pytest.raises(build.CannotBuild, match=f"for Linux with glibc on x86-64, and this is linux on {processor}"):
            make(tmp_path)


def test_missing_sources_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "OPS", tmp_path)
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


def test_the_error_for_what_is_missing_is_one_line() -> None:
    command = [sys.executable, str(ROOT / "native" / "build.py")]
    done = subprocess.run(
        command, env={**os.environ, "CXX": "/nowhere/g++"}, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("the native libraries are not built: CXX=/nowhere/g++")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("test_that_is_not_there.py", 2)])
def test_the_sanitizers_options_are_read_before_anything_is_compiled(argument: str, code: int) -> None:
    command, environment = (
        [sys.executable, str(ROOT / "native" / "sanitize.py"), argument],
        {**os.environ, "CXX": "/nowhere/g++"},
    )
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, "usage: sanitize.py" in done.stdout + done.stderr) == (code, True)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="there is no objdump")
@needs_backend
def test_the_oldest_glibc_is_the_highest_version_that_objdump_lists() -> None:
    listed = subprocess.run(["objdump", "-T", str(BACKEND_LIBRARY)], capture_output=True, text=True, check=True).stdout
    versions = {(int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", listed)}
    assert oldest_glibc(BACKEND_LIBRARY) == max(versions)


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


def make_wheel(source: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(source / "dist")]
    return subprocess.run(
        command, cwd=source, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=600
    )


@needs_hatchling
def test_a_pure_wheel_has_no_libraries(source: Path) -> None:
    """A library that lay about is not taken."""
    made = make_wheel(source, DRAGOMAN_PURE_WHEEL="1", CXX="/nowhere/g++")
    assert made.returncode == 0, made.stderr
    (wheel,) = (source / "dist").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not any(name.endswith(".so") for name in zipfile.ZipFile(wheel).namelist())


@needs_hatchling
def test_a_wheel_that_cannot_be_compiled_is_not_made(source: Path) -> None:
    made = make_wheel(source, CXX="/nowhere/g++")
    assert made.returncode != 0
    assert "CXX=/nowhere/g++ is no program" in made.stderr
    assert "DRAGOMAN_PURE_WHEEL=1" in made.stderr
    assert not list((source / "dist").glob("*"))


@can_compile
def test_what_tests_compile_has_the_flags_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a sanitizer among them (native/sanitize.py)."""
    monkeypatch.setenv("CXXFLAGS", "-DANSWER=42")
    library = shared_library(tmp_path / "answer.so", 'extern "C" int answer() { return ANSWER; }')
    assert ctypes.CDLL(str(library)).answer() == 42
