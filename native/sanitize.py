"""Runs the native code's tests with sanitizers: `make sanitize`, or `native/sanitize.py TEST…` for some of the operators'.

The custom operators and the Triton backend's EngineClient are compiled with each sanitizer into a temporary directory, and
the tests run on those libraries in a Python that was started with the sanitizer's runtime. Sources that a test compiles by
itself (the limit of messages) are compiled with the sanitizer, too. Python, ONNX Runtime and numpy are not instrumented.
The exit status is that of the first test run that failed or had a report.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import build

ROOT = build.HERE.parent
NATIVE_TESTS, MESSAGE_LIMIT = ROOT / "tests" / "unit" / "native", "test_message_limit.py"
APART = {"test_build.py", "test_processors.py"}  # they compile, or start processes of their own
OPERATOR_TESTS = [str(path) for path in sorted(NATIVE_TESTS.glob("test_*.py")) if path.name not in {*APART, MESSAGE_LIMIT}]
BACKEND_TESTS = [str(ROOT / "tests/unit/serving/backend_client"), str(NATIVE_TESTS / MESSAGE_LIMIT)]
"""Their code is the same for every instruction set."""
RUN_TESTS = """
import sys
from pathlib import Path
import pytest
import engine_client
from dragoman import native
native.OPS_LIBRARY, engine_client.LIBRARY = map(Path, sys.argv[1:3])
sys.exit(pytest.main(sys.argv[3:]))
"""


@dataclass(frozen=True, slots=True)
class Sanitizer:
    """How the code is compiled with it, and what runs the tests."""

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
    """Compile with it and run the tests: those of the operators for each of its instruction sets."""
    command = build.compiler()
    # The C++ library, too: the address sanitizer looks for its exceptions when the process starts.
    runtimes = " ".join(library_of(command, name) for name in (sanitizer.runtime, "libstdc++.so"))
    os.environ["CXXFLAGS"] = sanitizer.flags
    with tempfile.TemporaryDirectory() as directory:
        libraries = (
            build.build_ops(Path(directory), command),
            build.build_client(Path(directory), ROOT / "tests" / "engine_client.cpp", command),
        )

        def pytest(processor: str, chosen: list[str]) -> None:
            print(f"sanitizer: {title}; instruction set: {processor}", flush=True)
            environment = {
                **os.environ,
                **sanitizer.environment,
                "LD_PRELOAD": runtimes,
                "DRAGOMAN_PROCESSOR": processor,
                "PYTHONPATH": str(ROOT / "tests"),
                "PYTHONMALLOC": "malloc",
            }
            # In one process, whose reports go to stderr.
            arguments = ["-q", "--capture=no", "-p", "no:cacheprovider", "-p", "no:xdist", *chosen]
            subprocess.run([sys.executable, "-c", RUN_TESTS, *libraries, *arguments], cwd=ROOT, env=environment, check=True)

        for processor in sanitizer.processors:
            pytest(processor, tests or OPERATOR_TESTS)
        if not tests:
            pytest(sanitizer.processors[0], BACKEND_TESTS)


def named_tests() -> list[str]:
    """The tests of the command line; anything else ends here, before minutes of compiling."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("tests", nargs="*", metavar="TEST", help="a file of tests of the operators, or FILE::TEST")
    tests: list[str] = parser.parse_args().tests
    for test in tests:
        if not (file := Path(test.partition("::")[0])).is_file():
            parser.error(f"there is no file {file}")
    return [str(Path(test).resolve()) for test in tests]


if __name__ == "__main__":
    chosen = named_tests()
    try:
        for title, sanitizer in SANITIZERS.items():
            run(title, sanitizer, chosen)
    except build.CannotBuild as cause:
        sys.exit(str(cause))
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode if failed.returncode > 0 else 1)
