"""Operators of our own for ONNX Runtime on CPUs: a small library in C++, built when the package is.

Without it (no compiler was there) bundles are exported with ONNX Runtime's own operators, which are slower.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["LIBRARY", "library"]

LIBRARY = Path(__file__).with_name("libdragoman_kernels.so")


def library() -> Path | None:
    """Where the library is; None when it was not built."""
    return LIBRARY if LIBRARY.is_file() else None
