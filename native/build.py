"""Compiles the custom operators and the Triton backend: `python native/build.py`. Installing the package does the same.

Standard library only, and nothing of dragoman: it runs before anything is installed.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

__all__ = [
    "CannotBuild",
    "build_all",
    "build_backend",
    "build_client",
    "build_fixes",
    "build_ops",
    "compiled",
    "compiler",
    "flags",
    "portable_compiler",
    "supported",
]

HERE = Path(__file__).resolve().parent
OPS, BACKEND = HERE / "ops", HERE / "triton_backend"
PACKAGE = HERE.parent / "core" / "dragoman" / "native"
"""Where the libraries are put: `dragoman.native` looks for them beside itself."""
SOURCES = ("kernels.cpp", "register.cpp", "thread_pool.cpp", "top_k.cpp")
KERNELS = tuple(
    f"kernels/{name}.cpp" for name in ("activation", "attention", "log_sum_exp", "matmul", "norm", "quantise", "table")
)
OPS_NAME = "libdragoman_ops.so"
BACKEND_NAME = "libtriton_dragoman.so"  # Triton looks for a backend by this name
FIXES_NAME = "libtriton_fixes.so"
NAMES = (OPS_NAME, BACKEND_NAME, FIXES_NAME)
FIXES_SOURCES = ("embedded_fixes.cpp", "message_limit.cpp")
CLIENT_SOURCES = (
    *("channel.cpp", "dispatcher.cpp", "engine_client.cpp", "failure.cpp", "frames.cpp", "pending.cpp", "poller.cpp"),
    *("routes.cpp", "suspects.cpp", "text.cpp"),
)
"""The backend's connection to the engines, which needs no Triton: tests compile it with functions that they can call."""
BACKEND_SOURCES = (*CLIENT_SOURCES, "backend.cpp", "models.cpp", "publisher.cpp", "tensors.cpp", "triton_reply.cpp")
OPS_EXPORTS, BACKEND_EXPORTS, FIXES_EXPORTS = OPS / "exports.map", BACKEND / "exports.map", BACKEND / "embedded_fixes.map"
"""The linker's lists of the public functions; all other symbols are hidden, those of the C++ runtime among them."""
FLAGS = (
    "-std=c++17 -O3 -fPIC -pthread -fvisibility=hidden -Wall -Wextra -Wno-psabi "
    # For vectorisation: errno and traps are not used, and a product and a sum may be rounded once instead of twice.
    "-fno-math-errno -fno-trapping-math -ffp-contract=fast"
)
MACHINES = ("x86_64", "amd64")
PROCESSORS = {
    "plain": "",
    "avx2": "-march=x86-64-v3",
    "avx512": "-march=x86-64-v4 -mavx512vnni -mprefer-vector-width=512",
}
"""The kernels are compiled for each of these; the library chooses when it is loaded (`kernels.cpp`)."""
COMPILERS = ("g++", "clang++", "c++")
ZIG_TARGET = "x86_64-linux-gnu.2.28"  # the oldest glibc that its libraries run on
ZIG_CACHE = HERE.parent / ".cache" / "zig"


class CannotBuild(Exception):
    """There is no compiler, or it failed; or the processor is another, or the sources are missing."""


def supported() -> bool:
    """Whether the libraries can run here: Linux with glibc on x86-64."""
    return sys.platform == "linux" and platform.machine().lower() in MACHINES and platform.libc_ver()[0] == "glibc"


def compiler() -> list[str]:
    """The command of a C++ compiler: $CXX, one that is installed, or the one of the Python package `ziglang`."""
    if named := shlex.split(os.environ.get("CXX", "")):
        if shutil.which(named[0]) is None:
            raise CannotBuild(f"CXX={named[0]} is no program; name a C++ compiler that is installed, or unset CXX")
        return named
    if (found := next(filter(None, map(shutil.which, COMPILERS)), None)) is not None:
        return [found]
    if (zig := _zig()) is not None:
        return zig
    raise CannotBuild(
        f"no C++ compiler was found ({', '.join(COMPILERS)}); install one, or `pip install ziglang`, or name it with CXX=…"
    )


def portable_compiler() -> list[str]:
    """The compiler for libraries that are used on other machines: ziglang, whose libraries run on an old glibc."""
    zig = None if os.environ.get("CXX") else _zig()
    return compiler() if zig is None else zig


def flags() -> list[str]:
    """Ours, and those that $CXXFLAGS adds."""
    return [*FLAGS.split(), *shlex.split(os.environ.get("CXXFLAGS", ""))]


def build_all(directory: Path = PACKAGE, command: list[str] | None = None) -> list[Path]:
    """Compile every library into `directory`; an old one stays until the new one is complete."""
    return [build(directory, command) for build in (build_backend, build_fixes, build_ops)]


