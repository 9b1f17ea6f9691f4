"""One search at a time, for tests that have one source or keep each apart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dragoman.search import DecodingOptions, Hypothesis, TokenIds, search_batch
from dragoman.search.constraints import Ids, Scores

__all__ = ["Search"]


class Search:
    """A batch of one. Step with `tokens`, `position`, `parents`; then `advance`; until `done`."""

    def __init__(self, options: DecodingOptions, tokens: TokenIds, vocabulary: int) -> None:
        self._batch = search_batch(options.beam_size, tokens, vocabulary)
        self._batch.join(options)
        self.width = options.beam_size
        self.done = False

    @property
    def tokens(self) -> Ids:
        """(width,): what to feed next."""
        fed: Ids = self._batch.tokens[0]
        return fed

    @property
    def position(self) -> int:
        """How many tokens each row was fed before."""
        return int(self._batch.positions[0])

    @property
    def parents(self) -> Ids:
        """(width,): the row of the previous step that each row continues."""
        rows: Ids = self._batch.parents[0]
        return rows

    @property
    def candidates(self) -> int:
        """How many best tokens the next step must give at least."""
        return self._batch.candidates

    def advance(self, best_tokens: Ids | npt.NDArray[np.int32], best_log_probs: Scores, best_logits: Scores) -> None:
        """Take the best next tokens of each row, (width, candidates), best first."""
        self.done = bool(self._batch.advance(best_tokens, best_log_probs, best_logits))

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The answer, best first, once the search is done."""
        return self._batch.hypotheses(0)

    def decided(self) -> tuple[int, ...]:
        """Tokens that can't change any more."""
        return self._batch.decided(0)
