"""Lists of tokens in the forms that trainers write them, as one mapping from pieces to ids."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dragoman.bundle.strict_json import read_json_file
from dragoman.errors import CheckpointError

__all__ = ["check_rows", "checked_ids", "numbered", "read_lines", "read_vocabulary_file"]

LARGEST_FILE = 1 << 28
LONGEST_PIECE = 1 << 16


def read_vocabulary_file(path: Path) -> dict[str, int]:
    """A .json file (pieces with their ids, or a list in the order of their ids), or text with a piece on each line."""
    if path.suffix == ".json":
        try:
            loaded = read_json_file(path)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} is not readable JSON: {error}") from error
        return numbered(loaded, path.name) if isinstance(loaded, list) else checked_ids(loaded, path.name)
    return numbered([line.rstrip("\r\n") for line in read_lines(path)], path.name)


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, each with its end."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise CheckpointError(f"{path} is larger than {LARGEST_FILE >> 20} MB; that is no vocabulary")
        with path.open(encoding="utf-8", newline="\n") as stream:
            return list(stream)
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 (byte {error.start})") from error


def numbered(pieces: Iterable[object], file: str) -> dict[str, int]:
    """Ids by the order of the pieces; the first of two equal pieces keeps its id, and no text gets the other's."""
    ids: dict[str, int] = {}
    for index, piece in enumerate(pieces):
        if not isinstance(piece, str) or len(piece) > LONGEST_PIECE:
            raise CheckpointError(f"{file} is not a vocabulary: its entry {index} is not a piece of text")
        ids.setdefault(piece, index)
    return ids


def checked_ids(loaded: object, file: str) -> dict[str, int]:
    """An object that gives each piece an id of its own."""
    if not isinstance(loaded, dict) or not all(type(index) is int and index >= 0 for index in loaded.values()):
        raise CheckpointError(f"{file} is not a vocabulary: it must map pieces to ids")
    if len(set(loaded.values())) != len(loaded):
        raise CheckpointError(f"{file} gives one id to two pieces")
    return loaded


def check_rows(ids: dict[str, int], file: str, rows: int) -> None:
    """CheckpointError when a piece has no row in the embedding."""
    if not ids:
        raise CheckpointError(f"{file} holds no pieces")
    if (largest := max(ids.values())) >= rows:
        raise CheckpointError(
            f"vocabulary and embedding disagree: {file} has ids up to {largest}, the embedding has {rows} rows; "
            "take both from the same training"
        )
