"""Phrases that an answer must have, and which rows of a beam are kept so that it gets them: dynamic beam allocation.

Rows are put in banks by the number of phrase tokens they have (Post and Vilar 2018). The next tokens of missing phrases
are candidates of every row, however improbable. A beam keeps the best row of the fullest bank, which so gets further at
every step, and shares its other places among the banks in turn, best rows first: rows that reach a phrase where the model
would generate it itself survive beside those that only hurry.

All of it is the affair of one sequence, and of plain lists: a beam has a few dozen candidates, for which a call of numpy
costs more than the work.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

__all__ = ["Candidate", "PhraseTable", "PhraseTracker", "Phrases", "phrase_table"]

Phrases = tuple[tuple[tuple[int, ...], ...], ...]
"""Of each phrase its alternatives, of which one must occur: different spellings of it in tokens."""

_MOST_STATES = 4096
"""Of one set of phrases; what more are met is computed anew each time."""


_FEW_PHRASES = 8


class _State(NamedTuple):
    """How far a row has come: which phrases it has, and the beginnings of others that its last tokens are."""

    met: int  # a bit for each phrase
    begun: tuple[tuple[int, int, int], ...]  # phrase, alternative, number of its tokens


class PhraseTable:
    """What a token does to a row, for one set of phrases. States are found as they are met and numbered from 0."""

    def __init__(self, phrases: Phrases, ends: frozenset[int] = frozenset()) -> None:
        """`ends`: tokens that end a row, which so stays where it is."""
        self._phrases, self._ends = phrases, ends
        self._weights = [max(map(len, alternatives)) for alternatives in phrases]
        self.most = sum(self._weights)
        """The bank of rows that have everything."""
        self._states: list[_State] = []
        self._numbers: dict[_State, int] = {}
        self._next: dict[tuple[int, int], int] = {}
        self.following: list[tuple[int, ...]] = []
        """By state: tokens that would bring a row further."""
        self.bank: list[int] = []
        """By state: how many phrase tokens a row has."""
        self.relevant: list[frozenset[int]] = []
        """By state: tokens after which something else follows than after others …"""
        self.otherwise: list[int] = []
        """… and the state after those others, as most are."""
        self._number(_State(0, ()))

    def next(self, state: int, token: int) -> int:
        """The state of a row after one more token."""
        if token not in self.relevant[state]:
            return self.otherwise[state]
        if token in self._ends:
            return state
        key = state, token
        found = self._next.get(key)
        if found is None:
            if len(self._next) > _MOST_STATES:
                self._next.clear()
            found = self._next[key] = self._number(self._after(self._states[state], token))
        return found

    def _after(self, state: _State, token: int) -> _State:
        """A token that completes phrases gives the row the longest; no token counts for two."""
        begun = [
            (phrase, which, count + 1)
            for phrase, which, count in state.begun
            if self._phrases[phrase][which][count] == token
        ]
        begun += [
            (phrase, which, 1)
            for phrase, alternatives in enumerate(self._phrases)
            if not state.met >> phrase & 1
            for which, tokens in enumerate(alternatives)
            if tokens[0] == token
        ]
        complete = [(count, -phrase) for phrase, which, count in begun if count == len(self._phrases[phrase][which])]
        if complete:
            return _State(state.met | 1 << -max(complete)[1], ())
        return _State(state.met, tuple(sorted(begun)))

    def _number(self, state: _State) -> int:
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
            met = sum(weight for phrase, weight in enumerate(self._weights) if state.met >> phrase & 1)
            self.bank.append(met + max((count for _, _, count in state.begun), default=0))
            self.following.append(tuple(dict.fromkeys(self._wanted(state))))
            begins = {tokens[0] for phrase in self._missing(state) for tokens in self._phrases[phrase]}
            self.relevant.append(self._ends.union(begins, self.following[-1]))
            self.otherwise.append(number)
            if state.begun:
                self.otherwise[number] = self._number(_State(state.met, ()))
        return number

    def _wanted(self, state: _State) -> Iterable[int]:
        """A phrase that was begun is gone on with; only otherwise others are begun."""
        if state.begun:
            return (self._phrases[phrase][which][count] for phrase, which, count in state.begun)
        return (tokens[0] for phrase in self._missing(state) for tokens in self._phrases[phrase])

    def _missing(self, state: _State) -> list[int]:
        return [phrase for phrase in range(len(self._phrases)) if not state.met >> phrase & 1]


@functools.lru_cache(maxsize=64)
def phrase_table(phrases: Phrases, ends: frozenset[int]) -> PhraseTable:
    """Sequences with the same phrases, such as a request that comes again, share what was found out about them."""
    return PhraseTable(phrases, ends)


Candidate = tuple[float, int, int, int]
"""A row of the last step with one more token: score, row, token, state. A plain tuple: most are made only to be dropped."""

_score = operator.itemgetter(0)


class PhraseTracker:
    """The rows of one sequence and the phrases that they have."""

    def __init__(self, phrases: Phrases, ends: frozenset[int], width: int) -> None:
        # Many phrases have more states than should be kept longer than the sequence.
        self._table = (phrase_table if len(phrases) <= _FEW_PHRASES else PhraseTable)(phrases, ends)
        self._ends, self._width = ends, width
        self._rows = [0] * width

    @property
    def scored_tokens(self) -> list[tuple[int, ...]]:
        """Of each row, the tokens whose log-probabilities the next step must give, however low they are."""
        return [self._table.following[state] for state in self._rows]

    def candidates(self, tokens: Sequence[list[int]], scores: Sequence[list[float]], dead: float) -> list[Candidate]:
        """Best first: `tokens` and `scores` (rows, any number) of the rows that may be continued; one may be named twice."""
        table, found = self._table, list[Candidate]()
        for row, (next_tokens, sums, state) in enumerate(zip(tokens, scores, self._rows, strict=True)):
            relevant, otherwise, seen = table.relevant[state], table.otherwise[state], set[int]()
            for token, score in zip(next_tokens, sums, strict=True):
                if token not in relevant:  # and so not among the scored ones, which may be there twice
                    if score > dead:
                        found.append((score, row, token, otherwise))
                elif score > dead and token not in seen:
                    seen.add(token)
                    found.append((score, row, token, table.next(state, token)))
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

    def feed(self, token: int) -> None:
        """All rows have one more token, of the prefix."""
        self._rows = [self._table.next(state, token) for state in self._rows]
