"""Prepares a sentencepiece model for a server: pieces that name a language must not be produced by a user's text."""

from __future__ import annotations

from collections.abc import Collection

from dragoman.errors import CheckpointError

__all__ = ["without_pieces"]


def without_pieces(model: bytes, hidden: Collection[int]) -> bytes:
    """The same model with the same ids, which spells the pieces `hidden` with others where they stand in a text."""
    if not hidden:
        return model
    from sentencepiece import sentencepiece_model_pb2 as schema

    parsed = schema.ModelProto()
    try:
        parsed.ParseFromString(model)
    except Exception as error:  # protobuf's own, of a package that nothing else here needs
        raise CheckpointError(f"the sentencepiece model can't be read: {error}") from error
    for at in hidden:
        parsed.pieces[at].type = schema.ModelProto.SentencePiece.UNUSED
    hidden_model: bytes = parsed.SerializeToString()
    return hidden_model
