"""Greedy, beam and sampling search in numpy: pure, shared by the engine, the verification and the client.

A search never sees the model. It returns what to feed next (`tokens`, `positions`, `parents`) and how many best tokens it
needs (`candidates`); the caller runs the model and gives them to `advance`.
"""

from dragoman.search.batch import SearchBatch
from dragoman.search.hypothesis import Finish, Hypothesis
from dragoman.search.initial_state import TokenIds
from dragoman.search.options import DecodingOptions, EarlyStopping
from dragoman.search.single import Search, search_batch, start_search

__all__ = [
    "DecodingOptions",
    "EarlyStopping",
    "Finish",
    "Hypothesis",
    "Search",
    "SearchBatch",
    "TokenIds",
    "search_batch",
    "start_search",
]
