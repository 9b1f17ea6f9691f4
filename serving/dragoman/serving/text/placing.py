"""Where in a translation something belongs that stood at a position of the source: by alignment, or in proportion.

Ranges are half-open, in characters of the source and of the translation.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence

from dragoman.serving.text.links import Link

__all__ = ["Placing"]

_WORD = re.compile(r"\S+")
_Span = tuple[int, int]


class Placing:
    """Maps ranges of a source to its translation. With links by aligned words, without them by word order."""

    def __init__(self, source: str, target: str, links: Sequence[Link]) -> None:
        self.target, self._length = target, len(target)
        in_target_order = sorted(links, key=lambda link: (link.target_start, link.target_end))
        ranked = [(link, rank) for rank, link in enumerate(in_target_order)]
        self._links = sorted(ranked, key=lambda one: one[0].source_start)
        self._link_starts = [link.source_start for link, _ in self._links]
        self._longest_link = max((link.source_end - link.source_start for link in links), default=0)
        self._source_words = [match.span() for match in _WORD.finditer(source)] or [(0, len(source))]
        self._source_starts = [start for start, _ in self._source_words]
        self._target_words = [match.span() for match in _WORD.finditer(target)] or [(0, len(target))]
        self._known: dict[_Span, _Span | None] = {}

    def range(self, start: int, end: int) -> _Span | None:
        """The range of the translation for source[start:end]; None if nothing corresponds to it."""
        if start <= self._source_words[0][0] and end >= self._source_words[-1][1]:
            return 0, self._length
        if (start, end) not in self._known:
            self._known[start, end] = self._linked(start, end) if self._links else self.in_proportion(start, end)
        return self._known[start, end]

    def point(self, at: int) -> int:
        """The position for something between two words of the source: after the word that it touches, or before the next
        one.
        """
        following = bisect.bisect_right(self._source_starts, at)
        if following and self._source_words[following - 1][1] == at:
            found = self.range(*self._source_words[following - 1])
            if found is not None:
                return found[1]
        if following and self._source_words[following - 1][1] > at:
            following -= 1  # it stands in a word
        if at <= self._source_words[0][0]:
            return 0
        if following < len(self._source_words):
            start, end = self._source_words[following]
            if (found := self.range(max(start, at), end)) is not None:
                return found[0]
        if following < len(self._source_words) and (found := self.range(*self._source_words[following - 1])) is not None:
            return found[1]
        return self._length

    def _linked(self, start: int, end: int) -> _Span | None:
        """The longest run of linked target words that nothing from elsewhere interrupts."""
        first = bisect.bisect_left(self._link_starts, start - self._longest_link)
        last = bisect.bisect_left(self._link_starts, end)
        own = sorted(
            (rank, link.target_start, link.target_end) for link, rank in self._links[first:last] if link.source_end > start
        )
        runs: list[list[int]] = []
        before = -2
        for rank, begin, stop in own:
            if rank == before + 1 or (runs and begin < runs[-1][1]):
                runs[-1][1] = max(runs[-1][1], stop)
            else:
                runs.append([begin, stop])
            before = rank
        if not runs:
            return None
        best = max(runs, key=lambda run: run[1] - run[0])
        return best[0], best[1]

    def in_proportion(self, start: int, end: int) -> _Span | None:
        """The words with the same relative position in the translation; None if it has no words."""
        first = bisect.bisect_right(self._source_starts, start)
        if first and self._source_words[first - 1][1] > start:
            first -= 1
        behind = bisect.bisect_left(self._source_starts, end)
        if first >= behind:
            return None
        words = len(self._target_words)
        scale = words / len(self._source_words)
        begin = min(round(first * scale), words - 1)
        stop = min(max(round(behind * scale), begin + 1), words)
        return self._target_words[begin][0], self._target_words[stop - 1][1]
