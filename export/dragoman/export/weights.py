"""`weights.bin`: every tensor of every graph once, written as it comes so that memory stays low."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["INLINE_BYTES", "WEIGHTS_NAME", "Keep", "WeightsFile", "in_memory"]

WEIGHTS_NAME = "weights.bin"

INLINE_BYTES = 1024
"""Smaller tensors stay in the graph: shapes and scalars that a runtime folds while it loads."""

PAGE, CACHE_LINE = 4096, 64


Keep = Callable[[Iterable[NDArray[np.generic]]], Tensor]
"""Puts an array, given in parts along its first dimension, where the graphs will have it."""


def in_memory(parts: Iterable[NDArray[np.generic]]) -> Tensor:
    """For graphs that are not written."""
    return torch.from_numpy(np.concatenate(list(parts)))


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
        self._kept: dict[int, Place] = {}  # by the address where they are mapped
        self._maps: list[NDArray[np.generic]] = []  # which therefore stay mapped
        self._stream: BinaryIO

    def __enter__(self) -> WeightsFile:
        self._stream = self._path.open("w+b")
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._maps.clear()

    def keep(self, parts: Iterable[NDArray[np.generic]]) -> Tensor:
        """Write an array now, part by part, and map it: it takes no memory, and `take` finds it in the file already."""
        parts = iter(parts)
        first = next(parts)
        begin = self._stream.tell()
        offset, digest, rows = self._aligned(PAGE if first.nbytes >= PAGE else CACHE_LINE), hashlib.sha256(), 0
        for part in itertools.chain([first], parts):
            content = np.ascontiguousarray(part)
            digest.update(content.reshape(-1).view(np.uint8).data)
            self._stream.write(content.data)
            rows, dtype, rest = rows + content.shape[0], content.dtype, content.shape[1:]
        place = Place(offset, self._stream.tell() - offset)
        if (same := self._places.setdefault(digest.digest(), place)) != place:
            self._stream.truncate(begin)
            self._stream.seek(begin)
        self._stream.flush()
        mapped = np.memmap(self._path, dtype, "c", same.offset, (rows, *rest))
        self._kept[mapped.ctypes.data] = same
        self._maps.append(mapped)
        return torch.from_numpy(mapped)

    def take(self, model: ir.Model) -> None:
        """Move every large initializer of `model` into the file."""
        for value in model.graph.initializers.values():
            tensor = value.const_value
            if tensor is None or tensor.nbytes < INLINE_BYTES:
                continue
            array = tensor.numpy()
            place = self._kept.get(array.ctypes.data) or self._store(array)
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
        offset = self._aligned(alignment)
        self._stream.write(content)
        return Place(offset, content.nbytes)

    def _aligned(self, alignment: int) -> int:
        self._stream.write(bytes(-self._stream.tell() % alignment))
        return self._stream.tell()
