"""What TensorRT-RTX has compiled for this GPU, in a file that outlives the process that compiled it.

An engine process that takes the place of one that died would compile for seconds otherwise.
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
    """The runtime cache of an engine. `path` lies in a directory of ours alone: what is in it runs on the GPU."""

    def __init__(self, native: Any, path: Path) -> None:
        self._native, self._path = native, path

    def load(self) -> None:
        """Take what another process has left. The file goes: who dies of it leaves none to the next one."""
        try:
            blob = self._path.read_bytes()
            self._path.unlink()
        except FileNotFoundError:
            return
        if not self._native.deserialize(blob):
            _log.info("kernels that were compiled before do not fit this GPU or driver; they are compiled anew")

    def save(self) -> None:
        """Leave everything that was compiled until now."""
        part = self._path.with_suffix(f".{os.getpid()}.part")
        try:
            part.write_bytes(self._native.serialize())
            part.replace(self._path)
        except OSError as error:
            _log.warning("compiled kernels are not kept: %s", error.strerror)
            part.unlink(missing_ok=True)
