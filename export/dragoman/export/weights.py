"""`weights.bin`: every tensor of every graph once, written as it comes so that memory stays low."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["INLINE_BYTES", "WEIGHTS_NAME", "WeightsFile"]

WEIGHTS_NAME = "weights.bin"

INLINE_BYTES = 1024
"""Smaller tensors stay in the graph: shapes and scalars that a runtime folds while it loads."""

PAGE, CACHE_LINE = 4096, 64


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies in the file."""

    offset: int
    length: int


class WeightsFile:
    """A writer that stores equal tensors once, whichever graph brings them. Use it as a context manager."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / WEIGHTS_NAME
        self._places: dict[bytes, Place] = {}
        self._stream: BinaryIO

    def __enter__(self) -> WeightsFile:
        self._stream = self._path.open("wb")
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def take(self, model: ir.Model) -> None:
        """Move every large initializer of `model` into the file."""
        for value in model.graph.initializers.values():
            tensor = value.const_value
            if tensor is None or tensor.nbytes < INLINE_BYTES:
                continue
            place = self._store(tensor.numpy())
            value.const_value = ir.ExternalTensor(
                self._path.name,
                place.offset,
                place.length,
                tensor.dtype,
                shape=ir.Shape(tensor.shape.numpy()),
                name=value.name or "",
                base_dir=self._path.parent,
            )

    def _store(self, array: NDArray[np.generic]) -> Place:
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        digest = hashlib.sha256(content).digest()
        if digest not in self._places:
            self._places[digest] = self._append(content)
        return self._places[digest]

    def _append(self, content: memoryview) -> Place:
        """Runtimes map large tensors into memory by the page, so they begin at one."""
        alignment = PAGE if content.nbytes >= PAGE else CACHE_LINE
        self._stream.write(bytes(-self._stream.tell() % alignment))
        offset = self._stream.tell()
        self._stream.write(content)
        return Place(offset, content.nbytes)
