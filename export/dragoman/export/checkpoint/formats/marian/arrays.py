"""The arrays of a Marian model by name, from a .npz or a .bin; each is read when it is asked for.

Every size in a file is compared with the file's own before anything is allocated for it.
"""

from __future__ import annotations

import math
import struct
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.formats.zips import ZIP_ERRORS, told

__all__ = ["SETTINGS", "MarianArrays", "open_arrays"]

SETTINGS = "special:model.yml"
VERSION = 1
HEADER_ERRORS = (KeyError, TypeError, SyntaxError, MemoryError, RecursionError)
"""Of numpy's reader, which takes the header of an array for a Python literal."""
MOST_ARRAYS, LONGEST_NAME, MOST_DIMENSIONS = 1 << 16, 1 << 10, 8

FLOAT32, FLOAT16, INT8, INTGEMM8 = 0x404, 0x402, 0x101, 0x4101
ITEM_BYTES = {FLOAT32: 4, FLOAT16: 2, INT8: 1, INTGEMM8: 1}


class MarianArrays(Mapping[str, NDArray[np.generic]], ABC):
    """float32 arrays; `special:model.yml` is int8."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def settings(self) -> str:
        """The text of special:model.yml; it ends with a NUL."""
        if SETTINGS not in self:
            raise CheckpointError(f"{self.path} has no {SETTINGS}: it is not a model that Marian trained")
        text = np.asarray(self[SETTINGS]).astype(np.int8).tobytes().rstrip(b"\0")
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{SETTINGS} in {self.path} is not UTF-8 (byte {error.start})") from error

    @abstractmethod
    def is_transposed(self, name: str) -> bool:
        """Whether a matrix (inputs, outputs) is stored (outputs, inputs)."""


def open_arrays(path: Path) -> MarianArrays:
    """By what the file begins with."""
    return _Npz(path) if zipfile.is_zipfile(path) else _Binary(path)


class _Npz(MarianArrays):
    """What numpy calls .npz: a zip of arrays, stored as they are."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            self._archive = zipfile.ZipFile(path)
        except ZIP_ERRORS as error:
            raise _damaged(path, error) from error
        records = self._archive.infolist()
        if any(record.compress_type != zipfile.ZIP_STORED for record in records):
            raise CheckpointError(f"{path} has compressed arrays, which Marian never writes; it is refused")
        if sum(record.file_size for record in records) > path.stat().st_size:
            raise CheckpointError(f"{path} has arrays that are longer than the file; it is refused")
        self._records = {record.filename.removesuffix(".npy"): record for record in records}

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        record = self._records[name]
        try:
            with self._archive.open(record) as stream:
                version = np.lib.format.read_magic(stream)  # type: ignore[no-untyped-call]
                reads = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
                shape, fortran, dtype = reads[version](stream)  # type: ignore[no-untyped-call]
                if dtype.hasobject or fortran or math.prod(shape) * dtype.itemsize > record.file_size:
                    raise CheckpointError(f"{name} in {self.path} is not an ordinary array; it is refused")
                content = stream.read(math.prod(shape) * dtype.itemsize)
            return np.frombuffer(bytearray(content), dtype=dtype).reshape(shape)
        except (*ZIP_ERRORS, *HEADER_ERRORS) as error:
            raise _damaged(self.path, error) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def is_transposed(self, name: str) -> bool:  # noqa: ARG002
        return False


@dataclass(frozen=True, slots=True)
class _Item:
    kind: int
    shape: tuple[int, ...]
    offset: int
    length: int


class _Binary(MarianArrays):
    """version, count, (name length, type, rank, bytes) of each, names, shapes, padding, then one array after another."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        size = path.stat().st_size
        with path.open("rb") as stream:

            def numbers(form: str, count: int) -> tuple[int, ...]:
                need = struct.calcsize(form) * count
                if need > size - stream.tell():
                    raise CheckpointError(f"{path} is truncated, or its header is damaged; fetch it again")
                return struct.unpack(f"<{count}{form}", stream.read(need))

            (version,) = numbers("Q", 1)
            if version != VERSION:
                raise CheckpointError(
                    f"{path} is not a model of Marian: it begins neither as .npz nor with the version {VERSION} of its "
                    f"binary files (but with {version})"
                )
            (count,) = numbers("Q", 1)
            if count > MOST_ARRAYS:
                raise CheckpointError(f"{path} is damaged: it promises {count} arrays")
            heads = [numbers("Q", 4) for _ in range(count)]
            if any(head[0] > LONGEST_NAME or head[2] > MOST_DIMENSIONS for head in heads):
                raise CheckpointError(f"{path} is damaged: a name or a shape is too long")
            names = [bytes(numbers("B", head[0])).rstrip(b"\0").decode("utf-8", errors="replace") for head in heads]
            shapes = [numbers("i", head[2]) for head in heads]
            (padding,) = numbers("Q", 1)
            offset = stream.tell() + padding
        self._items: dict[str, _Item] = {}
        for name, (_, kind, _, length), shape in zip(names, heads, shapes, strict=True):
            self._items[name] = self._checked(name, _Item(kind, shape, offset, length), size)
            offset += length

    def _checked(self, name: str, item: _Item, size: int) -> _Item:
        if item.kind not in ITEM_BYTES:
            raise CheckpointError(
                f"{name} in {self.path} is of type {item.kind:#x}; float32, float16 and intgemm8 are known"
            )
        if any(dimension < 0 for dimension in item.shape) or item.offset + item.length > size:
            raise CheckpointError(f"{self.path} is truncated: {name} ends after the file; fetch it again")
        if math.prod(item.shape) * ITEM_BYTES[item.kind] + (4 if item.kind == INTGEMM8 else 0) > item.length:
            raise CheckpointError(
                f"{name} in {self.path} is damaged: {list(item.shape)} needs more than its {item.length} bytes"
            )
        return item

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        item = self._items[name]
        count, dtypes = math.prod(item.shape), {FLOAT32: np.float32, FLOAT16: np.float16}
        found = np.fromfile(self.path, dtypes.get(item.kind, np.int8), count, offset=item.offset)
        if len(found) != count:
            raise CheckpointError(f"{self.path} changed while it was read")
        if item.kind == INTGEMM8:  # value = number / scale; the scale stands after the numbers
            scale = np.fromfile(self.path, np.float32, 1, offset=item.offset + count)
            found = found.astype(np.float32) / scale
        shape = item.shape[::-1] if self.is_transposed(name) else item.shape
        return found.reshape(shape) if item.kind == INT8 else found.astype(np.float32, copy=False).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def is_transposed(self, name: str) -> bool:
        """int8 matrices are stored for intgemm; embeddings are as they are in both."""
        return self._items[name].kind == INTGEMM8 and not name.endswith(("Wemb", "_Wt"))


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path} is truncated or corrupt: {told(error)}; fetch it again")
