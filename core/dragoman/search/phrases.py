"""Required phrases in a beam search: dynamic beam allocation.

Rows are put in banks by the number of phrase tokens that they contain (Post and Vilar 2018). The next tokens of missing
phrases are candidates of every row, however improbable. The beam keeps the best row of the fullest bank, so that it advances
with every step, and shares its other places among the banks in turn, best rows first: rows that reach a phrase where the
model would generate it by itself survive beside rows that contain it early.

A beam has a few dozen candidates, for which plain lists are faster than numpy. If a row has very many wanted tokens, most
are dropped early: of those that lead to one bank, a row can place no more than the beam has rows.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence

import numpy as np

from dragoman.search.constraints import Ids, Scores
from dragoman.search.options import DecodingOptions
from dragoman.search.phrase_table import PhraseTable, Wanted, Words, phrase_table

__all__ = ["Candidate", "PhraseTracker"]

Candidate = tuple[float, int, int, int]
"""A row of the last step with one more token: score, row, token, bank. A plain tuple: most are made only to be dropped."""

_score = operator.itemgetter(0)


class PhraseTracker:
    """The rows of one sequence and the phrases that they contain."""

    def __init__(self, options: DecodingOptions, ends: frozenset[int], width: int, words: Words | None) -> None:
        self._table: PhraseTable = phrase_table(options.phrases, ends, options.terms, words)
        self._ends, self._width, self._words = ends, width, words if options.terms else None
        self._rows = [self._table.start] * width
        self._in_word = [False] * width
        self._wanted: list[Wanted] = []  # by each row, in the step that is being done

    def scored_tokens(self) -> list[Ids]:
        """Of each row, the tokens whose log-probabilities the next step must give, however low they are."""
        table = self._table
        self._wanted = [table.wanted(state, within) for state, within in zip(self._rows, self._in_word, strict=True)]
        return [wanted.tokens for wanted in self._wanted]

    def candidates(self, tokens: Ids, scores: Scores, scored: Scores, dead: float) -> list[Candidate]:
        """Best first: `tokens` and `scores` (rows, any number) of the rows that may be continued.

        `scored` (rows, any number): scores of the `scored_tokens`, which may be among the others, too.
        """
        found, few = list[Candidate](), scored.shape[1] <= 2 * self._width
        every_sum = scored.tolist() if few else []
        for row, (next_tokens, sums, wanted) in enumerate(zip(tokens.tolist(), scores.tolist(), self._wanted, strict=True)):
            seen = self._add_best(found, row, next_tokens, sums, dead)
            likely = zip(wanted.listed, every_sum[row]) if few else self._likely(wanted, scored[row])  # noqa: B905
            found += [(score, row, *one) for one, score in likely if score > dead and one[0] not in seen]
        found.sort(key=_score, reverse=True)  # stable: of equal ones the lower row, and its better token
        return found

    def _add_best(self, found: list[Candidate], row: int, tokens: list[int], scores: list[float], dead: float) -> set[int]:
        """Add what the model would generate by itself, and those of its tokens that begin or continue phrases."""
        table, state, in_word, seen = self._table, self._rows[row], self._in_word[row], set[int]()
        noted, going_on, bank, ends_term = table.noted, state.begun, state.had, state.last > 0
        for token, score in zip(tokens, scores, strict=True):
            if score <= dead:
                continue
            if (token in noted or token in going_on) and table.is_relevant(state, token):
                if token not in seen:
                    seen.add(token)
                    found.append((score, row, token, table.next(state, token, in_word).bank))
            elif not (ends_term and table.goes_on(token)):
                found.append((score, row, token, bank))
        return seen

    def _likely(self, wanted: Wanted, scores: Scores) -> Iterable[tuple[tuple[int, int], float]]:
        """Of very many tokens that bring a row further, those that the beam may have places for, with their scores."""
        count, width, listed = len(wanted.tokens), self._width, wanted.listed
        if count <= width:
            return zip(listed, scores.tolist())  # noqa: B905 - shorter than the widest row's
        scores = scores[:count]
        alike = np.where(wanted.alike, scores, -np.inf)
        at = ((alike >= np.partition(alike, count - width)[count - width]) | ~wanted.alike).nonzero()[0]
        return zip([listed[one] for one in at.tolist()], scores[at].tolist(), strict=True)

    @property
    def most(self) -> int:
        """The bank of rows that have everything."""
        return self._table.most

    def kept(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The beam's next rows from `candidates`, both best first.

        A row that lacks phrases although it is time to end is dropped: it could only append them to a complete sentence.
        """
        banks = self._banks(candidates, gives_up=True) or self._banks(candidates, gives_up=False)
        if not banks:
            return []
        chosen = [banks[max(banks)].pop(0)]
        for heads in itertools.zip_longest(*banks.values()):
            if len(chosen) == self._width:
                break
            some = sorted(filter(None, heads), key=_score, reverse=True)
            chosen += some[: self._width - len(chosen)]
        chosen.sort(key=_score, reverse=True)
        return chosen

    def _banks(self, candidates: Sequence[Candidate], *, gives_up: bool) -> dict[int, list[Candidate]]:
        """The best candidates that do not end, by bank, best first; without the rows that `kept` drops."""
        ends, width, most = self._ends, self._width, self.most
        banks: dict[int, list[Candidate]] = {}
        seen, late = set[int](), set[int]()
        for one in candidates:
            _, row, token, bank = one
            if token in ends:
                if gives_up and bank < most and row not in seen:  # its best token
                    late.add(row)
            elif row not in late:
                held = banks.get(bank)
                if held is None:
                    banks[bank] = [one]
                elif len(held) < width:
                    held.append(one)
            seen.add(row)
        return banks

    def go_on(self, chosen: Sequence[Candidate]) -> None:
        """Replace the rows by these."""
        table, before, within = self._table, self._rows, self._in_word
        self._rows = [table.next(before[row], token, within[row]) for _, row, token, _ in chosen]
        if self._words is not None:
            self._in_word = [self._words.is_open(token) for _, _, token, _ in chosen]

    def feed(self, token: int) -> None:
        """Append a token of the prefix to all rows."""
        self._rows = [
            self._table.next(state, token, in_word) for state, in_word in zip(self._rows, self._in_word, strict=True)
        ]
        if self._words is not None:
            self._in_word = [self._words.is_open(token)] * self._width
