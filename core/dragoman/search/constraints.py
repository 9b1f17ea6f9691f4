"""The options that depend on the tokens a row has generated, and change which it may generate next.

They are the processors of Hugging Face `generate` with its order and its arithmetic: repetition penalty, then tokens
forbidden by a repeated n-gram or a bad word. Which tokens a step will touch is known before it runs, so a search asks
for just that many more candidates and stays exact with a handful of them instead of the whole vocabulary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from dragoman.errors import InvalidRequest
from dragoman.search.options import DecodingOptions

__all__ = ["HistoryRules", "check_tokens", "single_bad_words"]

Ids = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

_NO_TOKEN = -1


def check_tokens(options: DecodingOptions, vocabulary: int) -> None:
    """InvalidRequest for a token id that the model does not have."""
    forced = [token for token in (options.decoder_start, options.forced_bos, options.forced_eos) if token is not None]
    words = (*options.bad_words, *(tokens for phrase in options.must_occur for tokens in phrase))
    for token in (*options.prefix, *forced, *(token for word in words for token in word)):
        if token >= vocabulary:
            raise InvalidRequest(f"token id {token} is outside the model's vocabulary of {vocabulary}")


def single_bad_words(options: DecodingOptions, ends: Collection[int]) -> list[int]:
    """Bad words of one token; an end token can't be one, or nothing would ever end."""
    return sorted({word[0] for word in options.bad_words if len(word) == 1 and word[0] not in ends})


class HistoryRules:
    """The history-dependent options of one request."""

    def __init__(self, options: DecodingOptions, banned: list[int]) -> None:
        self._penalty = np.float32(options.repetition_penalty)
        self._ngram = options.no_repeat_ngram_size
        self._always = np.array(banned, np.int64)
        # (length of the beginning) -> beginning -> last tokens that would complete a bad word
        self._words: dict[int, dict[tuple[int, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
        for word in options.bad_words:
            if len(word) > 1:
                self._words[len(word) - 1][word[:-1]].append(word[-1])
        self._history: Ids = np.empty((0, 0), np.int64)
        self._banned: Ids = np.empty((0, 0), np.int64)

    @classmethod
    def of(cls, options: DecodingOptions, banned: list[int]) -> HistoryRules | None:
        """The rules that `options` ask for, with single tokens `banned` always; None when there are none."""
        long_words = any(len(word) > 1 for word in options.bad_words)
        needed = banned or long_words or options.no_repeat_ngram_size or options.repetition_penalty != 1.0
        return cls(options, banned) if needed else None

    def prepare(self, history: Ids) -> int:
        """Look at `history` (rows, length), the start token included; how many tokens of a row may fall in rank."""
        touched = len(self._always)
        if self._penalty != 1.0:
            self._history = history.copy()
            touched += history.shape[1]
        found = [part for part in (self._ngrams(history), self._endings(history)) if part.shape[1]]
        self._banned = np.concatenate(found, axis=1) if found else np.empty((len(history), 0), np.int64)
        return touched + self._banned.shape[1]

    def apply(self, tokens: Ids, scores: Scores) -> None:
        """Change `scores` (rows, candidates) of `tokens` in place."""
        if self._penalty != 1.0:
            generated = (tokens[:, :, None] == self._history[:, None, :]).any(-1)
            scores[:] = np.where(generated, np.where(scores < 0, scores * self._penalty, scores / self._penalty), scores)
        if len(self._always):
            scores[np.isin(tokens, self._always)] = -np.inf
        if self._banned.shape[1]:
            scores[(tokens[:, :, None] == self._banned[:, None, :]).any(-1)] = -np.inf

    def _ngrams(self, history: Ids) -> Ids:
        """(rows, m): tokens that would repeat an n-gram, -1 where there are fewer."""
        size, length = self._ngram, history.shape[1]
        if not size or length < size:
            return np.empty((len(history), 0), np.int64)
        windows = np.lib.stride_tricks.sliding_window_view(history, size, axis=1)  # (rows, length - size + 1, size)
        ending = history[:, length + 1 - size :]  # (rows, size - 1)
        again = (windows[:, :, :-1] == ending[:, None, :]).all(-1)
        return _packed(np.where(again, windows[:, :, -1], _NO_TOKEN))

    def _endings(self, history: Ids) -> Ids:
        """(rows, m): tokens that would complete a bad word, -1 where there are fewer."""
        banned: list[list[int]] = [[] for _ in history]
        for length, endings in self._words.items():
            if length > history.shape[1]:
                continue
            for row, beginning in enumerate(history[:, -length:].tolist()):
                banned[row] += endings.get(tuple(beginning), [])
        widest = max(map(len, banned))
        return np.array([row + [_NO_TOKEN] * (widest - len(row)) for row in banned], np.int64).reshape(len(banned), widest)


def _packed(banned: Ids) -> Ids:
    """The columns that hold a token in some row: few n-grams repeat, and each column costs a candidate."""
    used = (banned != _NO_TOKEN).sum(axis=1).max(initial=0)
    return -np.sort(-banned, axis=1)[:, :used]
