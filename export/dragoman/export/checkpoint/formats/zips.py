"""The exceptions of Python's zipfile for archives that are damaged, or made to be."""

from __future__ import annotations

import struct
import zipfile
import zlib

__all__ = ["ZIP_ERRORS", "told"]

ZIP_ERRORS = (
    OSError,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    struct.error,
    ValueError,  # of names that are no text, too
    RuntimeError,  # encrypted
    NotImplementedError,  # another compression
    EOFError,
)


def told(error: Exception) -> str:
    """What an error says, in a line: it may repeat what the archive holds."""
    return ascii(str(error) or type(error).__name__)[1:-1][:200]
