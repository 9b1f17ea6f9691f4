"""Checks that the vocabulary names exactly the rows of the embedding."""

from __future__ import annotations

from pathlib import Path

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.files import read_json

__all__ = ["check_pieces", "check_vocabulary"]

LARGEST_PADDING = 256
"""Some embeddings are padded to a round number of rows; rows that no piece names can be no more than this."""


def check_pieces(what: str, pieces: int, rows: int) -> None:
    """CheckpointError unless the embedding has a row for each piece, and not many more."""
    if not pieces <= rows < pieces + LARGEST_PADDING:
        raise CheckpointError(
            f"vocabulary and embedding disagree: {what} has {pieces} ids, the embedding has {rows} rows; "
            "take both from the same checkpoint"
        )


def check_vocabulary(path: Path, rows: int, more: int = 0) -> None:
    """CheckpointError unless the ids in `path` are 0 … n−1 and the embedding has those rows (or is padded a little).

    `more`: rows that are known to belong to other tokens.
    """
    ids = read_json(path).values()
    if not all(isinstance(index, int) and not isinstance(index, bool) for index in ids):
        raise CheckpointError(f"{path} is not a vocabulary: it must map pieces to ids")
    pieces = len(ids)
    if beyond := sorted(index for index in ids if not 0 <= index < rows):
        raise CheckpointError(
            f"vocabulary and embedding disagree: {path.name} has {pieces} pieces with ids up to {max(beyond)}, "
            f"the embedding has {rows} rows; take both from the same checkpoint"
        )
    if len(set(ids)) != pieces or set(ids) != set(range(pieces)):
        raise CheckpointError(f"{path.name} must give the ids 0 to {pieces - 1} to its {pieces} pieces, each once")
    padded = rows - pieces == more or (rows % 8 == 0 and rows - pieces < LARGEST_PADDING)
    if pieces < rows and not padded:
        raise CheckpointError(
            f"vocabulary and embedding disagree: {path.name} has {pieces} pieces, the embedding has {rows} rows; "
            "take both from the same checkpoint"
        )
