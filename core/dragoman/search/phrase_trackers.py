"""The phrases of a batch: what a step must give for the sequences that have some, and what may continue each of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dragoman.search.constraints import Ids, Scores
from dragoman.search.initial_state import NO_TOKEN
from dragoman.search.phrases import Candidate, PhraseTracker

__all__ = ["PhraseTrackers"]

_TOGETHER = 4
"""Scored tokens come in multiples of this, so that steps have few shapes."""

_LISTED = 64
"""So many columns of scored tokens become lists at once; of more only those that a row wants are looked at."""


class PhraseTrackers:
    """Of each sequence of a batch its tracker, if it has phrases."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.listed: list[PhraseTracker | None] = []
        self.count = 0
        """How many have some."""
        self._columns = 0  # behind the candidates

    def append(self, tracker: PhraseTracker | None) -> None:
        self.listed.append(tracker)
        self.count += tracker is not None

    def scored_tokens(self) -> Ids | None:
        """As SearchBatch has it."""
        self._columns = 0
        if not self.count:
            return None
        wanted = [None if tracker is None else tracker.wanted() for tracker in self.listed]
        most = max(len(row.listed) for rows in wanted if rows is not None for row in rows)
        self._columns = columns = -(-most // _TOGETHER) * _TOGETHER
        if not columns:
            return None
        nothing = np.full(self._width * columns, NO_TOKEN, np.int64)
        parts: list[Ids] = []
        for rows in wanted:
            parts += [nothing] if rows is None else [row.padded(columns) for row in rows]
        return np.concatenate(parts).reshape(-1, self._width, columns)

    def candidates(
        self,
        sequences: Sequence[int],
        tokens: Ids,
        sums: Scores,
        *,
        need: Sequence[int],
        unordered: Sequence[bool],
        dead: float,
    ) -> list[tuple[PhraseTracker, list[Candidate]]]:
        """The tracker of each of these `sequences`, which all have phrases, and what may continue it, best first.

        `tokens` and `sums` (sequences, width, any number), those of the scored tokens behind the others, of which each
        sequence looks at so many as it needs: others of the batch may need more. Rules change the order of those of some.
        """
        behind = tokens.shape[-1] - self._columns
        next_tokens, next_sums = tokens[..., :behind].tolist(), sums[..., :behind].tolist()
        scored = sums[..., behind:].tolist() if self._columns <= _LISTED else sums[..., behind:]
        found = list[tuple[PhraseTracker, list[Candidate]]]()
        for at, sequence in enumerate(sequences):
            tracker, own, own_sums, most = self.listed[sequence], next_tokens[at], next_sums[at], need[at]
            if tracker is None:
                raise RuntimeError("the sequence has no phrases")
            if most < behind:
                own, own_sums = [row[:most] for row in own], [row[:most] for row in own_sums]
            found.append((tracker, tracker.candidates(own, own_sums, scored[at], dead, in_order=not unordered[at])))
        return found
