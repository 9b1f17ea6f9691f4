"""How many of the required phrases rows contain, and how a token changes that.

No step loops over all phrases: the phrases that begin with a token are looked up by the token, and the phrases that a row
lacks are a bit mask, evaluated once for all rows that have the same ones.

Terms are phrases that must be whole words. A row that continues the word of a term that it has just completed, or that
begins a term within a word, does not contain the term.
"""

from __future__ import annotations

import functools
import heapq
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dragoman.errors import InvalidRequest
from dragoman.search.constraints import Ids

__all__ = ["PhraseTable", "Phrases", "RowState", "Wanted", "Words", "phrase_table"]

Phrases = tuple[tuple[tuple[int, ...], ...], ...]
"""For each phrase its alternatives, different spellings in tokens, of which one must occur."""

_Flags = npt.NDArray[np.bool_]
_Begun = tuple[int, int, int]  # phrase, alternative, number of its tokens
_count = operator.itemgetter(2)

_NO_TOKEN = -1

_BEGUN_AGAIN = 64
"""Limit for a row, besides each alternative once: an alternative that repeats itself (7 7 7 7) can be begun once for each of
its tokens. If there are more, the most advanced are kept."""

_KEPT_TOKENS, _KEPT = 4096, 16
"""A table caches states up to about so many wanted tokens in total, and at least so many states."""


class Words(Protocol):
    """What the search must know of words (dragoman.bundle.words implements it for a bundle)."""

    def __hash__(self) -> int: ...

    @property
    def signs(self) -> tuple[int, ...]:
        """Tokens that may follow any word: punctuation."""

    def goes_on(self, token: int) -> bool:
        """Whether this token, directly after a letter, belongs to the same word."""

    def is_open(self, token: int) -> bool:
        """Whether a term directly after this token would belong to the same word."""

    def edges(self, tokens: Sequence[int]) -> tuple[bool, bool]:
        """Whether the text of these tokens begins with a letter, and whether it ends with one."""


class RowState:
    """The state of a row: the phrases that it contains, and those that its last tokens begin."""

    __slots__ = ("bank", "begun", "had", "last", "met", "relevant", "wanted")

    def __init__(self, met: int, had: int, begun: dict[int, list[_Begun]], last: int, relevant: frozenset[int]) -> None:
        self.met = met  # a bit for each phrase
        self.had = had  # tokens of these phrases
        self.begun = begun  # by the token that they go on with
        self.last = last  # the bit of a term that its last token completes, if that could become a longer word
        self.relevant = relevant  # tokens after which something else follows than after most
        self.bank = had if last or not begun else had + max(one[2] for many in begun.values() for one in many)
        """How many phrase tokens it has."""
        self.wanted: list[Wanted | None] = [None, None]  # outside and within a word, once it was asked for


class Wanted:
    """The tokens that extend or begin a phrase that a row lacks, each once."""

    def __init__(self, banks: dict[int, int], ends: frozenset[int]) -> None:
        """`banks`: the one that each token leads to."""
        self.banks = banks
        self.listed = list(banks.items())
        self.ends = not ends.isdisjoint(banks)
        """Whether one of them ends a row."""
        self._ends = ends
        self._padded: Ids | None = None

    def padded(self, columns: int) -> Ids:
        """The tokens, and -1 behind them: (columns,)."""
        if self._padded is None or len(self._padded) != columns:
            tokens = [token for token, _ in self.listed]
            self._padded = np.array(tokens + [_NO_TOKEN] * (columns - len(tokens)), np.int64)
        return self._padded

    @functools.cached_property
    def alike(self) -> _Flags:
        """(any number): those that lead to the commonest of the banks, and end nothing."""
        banks = Counter(bank for _, bank in self.listed)
        commonest = max(banks.items(), key=operator.itemgetter(1), default=(0, 0))[0]
        return np.array([bank == commonest and token not in self._ends for token, bank in self.listed], np.bool_)


class _Beginning(NamedTuple):
    """What begins with a token: a bit for each phrase."""

    token: int
    any: int
    usable: int  # by a row that is not within a word of its own, or by one that is
    whole: int  # usable, and no more than this token


