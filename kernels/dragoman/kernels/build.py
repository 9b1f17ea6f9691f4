"""Compiles the library: `python -m dragoman.kernels.build`. Installing the package does it, too (`hatch_build.py`).

Standard library only, and nothing of dragoman: it runs before anything is installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["CompilerMissing", "build", "compiler"]

HERE = Path(__file__).parent
SOURCES = ("attention.cpp", "rows.cpp", "operators.cpp")
NAME = "libdragoman_kernels.so"
FLAGS = (
    "-std=c++17 -O3 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Wno-psabi "
    # What makes loops vectors: nobody reads errno or traps, and a product and a sum may be rounded once instead of twice.
    "-fno-math-errno -fno-trapping-math -ffp-contract=fast"
)


class CompilerMissing(Exception):
    """There is nothing to compile with."""


def compiler() -> list[str]:
    """The command of a C++ compiler: $CXX, or the first that is installed."""
    if named := os.environ.get("CXX"):
        return shlex.split(named)
    found = next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)
    if found is None:
        raise CompilerMissing("no C++ compiler was found (g++, clang++ or c++); install one, or name it with CXX=…")
    return [found]


def build(directory: Path = HERE) -> Path:
    """Compile the library into `directory`; an old one stays until the new one is complete."""
    sources = [str(HERE / "src" / name) for name in SOURCES]
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        made = Path(scratch) / NAME
        command = [*compiler(), *FLAGS.split(), *shlex.split(os.environ.get("CXXFLAGS", "")), "-o", str(made), *sources]
        subprocess.run(command, check=True)
        return made.replace(directory / NAME)


if __name__ == "__main__":
    try:
        print(build())
    except CompilerMissing as missing:
        sys.exit(str(missing))
    except subprocess.CalledProcessError as failed:
        sys.exit(f"the compiler ended with {failed.returncode}; its message stands above")
