"""Operators of our own for ONNX Runtime on CPUs: a small library in C++, built when the package is.

Without it (no compiler was there) bundles are exported with ONNX Runtime's own operators, which are slower.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

__all__ = ["LIBRARY", "Team", "library", "processor"]

LIBRARY = Path(__file__).with_name("libdragoman_kernels.so")


def library() -> Path | None:
    """Where the library is; None when it was not built."""
    return LIBRARY if LIBRARY.is_file() else None


def processor() -> str | None:
    """What the library's loops are compiled for on this machine: avx512, avx2 or plain; None when it was not built."""
    if (path := library()) is None:
        return None
    name = _opened(path).dragoman_processor
    name.restype = ctypes.c_char_p
    return str(name().decode())


class Team:
    """The threads of this process that may compute together. A thread that calls operators does so within `with team:`.

    While fewer do so than there are, helpers share the work of those who do; so a lone caller has all cores to himself,
    and many have one each.
    """

    def __init__(self, path: Path, threads: int) -> None:
        opened = _opened(path)
        opened.dragoman_resize_team(threads)
        self._begin_turn, self._end_turn = opened.dragoman_begin_turn, opened.dragoman_end_turn

    def __enter__(self) -> None:
        self._begin_turn()

    def __exit__(self, *_error: object) -> None:
        self._end_turn()


def _opened(path: Path) -> ctypes.PyDLL:
    # The same library that ONNX Runtime opens. None of its calls waits, so Python need not let others run meanwhile.
    return ctypes.PyDLL(str(path))
