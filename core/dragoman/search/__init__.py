"""Greedy, beam and sampling search in numpy: pure, shared by the engine, the verification and the client.

A search never sees the model. It returns what to feed next (`tokens`, `positions`, `parents`) and how many best tokens it
needs (`candidates`); the caller runs the model and gives them to `advance`.
"""

from dragoman.search.batch import SearchBatch
from dragoman.search.beam import BeamBatch
from dragoman.search.greedy import GreedyBatch
from dragoman.search.hypothesis import Finish, Hypothesis
from dragoman.search.initial_state import TokenIds
from dragoman.search.options import DecodingOptions, EarlyStopping
from dragoman.search.phrase_table import Words

__all__ = [
    "DecodingOptions",
    "EarlyStopping",
    "Finish",
    "Hypothesis",
    "SearchBatch",
    "TokenIds",
    "Words",
    "search_batch",
]


def search_batch(
    width: int, tokens: TokenIds, vocabulary: int, choices: int | None = None, words: Words | None = None
) -> SearchBatch:
    """An empty batch for searches of `width` rows each; terms that must occur need the `words` of the vocabulary."""
    return GreedyBatch(tokens, vocabulary, choices) if width == 1 else BeamBatch(width, tokens, vocabulary, choices, words)
