"""Required phrases in a beam search: dynamic beam allocation.

Rows are put in banks by the number of phrase tokens that they contain (Post and Vilar 2018). The next tokens of missing
phrases are candidates of every row, however improbable. The beam keeps the best row of the fullest bank, so that it advances
with every step, and shares its other places among the banks in turn, best rows first: rows that reach a phrase where the
model would generate it by itself survive beside rows that contain it early.

A beam has a few dozen candidates, for which a call of numpy costs more than plain lists. Candidates that can't have a place
are left out before anything is made of them: of those of a row that lead to one bank it can place no more than the beam has.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence

import numpy as np

from dragoman.search.constraints import Scores
from dragoman.search.options import DecodingOptions
from dragoman.search.phrase_table import PhraseTable, Wanted, Words, phrase_table

__all__ = ["Candidate", "PhraseTracker"]

Candidate = tuple[float, int, int, int]
"""A row of the last step with one more token: score, row, token, bank. A plain tuple: most are made only to be dropped."""

_score, _bank = operator.itemgetter(0), operator.itemgetter(3)

_FEW = 32
"""So many wanted tokens of a row are looked at one by one, or as many as the beam is wide."""


class PhraseTracker:
    """The rows of one sequence and the phrases that they contain."""

    def __init__(self, options: DecodingOptions, ends: frozenset[int], width: int, words: Words | None) -> None:
        self._table: PhraseTable = phrase_table(options.phrases, ends, options.terms, words)
        self._ends, self._width, self._words = ends, width, words if options.terms else None
        self._rows = [self._table.start] * width
        self._in_word = [False] * width
        self._few = max(_FEW, width)
        self._wanted: list[Wanted] = []  # by each row, in the step that is being done
        self._may_end = False  # whether an end token is among the candidates of this step

    def wanted(self) -> list[Wanted]:
        """Of each row the tokens whose log-probabilities the next step must give, however low they are."""
        table = self._table
        self._wanted = [
            state.wanted[within] or table.wanted(state, within)
            for state, within in zip(self._rows, self._in_word, strict=True)
        ]
        return self._wanted

    def candidates(
        self,
        tokens: Sequence[Sequence[int]],
        scores: Sequence[Sequence[float]],
        scored: Iterable[Sequence[float] | Scores],
        dead: float,
        *,
        in_order: bool = True,
    ) -> list[Candidate]:
        """Best first: `tokens` and `scores` (rows, any number) of the rows that may be continued; `in_order`: best first.

        `scored` (rows, any number): scores of the `wanted` tokens, which may be among the others, too.
        """
        found, ends, self._may_end = list[Candidate](), self._ends, False
        for row, (next_tokens, sums, wanted, own) in enumerate(zip(tokens, scores, self._wanted, scored, strict=True)):
            most = self._width if in_order else len(next_tokens)
            seen = self._add_best(found, row, zip(next_tokens, sums, strict=True), dead, most)
            likely = zip(wanted.listed, own) if len(wanted.listed) <= self._few else self._likely(wanted, own)  # noqa: B905
            self._may_end = self._may_end or wanted.ends or not ends.isdisjoint(seen)
            if seen:
                found += [(score, row, token, bank) for (token, bank), score in likely if score > dead and token not in seen]
            else:
                found += [(score, row, token, bank) for (token, bank), score in likely if score > dead]
        found.sort(key=_score, reverse=True)  # stable: of equal ones the lower row, and its better token
        return found

    def _add_best(
        self, found: list[Candidate], row: int, best: Iterable[tuple[int, float]], dead: float, most: int
    ) -> set[int]:
        """What the model would generate itself: `most` that are none of a phrase's tokens; those that are, returned, all."""
        state, seen = self._rows[row], set[int]()
        relevant, bank, ends_term, banks = state.relevant, state.had, state.last > 0, self._wanted[row].banks
        for token, score in best:
            if score <= dead:
                continue
            if token in relevant:
                if token not in seen:
                    seen.add(token)
                    led_to = banks[token] if token in banks else self._table.next(state, token, self._in_word[row]).bank
                    found.append((score, row, token, led_to))
            elif most and not (ends_term and self._table.goes_on(token)):
                found.append((score, row, token, bank))
                most -= 1
        return seen

    def _likely(self, wanted: Wanted, scores: Sequence[float] | Scores) -> Iterable[tuple[tuple[int, int], float]]:
        """Of very many tokens that bring a row further, those that the beam may have places for, with their scores."""
        listed, width = wanted.listed, self._width
        scores = np.asarray(scores[: len(listed)], np.float32)
        alike = np.where(wanted.alike, scores, -np.inf)
        least = np.partition(alike, len(listed) - width)[len(listed) - width]
        at = ((alike >= least) | ~wanted.alike).nonzero()[0]
        return zip([listed[one] for one in at.tolist()], scores[at].tolist(), strict=True)

    @property
    def most(self) -> int:
        """The bank of rows that have everything."""
        return self._table.most

    def ending(self, candidates: Sequence[Candidate], *, over: bool, has_some: bool) -> list[Candidate]:
        """Candidates with all phrases end as others do; without them they can't, until nothing else is left: where the
        search is `over` and does not have some that have ended."""
        ends, most, width = self._ends, self.most, self._width
        if not (over or self._may_end):
            return []
        whole = list(itertools.islice((one for one in candidates if one[3] == most), width))
        found = [one for one in whole if over or one[2] in ends]
        if over and not found and not has_some:
            fullest = max(map(_bank, candidates), default=0)
            found = [one for one in candidates if one[3] == fullest][:width]
        return found

    def kept(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The beam's next rows, best first, of `candidates`, best first."""
        going, width = self._going_on(candidates), self._width
        if not going:
            return []
        turns = [list[Candidate]() for _ in range(width + 1)]  # the fullest bank has one more than the others
        next_turn = {max(map(_bank, going)): 0}
        first, second = turns[:2]
        for one in going:
            turn = next_turn.get(one[3], 1)
            if turn <= width:
                turns[turn].append(one)
                next_turn[one[3]] = turn + 1
                if first and len(second) == width - 1:  # every place is taken
                    break
        chosen = list(itertools.islice(itertools.chain.from_iterable(turns), width))
        chosen.sort(key=_score, reverse=True)
        return chosen

    def _going_on(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Those that do not end.

        A row without all phrases for which it is time to end is given up: it could only append them to a whole sentence.
        """
        ends, most = self._ends, self.most
        if not self._may_end:
            return candidates
        best = {one[1]: one for one in reversed(candidates)}  # of each row
        late = {row for row, (_, _, token, bank) in best.items() if token in ends and bank < most}
        going = [one for one in candidates if one[2] not in ends]
        return [one for one in going if one[1] not in late] or going if late else going

    def go_on(self, chosen: Sequence[Candidate]) -> None:
        """These are the rows now."""
        table, before, within, words = self._table, self._rows, self._in_word, self._words
        self._rows = [table.next(before[row], token, within[row]) for _, row, token, _ in chosen]
        if words is not None:
            self._in_word = [words.is_open(token) for _, _, token, _ in chosen]

    def feed(self, token: int) -> None:
        """Append a token of the prefix to all rows."""
        self._rows = [
            self._table.next(state, token, in_word) for state, in_word in zip(self._rows, self._in_word, strict=True)
        ]
        if self._words is not None:
            self._in_word = [self._words.is_open(token)] * self._width
