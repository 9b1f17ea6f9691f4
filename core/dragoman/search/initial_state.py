"""What a search begins with: the whole numbers of its sequence, and what its options forbid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dragoman.search.constraints import HistoryRules, Ids, check_tokens, single_bad_words
from dragoman.search.options import DecodingOptions

__all__ = ["FEW", "NO_TOKEN", "SINGLE", "InitialState", "InitialStates", "TokenIds"]

FEW = 4
"""Up to so many banned single tokens are compared for all sequences at once; longer lists for each sequence by itself."""

SINGLE = 6
"""Whole numbers that a sequence has one of each: length, prompt, limit, shortest, need, uneventful_from."""

NO_TOKEN = -1
_MOST_KNOWN = 256


class TokenIds(Protocol):
    """The special tokens that a search must know (dragoman.bundle.manifest.SpecialTokens is one)."""

    @property
    def ends(self) -> tuple[int, ...]:
        """Each of them ends a translation."""

    @property
    def decoder_start(self) -> int: ...


@dataclass(frozen=True, slots=True)
class InitialState:
    """What every search with the same options begins with."""

    options: DecodingOptions
    start: int  # token
    numbers: Ids  # tokens (width), parents (width), SINGLE numbers, banned tokens (FEW), forced first and last token
    few: list[int]  # banned single tokens, where they are compared for all sequences at once
    many: list[int]  # the others
    has_rules: bool
    uneventful_steps: int  # so many steps at least nothing special will happen
    touched: int  # tokens that the options without history may forbid

    def rules(self) -> HistoryRules | None:
        """For one search: they remember its history."""
        return HistoryRules.of(self.options, self.many) if self.has_rules else None


class InitialStates:
    """Most requests have the same options, which are the same object, so their initial state is computed once."""

    def __init__(self, width: int, tokens: TokenIds, vocabulary: int) -> None:
        self._width, self._start, self._ends, self._vocabulary = width, tokens.decoder_start, tokens.ends, vocabulary
        self._known: dict[int, InitialState] = {}  # by the id of the options, which they hold

    def of(self, options: DecodingOptions) -> InitialState:
        """InvalidRequest when the options name a token that is not in the vocabulary."""
        known = self._known.get(id(options))
        if known is None:
            check_tokens(options, self._vocabulary)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[id(options)] = self._found(options)
        return known

    def _found(self, options: DecodingOptions) -> InitialState:
        prompt = 1 + len(options.prefix)
        limit, shortest = prompt + options.max_length, prompt + options.min_length
        banned = single_bad_words(options, self._ends)
        few = banned if len(banned) <= FEW else []
        many = [] if few else banned
        # A prefix takes the place of the forced first token, as in Hugging Face, which only looks at the start token.
        first = options.forced_bos if options.forced_bos is not None and prompt == 1 else NO_TOKEN
        last = NO_TOKEN if options.forced_eos is None else options.forced_eos
        uneventful_from = max(prompt, shortest, 1 + (first != NO_TOKEN))
        singles, bans = (1, prompt, limit, shortest, 0, uneventful_from), (*few, *[NO_TOKEN] * (FEW - len(few)))
        start = self._start if options.decoder_start is None else options.decoder_start
        numbers = np.array([*[start] * self._width, *range(self._width), *singles, *bans, first, last], np.int64)
        has_rules = HistoryRules.of(options, many) is not None
        touched = len(few) + (len(self._ends) if options.min_length else 0)
        uneventful_steps = limit - 2 if uneventful_from == 1 else 0
        return InitialState(options, start, numbers, few, many, has_rules, uneventful_steps, touched)
