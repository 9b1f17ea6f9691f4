"""The output of a model, and the interfaces of the two sides of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dragoman.bundle.languages import NO_LANGUAGE_TOKENS, LanguageTokens
from dragoman.search.options import DecodingOptions

__all__ = ["Answer", "Answers", "Exported", "FloatArray", "IntArray", "Original", "Tokens"]

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
Tokens = tuple[int, ...]
"""A hypothesis without the start token and with the end token."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The best hypothesis of one source: its tokens with the end token, and the search's score."""

    tokens: Tokens
    score: float


Answers = list[Answer]


class Original(Protocol):
    """The model as it was trained: the reference."""

    name: str

    def generate(self, sources: Sequence[Sequence[int]], options: DecodingOptions) -> list[Tokens]:
        """The best hypothesis of each source, all in one padded batch."""

    def log_probs(
        self, source: Sequence[int], target: Sequence[int], language: LanguageTokens = NO_LANGUAGE_TOKENS
    ) -> FloatArray:
        """(target tokens, vocabulary): log-probabilities of every next token while `target` is forced."""


class Exported(Protocol):
    """The graphs, which are checked. The target language has a start token or a shortlist in some models."""

    def generate(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        language: LanguageTokens = NO_LANGUAGE_TOKENS,
    ) -> Answers:
        """The best hypothesis of each source, all in one padded batch."""

    def scored(
        self, source: Sequence[int], target: Sequence[int], language: LanguageTokens = NO_LANGUAGE_TOKENS
    ) -> FloatArray:
        """(target tokens,): the log-probability of each of them, from the graph that takes whole targets."""

    def forced(
        self, source: Sequence[int], target: Sequence[int], language: LanguageTokens = NO_LANGUAGE_TOKENS
    ) -> tuple[IntArray, FloatArray]:
        """(target tokens, k) twice: the best next tokens and their log-probabilities while `target` is forced."""
