"""The door: Triton's backend for our models, in C++, built when the package is.

It takes requests inside the server and hands them to the engine process. Without it (no compiler was there) a model in
Triton's Python stub does the same (`dragoman.serving.triton.models`), for more than twice the processor's time a request.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["LIBRARY", "library"]

LIBRARY = Path(__file__).with_name("libtriton_dragoman.so")


def library() -> Path | None:
    """Where the library is; None when it was not built."""
    return LIBRARY if LIBRARY.is_file() else None
