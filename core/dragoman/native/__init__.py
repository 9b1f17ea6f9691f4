"""The native libraries, where they were built: custom operators for ONNX Runtime, and the backend for Triton.

Their sources and their build are in `native/` (`python native/build.py`); a platform wheel has them inside.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path

from dragoman.errors import ServeError

__all__ = [
    "BACKEND_LIBRARY",
    "FIXES_LIBRARY",
    "OPS_LIBRARY",
    "ThreadPool",
    "backend_library",
    "ops_library",
    "processor",
    "require_libraries",
]

OPS_LIBRARY = Path(__file__).with_name("libdragoman_ops.so")
BACKEND_LIBRARY = Path(__file__).with_name("libtriton_dragoman.so")
FIXES_LIBRARY = Path(__file__).with_name("libtriton_fixes.so")
"""Built with the backend; the embedded Triton is started with it (`native/triton_backend/embedded_fixes.cpp`)."""


def ops_library() -> Path | None:
    """Where the custom operators are; None when they were not built."""
    return OPS_LIBRARY if OPS_LIBRARY.is_file() else None


def backend_library() -> Path | None:
    """Where the Triton backend is; None when it was not built."""
    return BACKEND_LIBRARY if BACKEND_LIBRARY.is_file() else None


def require_libraries() -> None:
    """Refuse to serve where the libraries are missing, with the reason."""
    if all(library.is_file() for library in (OPS_LIBRARY, BACKEND_LIBRARY, FIXES_LIBRARY)):
        return
    if sys.platform != "linux" or platform.machine().lower() not in ("x86_64", "amd64"):
        here = f"{platform.system()} on {platform.machine()}"
        raise ServeError(f"serving needs Linux on x86-64, and this is {here}; the client and the export work here")
    raise ServeError(
        f"serving needs Linux on x86-64 and the native libraries, which are not in {BACKEND_LIBRARY.parent}: this is the "
        "pure Python wheel, or a checkout that was not compiled; install the manylinux wheel, or run `make native`"
    )


def processor() -> str | None:
    """What the operators are compiled for on this machine: avx512, avx2 or plain; None when they were not built."""
    if (path := ops_library()) is None:
        return None
    name = _opened(path).dragoman_processor
    name.restype = ctypes.c_char_p
    return str(name().decode())


class ThreadPool:
    """The threads of this process that compute together. A thread that calls operators does so within `with pool:`.

    While fewer callers than threads are inside, the idle threads share their work: a single caller has every core, and
    many callers have one each.
    """

    def __init__(self, path: Path, threads: int) -> None:
        opened = _opened(path)
        if opened.dragoman_pool_resize(threads) != 0:
            raise OSError(f"{threads} threads can't be started; is there a limit on this process?")
        self._enter, self._leave = opened.dragoman_pool_enter, opened.dragoman_pool_leave

    def __enter__(self) -> None:
        self._enter()

    def __exit__(self, *_error: object) -> None:
        self._leave()


def _opened(path: Path) -> ctypes.PyDLL:
    # The same library that ONNX Runtime opens. None of its calls waits, so the GIL is kept.
    return ctypes.PyDLL(str(path))
