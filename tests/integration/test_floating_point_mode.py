"""A session changes nothing in the process that opens it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OPEN_AND_MULTIPLY = """
import sys
from pathlib import Path

import numpy as np

from dragoman.serving.in_process import open_model
from dragoman.serving.runtime.settings import RuntimeSettings

open_model(Path(sys.argv[1]), RuntimeSettings(threads=2))
print(np.float32(1e-40) * np.float32(1) > 0)
"""


def test_opening_a_bundle_leaves_subnormal_numbers_alone(reference_bundle: Path) -> None:
    """ONNX Runtime can make a thread, and those that it starts later, take them for zero.

    The first session of a process decides that, so the test has a process of its own.
    """
    command = [sys.executable, "-c", OPEN_AND_MULTIPLY, reference_bundle]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "True\n"
