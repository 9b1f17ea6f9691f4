"""Runs clang-format and clang-tidy over the C++ sources: `make tidy`, or `native/tidy.py FILE…` for some of them.

Their configuration is `.clang-format` and `.clang-tidy`. The kernels are read as they are compiled for AVX2. The exit status
is 1 when anything was found; nothing is changed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import build

KERNEL_FLAGS = ["-DDRAGOMAN_PROCESSOR=avx2", "-march=x86-64-v3"]


def sources() -> list[Path]:
    """Every translation unit; clang-tidy reads the headers with them."""
    of_ops = [build.OPS / name for name in (*build.SOURCES, *build.KERNELS)]
    return of_ops + [build.BACKEND / name for name in (*build.BACKEND_SOURCES, *build.FIXES_SOURCES)]


def check(source: Path) -> bool:
    """Whether clang-tidy finds nothing; what it finds is printed."""
    kernel = KERNEL_FLAGS if source.parent.name == "kernels" else []
    command = ["clang-tidy", "--quiet", source, "--", *build.flags(), *kernel]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout or done.stderr, flush=True)
    return done.returncode == 0


def is_formatted(sources: list[Path]) -> bool:
    """Whether clang-format would change nothing; what it would change is printed."""
    return subprocess.run(["clang-format", "--dry-run", "--Werror", *sources], check=False).returncode == 0


def main() -> int:
    """Check the sources that are named, or all."""
    if missing := [tool for tool in ("clang-format", "clang-tidy") if shutil.which(tool) is None]:
        print(f"{' and '.join(missing)} not installed (Debian: apt-get install {' '.join(missing)})", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("sources", nargs="*", metavar="FILE", type=Path, help="a C++ source of native/")
    named = [source.resolve() for source in parser.parse_args().sources]
    formatted = is_formatted(named or sorted(build.HERE.glob("*/**/*.[ch]pp")))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return 0 if all([formatted, *pool.map(check, named or sources())]) else 1


if __name__ == "__main__":
    sys.exit(main())
