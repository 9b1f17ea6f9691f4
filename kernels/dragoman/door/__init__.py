"""The door: Triton's backend for our models, in C++, built when the package is.

It takes requests inside the server and hands them to the engine process. Without it (no compiler was there) a model in
Triton's Python stub does the same (`dragoman.serving.triton.models`), for several times the processor's time a request.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["LIBRARY", "MODELS", "library"]

LIBRARY = Path(__file__).with_name("libtriton_dragoman.so")

MODELS = ("translate", "translate_stream", "decoder")
"""What it serves. The encoder stays in Python: its stub publishes everybody's metrics."""


def library() -> Path | None:
    """Where the library is; None when it was not built."""
    return LIBRARY if LIBRARY.is_file() else None
