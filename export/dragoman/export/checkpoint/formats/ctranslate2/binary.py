"""`model.bin` of CTranslate2, version 6.

    u32 version; string specification; u32 revision
    u32 count; count × (string name, u8 rank, u32 × rank sizes, u8 type, u32 bytes, the bytes)
    u32 count; count × (string alias, string name)

A string is its length with the NUL at its end in a u16, and its bytes. All numbers are little-endian. The file is mapped
into memory: every length is compared with what is left of it, and nothing is copied before a tensor is asked for.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.settings import shown

__all__ = ["VERSION", "ModelBinary", "Variable", "has_signature"]

VERSION = 6
SPECIFICATION = "TransformerSpec"
TYPES: tuple[tuple[str, int], ...] = (
    ("float32", 4),
    ("int8", 1),
    ("int16", 2),
    ("int32", 4),
    ("float16", 2),
    ("bfloat16", 2),
)
"""In the order of their numbers in the file, with the bytes of an element."""
LARGEST_RANK = 8
LONGEST_NAME = 1000


@dataclass(frozen=True, slots=True)
class Variable:
    """A tensor in the file."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int

    @property
    def count(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


def has_signature(path: Path) -> bool:
    """Whether `path` begins as a model of CTranslate2 does, of whichever version."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        start = stream.read(4 + 2 + 64)
    if len(start) < 8:
        return False
    version, length = struct.unpack_from("<IH", start)
    name = start[6 : 6 + length - 1]
    return 1 <= version <= 100 and 0 < length <= 64 and name.endswith(b"Spec") and name.isalnum()


class ModelBinary:
    """The variables of one file by name; aliases are resolved."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb") as stream:
                self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} can't be read: {error}") from error
        self._at = 0
        self.variables: dict[str, Variable] = {}
        self._read_header()
        for _ in range(self._number("I")):
            variable = self._variable()
            self.variables[variable.name] = variable
        self.aliases = dict(self._alias() for _ in range(self._number("I")))
        if self._at != len(self._map):
            raise self._corrupt(f"{len(self._map) - self._at} bytes follow its end")

    def find(self, name: str) -> Variable | None:
        """The variable `name`, under its own name or as an alias of another."""
        return self.variables.get(self.aliases.get(name, name))

    def scalar(self, name: str, default: float | None = None) -> float | None:
        """The number in `name`."""
        variable = self.find(name)
        if variable is None:
            return default
        if variable.count != 1:
            raise self._corrupt(f"{name} is a number, not {list(variable.shape)}")
        return float(self._stored(variable).reshape(()).float())

    def tensor(self, variable: Variable) -> Tensor:
        """Its values in float32, with the arithmetic of CTranslate2: q · (1 / scale), a scale for each row or for all."""
        if variable.dtype == "int32":
            raise CheckpointError(
                f"{variable.name} in {self._path} is not supported: it is packed in 4 bits or is no weight"
            )
        stored = self._stored(variable)
        if variable.dtype not in ("int8", "int16"):
            return stored.float()
        scale = self.find(f"{variable.name}_scale")
        rows = variable.shape[0] if variable.shape else 1
        if scale is None or scale.dtype != "float32" or scale.count not in (1, rows):
            found = "none" if scale is None else f"{scale.dtype} {list(scale.shape)}"
            raise self._corrupt(
                f"{variable.name} is {variable.dtype} and needs a scale for each of its {rows} rows, not {found}"
            )
        factors = (1.0 / self._stored(scale)).reshape(-1, *(1 for _ in variable.shape[1:]))
        return stored.float() * factors

    def _stored(self, variable: Variable) -> Tensor:
        """A copy, so that the map may go while the tensor stays."""
        kind = getattr(torch, variable.dtype)
        raw = np.frombuffer(self._map, np.uint8, variable.count * kind.itemsize, variable.offset)
        return torch.from_numpy(raw.copy()).view(kind).reshape(variable.shape)

    def _read_header(self) -> None:
        version = self._number("I")
        if version != VERSION:
            way_out = "convert it again with CTranslate2 3 or newer" if version < VERSION else "upgrade dragoman"
            raise CheckpointError(f"{self._path} has version {version}, dragoman reads version {VERSION}; {way_out}")
        specification = self._string()
        if specification != SPECIFICATION:
            raise CheckpointError(
                f"{self._path} is a {shown(specification)}, which is not an encoder-decoder Transformer; "
                f"dragoman exports {SPECIFICATION}"
            )
        self._number("I")  # its revision

    def _variable(self) -> Variable:
        name, rank = self._string(), self._number("B")
        if rank > LARGEST_RANK:
            raise self._corrupt(f"{shown(name)} has {rank} dimensions")
        shape = tuple(self._number("I") for _ in range(rank))
        kind, size = self._number("B"), self._number("I")
        if kind >= len(TYPES):
            raise self._corrupt(f"{shown(name)} has the type {kind}, which is not known")
        dtype, itemsize = TYPES[kind]
        if math.prod(shape) * itemsize != size:
            raise self._corrupt(f"{shown(name)} of {dtype} {list(shape)} can't have {size} bytes")
        if size > len(self._map) - self._at:
            raise self._corrupt(f"{shown(name)} of {dtype} {list(shape)} is longer than the file")
        if name in self.variables:
            raise self._corrupt(f"{shown(name)} is there twice")
        variable = Variable(name, shape, dtype, self._at)
        self._at += size
        return variable

    def _alias(self) -> tuple[str, str]:
        alias, name = self._string(), self._string()
        if name not in self.variables or alias in self.variables:
            raise self._corrupt(f"{shown(alias)} is an alias of {shown(name)}, which is not there")
        return alias, name

    def _number(self, code: str) -> int:
        layout = struct.Struct(f"<{code}")
        (value,) = layout.unpack(self._bytes(layout.size))
        return int(value)

    def _string(self) -> str:
        length = self._number("H")
        if not 1 <= length <= LONGEST_NAME:
            raise self._corrupt(f"a name of {length} bytes")
        raw = self._bytes(length)
        try:
            text = raw[:-1].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._corrupt("a name that is not UTF-8") from error
        if raw[-1] or not text.isprintable():
            raise self._corrupt(f"a name that is none: {shown(text)}")
        return text

    def _bytes(self, count: int) -> bytes:
        if count > len(self._map) - self._at:
            raise self._corrupt(f"it ends after {len(self._map)} bytes")
        self._at += count
        return self._map[self._at - count : self._at]

    def _corrupt(self, reason: str) -> CheckpointError:
        return CheckpointError(f"{self._path} is truncated or corrupt: {reason}; fetch it again")
