"""Opens the files of a checkpoint directory: JSON settings and weight files, never executing a pickle."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from dragoman.bundle.strict_json import read_json_file
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.settings import JsonSettings

__all__ = ["open_safetensors", "open_weights", "read_json", "read_settings", "require_file"]

SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"
FOREIGN = {"tf_model.h5": "TensorFlow", "flax_model.msgpack": "Flax", "model.npz": "Marian's own", "rust_model.ot": "Rust"}
LFS_POINTER = b"version https://git-lfs"


def require_file(path: Path, what: str) -> Path:
    """`path`, or a CheckpointError that says `what` is missing; a git-lfs pointer is not the file it points to."""
    if not path.is_file():
        raise CheckpointError(f"{path.parent} is not a whole checkpoint: {path.name} ({what}) is missing")
    with path.open("rb") as stream:
        if stream.read(len(LFS_POINTER)) == LFS_POINTER:
            raise CheckpointError(f"{path} is only a git-lfs pointer; fetch the real file with `git lfs pull`")
    return path


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`."""
    try:
        loaded = read_json_file(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not readable JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise CheckpointError(f"{path} must hold a JSON object, not a {type(loaded).__name__}")
    return loaded


def read_settings(path: Path) -> JsonSettings:
    """The settings in `path`; none if the file does not exist."""
    return JsonSettings(read_json(path) if path.is_file() else {}, path.name)


def open_weights(directory: Path) -> Mapping[str, Tensor]:
    """All tensors of the checkpoint by name, in one file or several, read from disk only when they are asked for."""
    for name, opener in ((SAFETENSORS, open_safetensors), (PICKLED, _pickled)):
        if (directory / name).exists():
            return opener(require_file(directory / name, "the weights"))
        index = directory / f"{name}.index.json"
        if index.is_file():
            return _sharded(index, opener)
    foreign = [f"{name} ({owner} weights)" for name, owner in FOREIGN.items() if (directory / name).exists()]
    found = f"; it has {', '.join(foreign)}, which dragoman does not read: convert it with transformers" if foreign else ""
    raise CheckpointError(f"{directory} has no weights: neither {SAFETENSORS} nor {PICKLED}{found}")


class _Safetensors(Mapping[str, Tensor]):
    """A safetensors file, mapped into memory for as long as a tensor of it is held: what is mapped counts as used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names = frozenset(self._open().keys())  # type: ignore[no-untyped-call]

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        tensor: Tensor = self._open().get_tensor(name)  # type: ignore[no-untyped-call]
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _open(self) -> safe_open:
        try:
            return safe_open(self._path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{self._path} is truncated or corrupt: {error}; fetch it again") from error


class _Shards(Mapping[str, Tensor]):
    """Several weight files behind one index."""

    def __init__(self, shards: Mapping[str, Mapping[str, Tensor]], shard_of: Mapping[str, str]) -> None:
        self._shards, self._shard_of = shards, shard_of

    def __getitem__(self, name: str) -> Tensor:
        return self._shards[self._shard_of[name]][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shard_of)

    def __len__(self) -> int:
        return len(self._shard_of)


def open_safetensors(path: Path) -> Mapping[str, Tensor]:
    """A safetensors file, mapped into memory."""
    return _Safetensors(path)


def _pickled(path: Path) -> Mapping[str, Tensor]:
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} is corrupt, or holds more than tensors, which could run code and is refused "
            f"({_first_line(error)}); save it again as {SAFETENSORS}"
        ) from error
    except Exception as error:  # a damaged file can fail the unpickler in any way
        raise CheckpointError(f"{path} is truncated or corrupt: {_first_line(error)}; fetch it again") from error
    if not isinstance(loaded, dict) or not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        raise CheckpointError(f"{path} is not a state dict: it must map names to tensors")
    return loaded


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _sharded(index: Path, opener: Callable[[Path], Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    shard_of = read_json(index).get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of:
        raise CheckpointError(f"{index} has no weight_map; fetch it again")
    if not all(isinstance(name, str) for name in shard_of.values()):
        raise CheckpointError(f"{index} must name a file for each weight; fetch it again")
    files = {name: index.parent / name for name in sorted(set(shard_of.values()))}
    if outside := [name for name in files if Path(name).name != name or "\0" in name]:
        raise CheckpointError(f"{index} names files outside the checkpoint: {', '.join(map(ascii, outside[:5]))}")
    shards = {name: opener(require_file(path, "a part of the weights")) for name, path in files.items()}
    if lost := sorted(name for name, shard in shard_of.items() if name not in shards[shard]):
        raise CheckpointError(f"{index} promises weights its files do not hold: {', '.join(lost)}; fetch them again")
    return _Shards(shards, shard_of)
