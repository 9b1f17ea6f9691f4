"""Where a block's parts are in the request's text, which also has tags, entities, and what stand-ins replace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dragoman.serving.text.places import Places, Run, Stretch

__all__ = ["Origin", "Replaced"]


class Replaced(NamedTuple):
    """block[at : at + length], a stand-in with the spaces that were added to it, is draft[start:end]."""

    at: int
    length: int
    start: int
    end: int


class Origin:
    """The origin of one block. A *draft* is its text before stand-ins. Parts are requested from left to right."""

    def __init__(self, draft: str, stretches: Sequence[Stretch], replaced: Sequence[Replaced]) -> None:
        self._places = Places(draft, stretches)
        self._replaced = replaced
        self._next = 0
        self._shift = 0  # from the block to the draft, behind what was replaced last

    def places(self, start: int, end: int) -> list[Run]:
        """Of block[start:end], with its own characters from 0."""
        found: list[Run] = []
        at = start
        while (
            self._next < len(self._replaced) and self._replaced[self._next].at + self._replaced[self._next].length <= start
        ):
            self._pass()  # it stood in what is not translated
        while self._next < len(self._replaced) and self._replaced[self._next].at < end:
            one = self._replaced[self._next]
            found += self._plain(start, at, one.at)
            if runs := self._places.runs(one.start, one.end):
                place, last = runs[0].place, runs[-1]
                found.append(Run(one.at - start, one.length, place, last.place + last.extent - place))
            at = one.at + one.length
            self._pass()
        return found + self._plain(start, at, end)

    def _pass(self) -> None:
        """Behind the next stand-in."""
        one = self._replaced[self._next]
        self._shift, self._next = one.end - one.at - one.length, self._next + 1

    def _plain(self, start: int, first: int, last: int) -> list[Run]:
        if first >= last:
            return []
        runs = self._places.runs(first + self._shift, last + self._shift)
        return [Run(at - self._shift - start, length, place, extent) for at, length, place, extent in runs]