class PhraseTable:
    """What a token does to a row, for one set of phrases."""

    def __init__(
        self, phrases: Phrases, ends: frozenset[int] = frozenset(), terms: Phrases = (), words: Words | None = None
    ) -> None:
        """`ends`: tokens that end a row, which so stays where it is. `terms` are phrases that must be whole words."""
        if terms and words is None:
            raise InvalidRequest("terms are whole words, of which this search knows nothing; give phrases")
        self._phrases, self._ends, self._words = (*phrases, *terms), ends, words
        self._edges = [[(False, False)] * len(alternatives) for alternatives in phrases]
        if words is not None:
            self._edges += [[_edges(words, tokens) for tokens in alternatives] for alternatives in terms]
        self._most_begun = _BEGUN_AGAIN + sum(map(len, self._phrases))
        self._weights = [max(map(len, alternatives)) for alternatives in self._phrases]
        self.most = sum(self._weights)
        """The bank of rows that have everything."""
        self._beginning: dict[int, list[tuple[int, int]]] = defaultdict(list)  # phrase and alternative, by first token
        self._begins: dict[int, int] = defaultdict(int)  # a bit for each phrase
        for phrase, alternatives in enumerate(self._phrases):
            for which, tokens in enumerate(alternatives):
                self._beginning[tokens[0]].append((phrase, which))
                self._begins[tokens[0]] |= 1 << phrase
        self._firsts = [[self._begun_by(token, in_word) for token in self._beginning] for in_word in (False, True)]
        self._signs = words.signs if words is not None and terms else ()
        self._next: dict[tuple[RowState, int, bool], RowState] = {}
        self._states: dict[tuple[int, tuple[_Begun, ...], int], RowState] = {}
        self._beginning_missing: dict[int, frozenset[int]] = {}
        self.start = self._state(0, 0, [], 0)
        self._most_kept = max(_KEPT_TOKENS // sum(map(len, self._phrases)), _KEPT)

    def next(self, state: RowState, token: int, in_word: bool = False) -> RowState:
        """The state of a row after one more token; `in_word`: a word before it may go on with it."""
        if token in self._ends or not (state.begun or state.last or token in self._begins):
            return state
        key = state, token, in_word
        found = self._next.get(key)
        if found is None:
            if len(self._next) >= self._most_kept:
                self._next.clear()
                self._states.clear()
                self._beginning_missing.clear()
            found = self._next[key] = self._state(*self._after(state, token, in_word))
        return found

    def _state(self, met: int, had: int, begun: list[_Begun], last: int) -> RowState:
        key = met, tuple(begun), last
        found = self._states.get(key)
        if found is None:
            by_token: dict[int, list[_Begun]] = {}
            for one in begun:
                by_token.setdefault(self._phrases[one[0]][one[1]][one[2]], []).append(one)
            relevant = self._begins_missing(met)
            if by_token or last:
                relevant = relevant.union(by_token, self._signs if last else ())
            found = self._states[key] = RowState(met, had, by_token, last, relevant)
        return found

    def _begins_missing(self, met: int) -> frozenset[int]:
        """Tokens with which phrases begin that are not met, and those that end a row."""
        found = self._beginning_missing.get(met)
        if found is None:
            begin = (token for token, phrases in self._begins.items() if phrases & ~met)
            found = self._beginning_missing[met] = self._ends.union(begin)
        return found

    def goes_on(self, token: int) -> bool:
        """Whether a token behind a term makes it a longer word."""
        return self._words is not None and token not in self._ends and self._words.goes_on(token)

    def wanted(self, state: RowState, in_word: bool) -> Wanted:
        """A phrase that was begun is gone on with; only otherwise others are begun. A row with a term can end its word."""
        found = state.wanted[in_word]
        if found is None:
            found = state.wanted[in_word] = Wanted(self._banks(state, in_word), self._ends)
        return found

    def _banks(self, state: RowState, in_word: bool) -> dict[int, int]:
        """The bank that each wanted token leads to."""
        if state.begun and not state.last:
            return {token: self._bank(state, token, in_word) for token in state.begun}
        missing, had, found = ~state.met, state.had, dict[int, int]()
        for token, begins, usable, whole in self._firsts[in_word]:
            if begins & missing:  # a token that is a phrase gives the row the first such one
                phrase = whole & missing
                gain = self._weights[(phrase & -phrase).bit_length() - 1] if phrase else (usable & missing) != 0
                found[token] = had + gain
        if state.last:  # tokens that go on with the term's word take the term away
            found.update((token, state.had) for token in (*self._signs, *self._ends) if token not in found)
            found.update((token, self._bank(state, token, in_word)) for token in found if self.goes_on(token))
        return found

    def _begun_by(self, token: int, in_word: bool) -> _Beginning:
        usable = whole = 0
        for phrase, which in self._beginning[token]:
            if token not in self._ends and not (in_word and self._edges[phrase][which][0]):
                usable |= 1 << phrase
                whole |= (len(self._phrases[phrase][which]) == 1) << phrase
        return _Beginning(token, self._begins[token], usable, whole)

    def _bank(self, state: RowState, token: int, in_word: bool) -> int:
        """The bank of the state after one more token."""
        if token in self._ends:
            return state.bank
        _, had, begun, last = self._after(state, token, in_word)
        return had if last else had + max(map(_count, begun), default=0)

    def _after(self, state: RowState, token: int, in_word: bool) -> tuple[int, int, list[_Begun], int]:
        """The phrases completed, the number of their tokens, the phrases begun, and `last`.

        If a token completes several phrases, the longest counts; no token counts for two.
        """
        goes_on = state.last > 0 and self.goes_on(token)
        met, had = state.met, state.had
        if goes_on:
            met, had = met ^ state.last, had - self._weights[state.last.bit_length() - 1]
        going_on: Iterable[_Begun] = state.begun.get(token, ()) if goes_on or not state.last else ()
        begun = [(phrase, which, count + 1) for phrase, which, count in going_on]
        begun += (
            (phrase, which, 1)
            for phrase, which in self._beginning.get(token, ())
            if not met >> phrase & 1 and not (in_word and self._edges[phrase][which][0])
        )
        complete = [one for one in begun if one[2] == len(self._phrases[one[0]][one[1]])]
        if not complete:
            return met, had, self._furthest(begun), 0
        phrase, which, _ = max(complete, key=lambda one: (one[2], -one[0]))
        met, had = met | 1 << phrase, had + self._weights[phrase]
        if not self._edges[phrase][which][1]:
            return met, had, [], 0
        # The word may still go on, and be that of a longer term.
        whole = set(complete)
        return met, had, self._furthest([one for one in begun if one not in whole]), 1 << phrase

    def _furthest(self, begun: list[_Begun]) -> list[_Begun]:
        return sorted(begun if len(begun) <= self._most_begun else heapq.nlargest(self._most_begun, begun, key=_count))


@functools.lru_cache(maxsize=4096)
def _edges(words: Words, tokens: tuple[int, ...]) -> tuple[bool, bool]:
    """The terms of a glossary come again."""
    return words.edges(tokens)


@functools.lru_cache(maxsize=64)
def phrase_table(phrases: Phrases, ends: frozenset[int], terms: Phrases, words: Words | None) -> PhraseTable:
    """The table of a set of phrases, cached: sequences with the same phrases, such as repeated requests, share it."""
    return PhraseTable(phrases, ends, terms, words)
