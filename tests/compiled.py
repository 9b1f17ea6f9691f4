"""C++ that tests compile, with the compiler of native/build.py: an installed one, or that of the package ziglang."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from native import build

__all__ = ["can_compile", "shared_library"]


def _has_compiler() -> bool:
    try:
        return bool(build.compiler())
    except build.CannotBuild:
        return False


can_compile = pytest.mark.skipif(not _has_compiler(), reason="there is no C++ compiler")


def shared_library(output: Path, code: str) -> Path:
    """The library `output` of this code; its name is how other libraries know it."""
    source = output.with_suffix(".cpp")
    source.write_text(code, encoding="utf-8")
    command = [*build.compiler(), "-shared", "-fPIC", "-o", output, source, f"-Wl,-soname,{output.name}"]
    subprocess.run(command, check=True)
    return output
