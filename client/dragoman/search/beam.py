"""Beam search with the semantics, and the 32-bit arithmetic, of Hugging Face `generate`."""

from __future__ import annotations

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


@dataclass(slots=True)
class _Ended:
    """A hypothesis that has ended: its score with length penalty and its tokens after the start token."""

    score: np.float32
    tokens: Ids


class BeamBatch(SearchBatch):
    """Keeps the `width` best rows of each group. Processors work on log-probabilities."""

    _columns = (*SearchBatch._columns, "_scores", "_floor", "_open")

    def __init__(self, width: int, tokens: TokenIds, vocabulary: int) -> None:
        super().__init__(width, tokens, vocabulary)
        self._wanted = 2 * width  # each row may end, and then as many others must be there to go on
        groups = len(self._length)
        self._scores = np.zeros((groups, width), np.float32)  # sums of log-probabilities, best first
        self._floor = np.zeros(groups, np.float32)  # what a running row must be able to beat
        self._open = np.ones(groups, np.bool_)  # a running row may still beat it
        self._ended: list[list[_Ended]] = []  # best first, at most `width`

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
        self._floor[group], self._open[group] = _NEVER, True
        self._ended.append([])

    def _scored(self, log_probs: Scores, logits: Scores) -> Scores:  # noqa: ARG002
        return log_probs

    def _choose(self, live: slice | Ids, tokens: Ids, scores: Scores, log_probs: Scores) -> list[int]:  # noqa: ARG002
        count, width, candidates = tokens.shape
        index = self._every[:count, None]
        sums = (scores + self._scores[live][:, :, None]).reshape(count, -1)  # (live, width * candidates)
        best = np.argsort(-sums, axis=1, kind="stable")[:, : 2 * width]
        best_sums = sums[index, best]  # (live, 2 * width)
        best_tokens = tokens.reshape(count, -1)[index, best]
        best_rows = best // candidates

        length = self._length[live].copy()
        ends = (best_tokens == self._eos) | (length + 1 == self._limit[live])[:, None]
        running = best_sums + ends * _NEVER
        kept = np.argsort(-running, axis=1, kind="stable")[:, :width]
        groups = self._every[live]
        for at in np.flatnonzero(ends[:, :width].any(1)).tolist():
            self._end_some(int(groups[at]), best_sums[at], ends[at], best_rows[at], best_tokens[at])

        self._scores[live] = running[index, kept]
        parents = best_rows[index, kept]
        self._parents[live] = parents
        self._extend(groups, length, parents, best_tokens[index, kept])
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
            said = np.append(self._sequence[group, rows[at], 1:length], tokens[at])
            ended.append(_Ended(scores[at], said))
        ended.sort(key=lambda one: -one.score)
        del ended[width:]
        if len(ended) == width:
            self._floor[group] = ended[-1].score

    def _goes_on(self, live: slice | Ids, ends: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """(live,): can a running row still improve the answer?"""
        groups = self._every[live].tolist()
        generated = (self._length[live] - self._prompt[live]).tolist()
        penalties = []
        for group, length in zip(groups, generated, strict=True):
            options = self._options[group]
            hopeful = options.early_stopping == "never" and options.length_penalty > 0.0
            penalties.append((options.max_length if hopeful else length) ** options.length_penalty)
        possible = self._scores[live, 0] / np.array(penalties, np.float32)
        self._open[live] &= possible > self._floor[live]
        full = np.array(
            [self._options[group].early_stopping == "first" and len(self._ended[group]) == self.width for group in groups]
        )
        going: npt.NDArray[np.bool_] = self._open[live] & ~full & ~ends.all(1)
        return going

    def _lists(self) -> Sequence[list[object]]:
        return [*super()._lists(), self._ended]  # type: ignore[list-item]


def _common(rows: list[Ids]) -> Ids:
    """The longest beginning that all share."""
    shortest = min(map(len, rows))
    same = np.all([row[:shortest] == rows[0][:shortest] for row in rows], axis=0)
    return rows[0][: shortest if same.all() else int(same.argmin())]
