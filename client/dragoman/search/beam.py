"""Beam search with the semantics, and the 32-bit arithmetic, of Hugging Face `generate`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dragoman.search.batch import SearchBatch, TokenIds
from dragoman.search.constraints import Ids, Scores
from dragoman.search.hypothesis import Hypothesis

__all__ = ["BeamBatch"]

_NEVER = np.float32(-1.0e9)
"""Marks what must not win; finite, so that it can be added and compared."""


_TABLE = 64
"""Lengths that the table of length penalties has to begin with."""


@dataclass(slots=True)
class _Ended:
    """A hypothesis that has ended: its score with length penalty and its tokens after the start token."""

    score: np.float32
    tokens: Ids


class BeamBatch(SearchBatch):
    """Keeps the `width` best rows of each group. Processors work on log-probabilities."""

    _columns = (*SearchBatch._columns, "_scores", "_floor", "_open", "_stops", "_divisor")

    def __init__(self, width: int, tokens: TokenIds, vocabulary: int) -> None:
        super().__init__(width, tokens, vocabulary)
        self._wanted = 2 * width  # each row may end, and then as many others must be there to go on
        groups = len(self._length)
        self._scores = np.zeros((groups, width), np.float32)  # sums of log-probabilities, best first
        self._floor = np.zeros(groups, np.float32)  # what a running row must be able to beat
        self._open = np.ones(groups, np.bool_)  # a running row may still beat it
        self._stops = np.zeros(groups, np.bool_)  # enough has ended for who stops at the first
        self._divisor = np.ones((groups, _TABLE), np.float32)  # length penalty by the number of tokens generated
        self._ended: list[list[_Ended]] = []  # best first, at most `width`
        self._shrinks = 1.0  # the most that a length penalty makes of a score: a negative one multiplies

    def hypotheses(self, group: int) -> tuple[Hypothesis, ...]:
        found = []
        if not self._ended[group]:  # every continuation was forbidden: what there is so far
            last = int(self._length[group])
            self._ended[group].append(_Ended(self._scores[group, 0], self._sequence[group, 0, 1:last]))
        for ended in self._ended[group][: self._options[group].num_hypotheses]:
            tokens = tuple(ended.tokens.tolist())
            found.append(Hypothesis(tokens, float(ended.score), "eos" if tokens[-1] == self._eos else "length"))
        return tuple(found)

    def decided(self, group: int) -> tuple[int, ...]:
        """What every running row and every hypothesis that has ended begin with."""
        length = int(max(self._length[group], self._prompt[group]))
        if self._length[group] <= self._prompt[group]:
            return tuple(self._sequence[group, 0, 1:length].tolist())
        alive = self._scores[group] > _NEVER / 2
        alive[0] = True
        rows = [*self._sequence[group, alive, 1:length], *(ended.tokens for ended in self._ended[group])]
        return tuple(_common(rows).tolist())

    def _start_group(self, group: int) -> None:
        # All rows are the same at first: only one may be continued, or all beams would be copies of it.
        self._scores[group], self._scores[group, 0] = _NEVER, 0.0
        self._floor[group], self._open[group], self._stops[group] = _NEVER, True, False
        options = self._options[group]
        if (longest := options.max_length + 2) > self._divisor.shape[1]:
            wider = np.ones((len(self._divisor), max(longest, 2 * self._divisor.shape[1])), np.float32)
            wider[:, : self._divisor.shape[1]] = self._divisor
            self._divisor = wider
        if options.early_stopping == "never" and options.length_penalty > 0.0:  # hopes for the longest
            self._divisor[group] = options.max_length**options.length_penalty
        else:
            self._divisor[group, :longest] = _penalties(options.length_penalty, longest)
        self._ended.append([])
        self._shrinks = max(self._shrinks, options.max_length ** max(-options.length_penalty, 0.0))

    def _scored(self, log_probs: Scores, logits: Scores) -> Scores:  # noqa: ARG002
        return log_probs

    def _choose(self, live: slice | Ids, tokens: Ids, scores: Scores, log_probs: Scores) -> list[int]:  # noqa: ARG002
        count, width, candidates = tokens.shape
        index, groups = self._every[:count, None], self._every[live]
        sums = (scores + self._scores[live][:, :, None]).reshape(count, -1)  # (live, width * candidates)
        best = (-sums).argsort(axis=1, kind="stable")[:, : 2 * width]
        best_sums = sums[index, best]  # (live, 2 * width)
        best_tokens = tokens.reshape(count, -1)[index, best]
        best_rows = best // candidates

        length = self._length[live].copy()
        ends = best_tokens == self._eos
        at_limit = length + 1 == self._limit[live]
        if at_limit.any():
            ends |= at_limit[:, None]
        any_ends = bool(ends.any())
        if any_ends:
            for at in np.flatnonzero(ends[:, :width].any(1)).tolist():
                self._end_some(int(groups[at]), best_sums[at], ends[at], best_rows[at], best_tokens[at])
            best_sums = best_sums + ends * _NEVER
            kept = (-best_sums).argsort(axis=1, kind="stable")[:, :width]  # the best that go on
            best_sums, best_rows, best_tokens = best_sums[index, kept], best_rows[index, kept], best_tokens[index, kept]

        parents = best_rows[:, :width]
        self._scores[live], self._parents[live] = best_sums[:, :width], parents
        self._extend(groups, length, parents, best_tokens[:, :width])
        if not any_ends and self._floor[live].max() == _NEVER and self._scores[live, 0].min() > _NEVER / self._shrinks:
            return []  # nobody has all the hypotheses that it needs: nobody can be done
        done: list[int] = groups[~self._goes_on(live, ends)][::-1].tolist()
        return done

    def _extend(self, groups: Ids, length: Ids, parents: Ids, tokens: Ids) -> None:
        longest = int(length.max())
        self._sequence[groups, :, :longest] = self._sequence[groups[:, None], parents, :longest]
        self._sequence[groups, :, length] = tokens
        self._length[groups] = length + 1

    def _end_some(self, group: int, sums: Scores, ends: npt.NDArray[np.bool_], rows: Ids, tokens: Ids) -> None:
        """Keep the best of what has ended; only the first `width` candidates may, the others are there to go on."""
        options, width, length = self._options[group], self.width, int(self._length[group])
        ended = self._ended[group]
        if options.early_stopping == "first" and len(ended) == width:
            return
        generated = length + 1 - int(self._prompt[group])
        scores = sums / np.float32(generated**options.length_penalty)
        for at in np.flatnonzero(ends[:width]).tolist():
            said = self._sequence[group, rows[at], 1 : length + 1].copy()
            said[-1] = tokens[at]
            ended.append(_Ended(scores[at], said))
        ended.sort(key=lambda one: -one.score)
        del ended[width:]
        if len(ended) == width:
            self._floor[group] = ended[-1].score
            self._stops[group] = options.early_stopping == "first"

    def _goes_on(self, live: slice | Ids, ends: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """(live,): can a running row still improve the answer?"""
        generated = self._length[live] - self._prompt[live]
        possible = self._scores[live, 0] / self._divisor[self._every[live], generated]
        self._open[live] &= possible > self._floor[live]
        going: npt.NDArray[np.bool_] = self._open[live] & ~self._stops[live] & ~ends.all(1)
        return going

    def _lists(self) -> Sequence[list[object]]:
        return [*super()._lists(), self._ended]  # type: ignore[list-item]


@functools.lru_cache(maxsize=64)
def _penalties(exponent: float, count: int) -> Scores:
    """0 … count − 1 to the power of `exponent`, as Python computes it and not as numpy may."""
    return np.array([1.0, *(length**exponent for length in range(1, count))], np.float32)


def _common(rows: list[Ids]) -> Ids:
    """The longest beginning that all share."""
    shortest = min(map(len, rows))
    same = np.all([row[:shortest] == rows[0][:shortest] for row in rows], axis=0)
    return rows[0][: shortest if same.all() else int(same.argmin())]
