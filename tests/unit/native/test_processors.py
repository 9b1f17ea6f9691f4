"""The loops are compiled for several processors; all of them that this one can pass for are tried."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from native import build

from dragoman import native

pytestmark = pytest.mark.skipif(native.ops_library() is None, reason="the kernels are not built: no C++ compiler")

HERE = Path(__file__).parent
ORDER = ["avx512", "avx2", "plain"]


def with_processor(name: str, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DRAGOMAN_PROCESSOR": name}
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.mark.parametrize("name", ["avx2", "plain"])
def test_the_operators_are_right_with_lower_instruction_sets(name: str) -> None:
    if ORDER.index(name) < ORDER.index(str(native.processor())):
        pytest.skip(f"this processor has no {name}")
    asked = with_processor(name, "-c", "from dragoman import native; print(native.processor())")
    assert asked.stdout.strip() == name
    tests = [str(HERE / file) for file in ("test_attention.py", "test_best_tokens.py", "test_linear.py", "test_norm.py")]
    done = with_processor(name, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")
def test_nothing_of_one_processor_is_linked_into_another(tmp_path: Path) -> None:
    """Of what is weak the linker keeps one copy, whichever processor it was compiled for: the loops must have nothing."""
    objects = [each for each in build.compiled([*build.compiler(), *build.flags()], tmp_path) if each.parent.name in ORDER]
    assert len(objects) == len(ORDER) * len(build.KERNELS)
    listed = subprocess.run(["nm", *objects], capture_output=True, text=True, check=True).stdout
    assert not [line for line in listed.splitlines() if f" {line} ".split()[-2:-1] in (["W"], ["V"], ["u"])]