def build_ops(directory: Path = PACKAGE, command: list[str] | None = None) -> Path:
    """Compile the custom operators."""
    _require(OPS, (*SOURCES, *KERNELS))
    command = [*(command or compiler()), *flags()]
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        objects = compiled(command, Path(scratch))
        return _linked(command, objects, Path(scratch) / OPS_NAME, OPS_EXPORTS).replace(directory / OPS_NAME)


def build_backend(directory: Path = PACKAGE, command: list[str] | None = None) -> Path:
    """Compile the Triton backend."""
    return _of_backend(directory, BACKEND_NAME, BACKEND_SOURCES, BACKEND_EXPORTS, [*(command or compiler()), *flags()])


def build_fixes(directory: Path = PACKAGE, command: list[str] | None = None) -> Path:
    """Compile what is loaded before the embedded Triton's libraries; it needs nothing but the C library."""
    command = [*(command or compiler()), *flags(), "-fno-exceptions", "-fno-rtti"]
    return _of_backend(directory, FIXES_NAME, FIXES_SOURCES, FIXES_EXPORTS, command)


def build_client(directory: Path, entry: Path, command: list[str] | None = None) -> Path:
    """Compile the backend's EngineClient with the functions of `entry`, by which the tests call it."""
    command, library = [*(command or compiler()), *flags(), "-O1", "-I", str(BACKEND)], directory / "client.so"
    sources = [BACKEND / name for name in CLIENT_SOURCES]
    _run([*command, "-shared", "-o", library, entry, *sources])
    return library


def _of_backend(directory: Path, name: str, sources: tuple[str, ...], exports: Path, command: list[str]) -> Path:
    _require(BACKEND, sources)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        objects = _objects([(command, BACKEND / source, Path(scratch)) for source in sources])
        return _linked(command, objects, Path(scratch) / name, exports).replace(directory / name)


def compiled(command: list[str], scratch: Path) -> list[Path]:
    """The operators' objects: the kernels once for each instruction set, in a directory of its name."""
    units = [(command, OPS / source, scratch / "common") for source in SOURCES]
    for processor, options in PROCESSORS.items():
        march = options.replace("x86-64-v", "x86_64_v") if _is_zig(command) else options
        kernels = [*command, f"-DDRAGOMAN_PROCESSOR={processor}", *march.split()]
        units += [(kernels, OPS / source, scratch / processor) for source in KERNELS]
    return _objects(units)


def _objects(units: Iterable[tuple[list[str], Path, Path]]) -> list[Path]:
    """Compile each source into its directory, as many at a time as there are cores."""

    def compile_one(unit: tuple[list[str], Path, Path]) -> Path:
        command, source, directory = unit
        directory.mkdir(exist_ok=True)
        output = directory / f"{source.stem}.o"
        _run([*command, "-c", source, "-o", output])
        return output

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile_one, units))


def _linked(command: list[str], objects: list[Path], output: Path, exports: Path) -> Path:
    _run([*command, "-shared", "-o", output, *objects, f"-Wl,--version-script={exports}", *_link_options(command)])
    return output


def _link_options(command: list[str]) -> list[str]:
    """The C++ runtime is linked into the library: a slim image has none. Some systems have only the shared one."""
    if _is_zig(command):
        return ["-Wl,--gc-sections", "-s"]  # ziglang links its own, always statically
    asked = subprocess.run([command[0], "-print-file-name=libstdc++.a"], capture_output=True, text=True, check=False)
    static = Path(asked.stdout.strip()).is_absolute()
    return ["-Wl,--gc-sections", *(["-static-libstdc++", "-static-libgcc"] if static else [])]


def _run(command: list[str | Path]) -> None:
    if (code := subprocess.run(command, check=False).returncode) != 0:
        raise CannotBuild(f"{_name(command)} ended with {code}; its message stands above")


def _zig() -> list[str] | None:
    """The compiler of the package `ziglang`, with its cache in the checkout; None when it is not installed."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    cache = os.environ.get("ZIG_GLOBAL_CACHE_DIR", ZIG_CACHE)
    return ["/usr/bin/env", f"ZIG_GLOBAL_CACHE_DIR={cache}", sys.executable, "-m", "ziglang", "c++", "-target", ZIG_TARGET]


def _is_zig(command: list[str]) -> bool:
    return _name(command) == "ziglang"


def _name(command: list[str] | list[str | Path]) -> str:
    return "ziglang" if "ziglang" in command or Path(command[0]).name == "zig" else str(command[0])


def _require(directory: Path, names: tuple[str, ...]) -> None:
    if not supported():
        found = f"{sys.platform} on {platform.machine().lower()}"
        raise CannotBuild(f"the native libraries are for Linux with glibc on x86-64, and this is {found}")
    if missing := [name for name in names if not (directory / name).is_file()]:
        raise CannotBuild(f"{', '.join(missing)} can't be found in {directory}; install from the sources")


if __name__ == "__main__":
    try:
        print(*build_all(), sep="\n")
    except CannotBuild as cause:
        sys.exit(f"the native libraries are not built: {cause}")
