"""Kernels that TensorRT-RTX has compiled for this GPU, in a file that outlives the process.

Otherwise an engine process that replaces another one would compile for seconds.
"""

# ruff: noqa: ANN401 - the bindings have no types

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

__all__ = ["CompiledKernels"]

_log = logging.getLogger(__name__)


class CompiledKernels:
    """The runtime cache of an engine. `path` is in a private directory: its contents are executed on the GPU."""

    def __init__(self, native: Any, path: Path) -> None:
        self._native, self._path = native, path

    def load(self) -> None:
        """Load what another process has saved. The file is removed first: if it makes this process crash, the next one does
        not load it.
        """
        try:
            blob = self._path.read_bytes()
            self._path.unlink()
        except FileNotFoundError:
            return
        if not self._native.deserialize(blob):
            _log.info("kernels that were compiled before do not fit this GPU or driver; they are compiled anew")

    def save(self) -> None:
        """Save everything that was compiled so far."""
        part = self._path.with_suffix(f".{os.getpid()}.part")
        try:
            part.write_bytes(self._native.serialize())
            part.replace(self._path)
        except OSError as error:
            _log.warning("compiled kernels are not kept: %s", error.strerror)
            part.unlink(missing_ok=True)
