"""Phrases that an answer must have, and which rows of a beam are kept so that it gets them: dynamic beam allocation.

Rows are put in banks by the number of phrase tokens they have (Post and Vilar 2018). The next tokens of missing phrases
are candidates of every row, however improbable. A beam keeps the best row of the fullest bank, which so gets further at
every step, and shares its other places among the banks in turn, best rows first: rows that reach a phrase where the model
would generate it itself survive beside those that only hurry.

Terms are phrases that must be whole words. A row that goes on with the word of a term that it has just completed, or
begins one within a word, does not have it.

All of it is the affair of one sequence, and of plain lists: a beam has a few dozen candidates, for which a call of numpy
costs more than the work.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from dragoman.errors import InvalidRequest
from dragoman.search.options import DecodingOptions

__all__ = ["Candidate", "PhraseTable", "PhraseTracker", "Phrases", "Words", "phrase_table"]

Phrases = tuple[tuple[tuple[int, ...], ...], ...]
"""Of each phrase its alternatives, of which one must occur: different spellings of it in tokens."""

_MOST_STATES = 4096
"""Of one set of phrases; what more are met is computed anew each time."""


_FEW_PHRASES = 8


class Words(Protocol):
    """What is known of the words that tokens are parts of (dragoman.bundle.words has it for a bundle)."""

    def __hash__(self) -> int: ...

    @property
    def signs(self) -> tuple[int, ...]:
        """Tokens that may follow any word: punctuation."""

    def goes_on(self, token: int) -> bool:
        """Whether this token behind a letter belongs to the same word."""

    def is_open(self, token: int) -> bool:
        """Whether a term right behind this token would belong to the same word."""

    def edges(self, tokens: Sequence[int]) -> tuple[bool, bool]:
        """Whether the text of these tokens begins with a letter, and whether it ends with one."""


class _State(NamedTuple):
    """How far a row has come: which phrases it has, and the beginnings of others that its last tokens are."""

    met: int  # a bit for each phrase
    begun: tuple[tuple[int, int, int], ...]  # phrase, alternative, number of its tokens
    last: int = 0  # the bit of a term that its last token completes, if that could become a longer word


class PhraseTable:
    """What a token does to a row, for one set of phrases. States are found as they are met and numbered from 0."""

    def __init__(
        self, phrases: Phrases, ends: frozenset[int] = frozenset(), terms: Phrases = (), words: Words | None = None
    ) -> None:
        """`ends`: tokens that end a row, which so stays where it is. `terms` are phrases that must be whole words."""
        if terms and words is None:
            raise InvalidRequest("terms are whole words, of which this search knows nothing; give phrases")
        self._phrases, self._ends, self._words = (*phrases, *terms), ends, words
        self._edges = [[(False, False)] * len(alternatives) for alternatives in phrases]
        if words is not None:
            self._edges += [[words.edges(tokens) for tokens in alternatives] for alternatives in terms]
        self._weights = [max(map(len, alternatives)) for alternatives in self._phrases]
        self.most = sum(self._weights)
        """The bank of rows that have everything."""
        self._states: list[_State] = []
        self._numbers: dict[_State, int] = {}
        self._next: dict[tuple[int, int, bool], int] = {}
        self.following: list[tuple[int, ...]] = []
        """By state: tokens that would bring a row further."""
        self.bank: list[int] = []
        """By state: how many phrase tokens a row has."""
        self.relevant: list[frozenset[int]] = []
        """By state: tokens after which something else follows than after others …"""
        self.otherwise: list[int] = []
        """… and the state after those others, as most are."""
        self.completes: list[bool] = []
        """By state: its last token completes a term, which the next must not make a longer word."""
        self._number(_State(0, ()))

    def next(self, state: int, token: int, in_word: bool = False) -> int:
        """The state of a row after one more token; `in_word`: a word before it may go on with it."""
        if token not in self.relevant[state] and not (self.completes[state] and self.goes_on(token)):
            return self.otherwise[state]
        if token in self._ends:
            return state
        key = state, token, in_word
        found = self._next.get(key)
        if found is None:
            if len(self._next) > _MOST_STATES:
                self._next.clear()
            found = self._next[key] = self._number(self._after(self._states[state], token, in_word))
        return found

    def goes_on(self, token: int) -> bool:
        """Whether a token behind a term makes it a longer word."""
        return self._words is not None and token not in self._ends and self._words.goes_on(token)

    def _after(self, state: _State, token: int, in_word: bool) -> _State:
        """A token that completes phrases gives the row the longest; no token counts for two."""
        goes_on = state.last > 0 and self.goes_on(token)
        met = state.met ^ state.last if goes_on else state.met
        begun = [
            (phrase, which, count + 1)
            for phrase, which, count in (state.begun if goes_on or not state.last else ())
            if self._phrases[phrase][which][count] == token
        ]
        begun += (
            (phrase, which, 1)
            for phrase, alternatives in enumerate(self._phrases)
            if not met >> phrase & 1
            for which, tokens in enumerate(alternatives)
            if tokens[0] == token and not (in_word and self._edges[phrase][which][0])
        )
        complete = [one for one in begun if one[2] == len(self._phrases[one[0]][one[1]])]
        if not complete:
            return _State(met, tuple(sorted(begun)))
        phrase, which, _ = max(complete, key=lambda one: (one[2], -one[0]))
        met |= 1 << phrase
        if not self._edges[phrase][which][1]:
            return _State(met, ())
        # The word may still go on, and be that of a longer term.
        return _State(met, tuple(sorted(one for one in begun if one not in complete)), 1 << phrase)

    def _number(self, state: _State) -> int:
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
            met = sum(weight for phrase, weight in enumerate(self._weights) if state.met >> phrase & 1)
            begun = () if state.last else state.begun
            self.bank.append(met + max((count for _, _, count in begun), default=0))
            self.following.append(tuple(dict.fromkeys(self._wanted(state))))
            begins = {tokens[0] for phrase in self._missing(state) for tokens in self._phrases[phrase]}
            begins.update(self._phrases[phrase][which][count] for phrase, which, count in state.begun)
            self.relevant.append(self._ends.union(begins, self.following[-1]))
            self.otherwise.append(number)
            self.completes.append(state.last > 0)
            if state.begun or state.last:
                self.otherwise[number] = self._number(_State(state.met, ()))
        return number

    def _wanted(self, state: _State) -> Iterable[int]:
        """A phrase that was begun is gone on with; only otherwise others are begun. A row with a term can end its word."""
        if state.last and self._words is not None:
            first = (tokens[0] for phrase in self._missing(state) for tokens in self._phrases[phrase])
            return (*first, *self._words.signs, *self._ends)
        if state.begun:
            return (self._phrases[phrase][which][count] for phrase, which, count in state.begun)
        return (tokens[0] for phrase in self._missing(state) for tokens in self._phrases[phrase])

    def _missing(self, state: _State) -> list[int]:
        return [phrase for phrase in range(len(self._phrases)) if not state.met >> phrase & 1]


@functools.lru_cache(maxsize=64)
def phrase_table(phrases: Phrases, ends: frozenset[int], terms: Phrases, words: Words | None) -> PhraseTable:
    """Sequences with the same phrases, such as a request that comes again, share what was found out about them."""
    return PhraseTable(phrases, ends, terms, words)


Candidate = tuple[float, int, int, int]
"""A row of the last step with one more token: score, row, token, state. A plain tuple: most are made only to be dropped."""

_score = operator.itemgetter(0)


class PhraseTracker:
    """The rows of one sequence and the phrases that they have."""

    def __init__(self, options: DecodingOptions, ends: frozenset[int], width: int, words: Words | None) -> None:
        # Many phrases have more states than should be kept longer than the sequence.
        table = phrase_table if len(options.must_occur) <= _FEW_PHRASES else PhraseTable
        self._table = table(options.phrases, ends, options.terms, words)
        self._ends, self._width, self._words = ends, width, words if options.terms else None
        self._rows = [0] * width
        self._in_word = [False] * width

    @property
    def scored_tokens(self) -> list[tuple[int, ...]]:
        """Of each row, the tokens whose log-probabilities the next step must give, however low they are."""
        return [self._table.following[state] for state in self._rows]

    def candidates(self, tokens: Sequence[list[int]], scores: Sequence[list[float]], dead: float) -> list[Candidate]:
        """Best first: `tokens` and `scores` (rows, any number) of the rows that may be continued; one may be named twice."""
        table, found = self._table, list[Candidate]()
        for row, (next_tokens, sums, state) in enumerate(zip(tokens, scores, self._rows, strict=True)):
            relevant, otherwise, seen = table.relevant[state], table.otherwise[state], set[int]()
            completes, in_word = table.completes[state], self._in_word[row]
            for token, score in zip(next_tokens, sums, strict=True):
                if token not in relevant:  # and so not among the scored ones, which may be there twice
                    if score > dead and not (completes and table.goes_on(token)):
                        found.append((score, row, token, otherwise))
                elif score > dead and token not in seen:
                    seen.add(token)
                    found.append((score, row, token, table.next(state, token, in_word)))
        found.sort(key=_score, reverse=True)  # stable: of equal ones the lower row, and its better token
        return found

    def missing(self, state: int) -> int:
        """How many phrase tokens a row in this state lacks."""
        return self._table.most - self._table.bank[state]

    def kept(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The beam's next rows, best first, of `candidates`, best first.

        A row without all phrases for which it is time to end is given up: it could only append them to a whole sentence.
        """
        ends, seen, late = self._ends, set[int](), set[int]()
        for _, row, token, state in candidates:
            if row not in seen:
                seen.add(row)
                if token in ends and self.missing(state):
                    late.add(row)
        banks = self._banks(candidates, late) or self._banks(candidates, ())
        if not banks:
            return []
        chosen = [banks[max(banks)].pop(0)]
        turn = 0
        rounds = [list(held) for held in banks.values()]
        while len(chosen) < self._width and any(turn < len(held) for held in rounds):
            heads = sorted((held[turn] for held in rounds if turn < len(held)), key=_score, reverse=True)
            chosen += heads[: self._width - len(chosen)]
            turn += 1
        chosen.sort(key=_score, reverse=True)
        return chosen

    def _banks(self, candidates: Sequence[Candidate], late: Collection[int]) -> dict[int, list[Candidate]]:
        """By bank the best of those that do not end, best first; rows that are `late` are left out."""
        bank, ends, width = self._table.bank, self._ends, self._width
        banks: dict[int, list[Candidate]] = {}
        for one in candidates:
            _, row, token, state = one
            if token not in ends and row not in late:
                held = banks.setdefault(bank[state], [])
                if len(held) < width:
                    held.append(one)
        return banks

    def go_on(self, chosen: Sequence[Candidate]) -> None:
        """These are the rows now."""
        self._rows = [state for _, _, _, state in chosen]
        if self._words is not None:
            self._in_word = [self._words.is_open(token) for _, _, token, _ in chosen]

    def feed(self, token: int) -> None:
        """All rows have one more token, of the prefix."""
        self._rows = [
            self._table.next(state, token, in_word) for state, in_word in zip(self._rows, self._in_word, strict=True)
        ]
        if self._words is not None:
            self._in_word = [self._words.is_open(token)] * self._width
