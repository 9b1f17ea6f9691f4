"""Compiles the custom operators and the Triton backend: `python native/build.py`. Installing the package does the same.

Standard library only, and nothing of dragoman: it runs before anything is installed.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["CannotBuild", "build_backend", "build_ops", "compiled", "compiler", "flags"]

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
LINK_SOURCES = tuple(f"{name}.cpp" for name in ("asked_model", "channel", "frames", "link", "routes"))
BACKEND_SOURCES = (*LINK_SOURCES, "backend.cpp", "models.cpp", "publisher.cpp", "tensors.cpp")
FLAGS = (
    "-std=c++17 -O3 -fPIC -pthread -fvisibility=hidden -Wall -Wextra -Wno-psabi "
    # For vectorisation: nobody reads errno or traps, and a product and a sum may be rounded once instead of twice.
    "-fno-math-errno -fno-trapping-math -ffp-contract=fast"
)
# The compiler's own libraries inside of ours, and unseen from outside: a slim image has none.
STATIC = "-static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,--gc-sections"
MACHINES = ("x86_64", "amd64")
PROCESSORS = {
    "plain": "",
    "avx2": "-march=x86-64-v3",
    "avx512": "-march=x86-64-v4 -mavx512vnni -mprefer-vector-width=512",
}
"""The kernels are compiled for each of these; the library chooses when it is loaded (`kernels.cpp`)."""


class CannotBuild(Exception):
    """There is no compiler, or it failed; or the processor is another, or the sources are missing."""


def compiler() -> list[str]:
    """The command of a C++ compiler: $CXX, or the first that is installed."""
    if named := shlex.split(os.environ.get("CXX", "")):
        if shutil.which(named[0]) is None:
            raise CannotBuild(f"CXX={named[0]} is no program; name a C++ compiler that is installed, or unset CXX")
        return named
    found = next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)
    if found is None:
        raise CannotBuild("no C++ compiler was found (g++, clang++ or c++); install one, or name it with CXX=…")
    return [found]


def flags() -> list[str]:
    """Ours, and those that $CXXFLAGS adds."""
    return [*FLAGS.split(), *shlex.split(os.environ.get("CXXFLAGS", ""))]


def build_ops(directory: Path = PACKAGE) -> Path:
    """Compile the operators into `directory`; an old library stays until the new one is complete."""
    if (machine := platform.machine().lower()) not in MACHINES:
        raise CannotBuild(f"the operators are for x86-64, and this is {machine}, where ONNX Runtime's own are better")
    _require(OPS, (*SOURCES, *KERNELS))
    command = [*compiler(), *flags()]
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        return _linked(command, compiled(command, Path(scratch)), Path(scratch) / OPS_NAME).replace(directory / OPS_NAME)


def build_backend(directory: Path = PACKAGE) -> Path:
    """Compile the Triton backend into `directory`, likewise."""
    _require(BACKEND, BACKEND_SOURCES)
    command = [*compiler(), *flags()]
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        sources = [BACKEND / name for name in BACKEND_SOURCES]
        return _linked(command, sources, Path(scratch) / BACKEND_NAME).replace(directory / BACKEND_NAME)


def compiled(command: list[str], scratch: Path) -> list[Path]:
    """The sources' objects: the kernels once for each instruction set, all compiled at the same time."""
    options = {name: [f"-DDRAGOMAN_PROCESSOR={name}", *given.split()] for name, given in PROCESSORS.items()}
    units = [("common", SOURCES, []), *((name, KERNELS, given) for name, given in options.items())]
    running = []
    for name, sources, given in units:
        (scratch / name).mkdir()
        files = [OPS / source for source in sources]
        running.append(subprocess.Popen([*command, *given, "-c", *files], cwd=scratch / name))
    for code in [compiling.wait() for compiling in running]:  # all of them, before their directory goes away
        _require_success(code, command[0])
    return sorted(scratch.glob("*/*.o"))


def _require(directory: Path, names: tuple[str, ...]) -> None:
    if missing := [name for name in names if not (directory / name).is_file()]:
        raise CannotBuild(f"{', '.join(missing)} can't be found in {directory}; install from the sources")


def _linked(command: list[str], inputs: list[Path], output: Path) -> Path:
    linked = subprocess.run([*command, "-shared", "-o", output, *inputs, *_static(command[:1])], check=False)
    _require_success(linked.returncode, command[0])
    return output


def _require_success(code: int, command: str) -> None:
    if code != 0:
        raise CannotBuild(f"{command} ended with {code}; its message stands above")


def _static(command: list[str]) -> list[str]:
    """How to link the compiler's libraries; some systems have only the shared ones."""
    asked = subprocess.run([*command, "-print-file-name=libstdc++.a"], capture_output=True, text=True, check=False)
    return STATIC.split() if Path(asked.stdout.strip()).is_absolute() else []


if __name__ == "__main__":
    try:
        print(build_backend())
        print(build_ops())
    except CannotBuild as cause:
        sys.exit(f"the native libraries are not built: {cause}")
