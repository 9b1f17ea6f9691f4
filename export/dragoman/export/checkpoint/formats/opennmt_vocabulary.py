"""The vocabularies in an OpenNMT-py checkpoint: lists of pieces, or the objects of torchtext that older versions saved."""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.formats.pickles import Inert
from dragoman.export.checkpoint.formats.vocabularies import checked_ids, numbered

__all__ = ["read_vocabularies"]

DEEPEST = 8


def read_vocabularies(stored: object, file: str) -> tuple[dict[str, int], dict[str, int]]:
    """Pieces and ids of source and target."""
    if isinstance(stored, (list, tuple)):  # before version 1: pairs of a name and a vocabulary
        pairs = [pair for pair in stored if isinstance(pair, (list, tuple)) and len(pair) == 2]
        stored = {pair[0]: pair[1] for pair in pairs if isinstance(pair[0], str)}
    if not isinstance(stored, Mapping):
        raise CheckpointError(f"`vocab` of {file} is neither a mapping nor a list of pairs")
    found = []
    for side in ("src", "tgt"):
        pieces = _pieces(stored.get(side), DEEPEST)
        if pieces is None:
            raise CheckpointError(
                f"`vocab` of {file} has no list of pieces for {side!r}; save the checkpoint with version 3"
            )
        where = f"the vocabulary {side!r} in {file}"
        found.append(numbered(pieces, where) if isinstance(pieces, list) else checked_ids(dict(pieces), where))
    return found[0], found[1]


def _pieces(value: object, depth: int) -> list[object] | Mapping[object, object] | None:
    """The list itself, or the `itos` of the torchtext vocabulary inside a field inside a field of fields."""
    if isinstance(value, Inert):
        value = value.state
    if depth == 0 or value is None:
        return None
    if isinstance(value, list) and value and all(isinstance(piece, str) for piece in value):
        return value
    if isinstance(value, Mapping):
        inside = next((value[name] for name in ("itos", "vocab", "base_field", "fields") if name in value), None)
        if inside is not None:
            return _pieces(inside, depth - 1)
        return value if value and all(isinstance(piece, str) for piece in value) else None
    if isinstance(value, (list, tuple)) and value:  # fields: pairs of a name and a field; the first is the text's
        first = value[0]
        return _pieces(first[1] if isinstance(first, (list, tuple)) and len(first) == 2 else first, depth - 1)
    return None
