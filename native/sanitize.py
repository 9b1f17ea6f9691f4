"""Runs the tests of the custom operators with sanitizers: `make sanitize`.

The operators are compiled with each sanitizer into a directory of their own, and the tests run on that library in a Python
that was started with the sanitizer's runtime. ONNX Runtime and numpy are not instrumented. The exit status is that of the
first test run that failed, or that had a report.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import build

ROOT = build.HERE.parent
TESTS = ("attention", "best_tokens", "linear", "norm", "refusals", "shapes", "thread_pool")
RUN_TESTS = """
import sys
from pathlib import Path
import pytest
from dragoman import native
native.OPS_LIBRARY = Path(sys.argv[1])
sys.exit(pytest.main(sys.argv[2:]))
"""


@dataclass(frozen=True, slots=True)
class Sanitizer:
    """How the operators are compiled with it, and what runs their tests."""

    flags: str
    runtime: str
    environment: dict[str, str]
    processors: tuple[str, ...]


SANITIZERS = {
    "address and undefined behaviour": Sanitizer(
        "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all",
        "libasan.so",
        # Python frees little of what it has when it ends, so leaks can't be told from that.
        {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"},
        ("avx512", "avx2", "plain"),
    ),
    "threads": Sanitizer(
        "-O1 -g -fno-omit-frame-pointer -fsanitize=thread",
        "libtsan.so",
        {"TSAN_OPTIONS": f"exitcode=66 suppressions={build.HERE / 'tsan.supp'}"},
        ("avx2",),
    ),
}


def library_of(command: list[str], name: str) -> str:
    """Where the compiler has this shared library."""
    asked = subprocess.run([*command, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    if not Path(found := asked.stdout.strip()).is_absolute():
        sys.exit(f"{command[0]} has no {name}; install the sanitizers of your compiler")
    return found


def run(title: str, sanitizer: Sanitizer, tests: list[str]) -> None:
    """Compile the operators with it and run the tests on them, for each of its instruction sets."""
    command = build.compiler()
    # The C++ library, too: the address sanitizer looks for its exceptions when the process starts.
    runtimes = " ".join(library_of(command, name) for name in (sanitizer.runtime, "libstdc++.so"))
    os.environ["CXXFLAGS"] = sanitizer.flags
    with tempfile.TemporaryDirectory() as directory:
        library = build.build_ops(Path(directory), command)
        for processor in sanitizer.processors:
            print(f"sanitizer: {title}; instruction set: {processor}", flush=True)
            environment = {
                **os.environ,
                **sanitizer.environment,
                "LD_PRELOAD": runtimes,
                "DRAGOMAN_PROCESSOR": processor,
                "PYTHONPATH": str(ROOT / "tests"),
                "PYTHONMALLOC": "malloc",
            }
            arguments = ["-q", "--capture=no", "-p", "no:cacheprovider", *tests]  # reports go to stderr
            subprocess.run([sys.executable, "-c", RUN_TESTS, library, *arguments], cwd=ROOT, env=environment, check=True)


if __name__ == "__main__":
    names = sys.argv[1:] or [str(ROOT / "tests" / "unit" / "native" / f"test_{name}.py") for name in TESTS]
    try:
        for each, settings in SANITIZERS.items():
            run(each, settings, names)
    except build.CannotBuild as cause:
        sys.exit(str(cause))
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode if failed.returncode > 0 else 1)
