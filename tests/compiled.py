"""C++ that tests compile, with the compiler of native/build.py: an installed one, or that of the package ziglang."""

from __future__ import annotations

import os
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
    """The library `output` of this code, all of whose functions are public; its name is how other libraries know it."""
    source = output.with_suffix(".cpp")
    source.write_text(code, encoding="utf-8")
    # As our libraries are compiled, whose sources some tests include: with a sanitizer, too (native/sanitize.py).
    command = [*build.compiler(), *build.flags(), "-fvisibility=default"]
    # The runtime of a sanitizer, loaded before this process, is not for the compiler.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    named = ["-shared", "-o", output, source, f"-Wl,-soname,{output.name}"]
    subprocess.run([*command, *named], check=True, env=environment)
    return output
