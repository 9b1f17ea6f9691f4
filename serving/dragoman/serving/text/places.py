"""Maps positions of a text to another form of it: with entities, escapes, tags and other white space, or in capitals.

With it an alignment of what the model reads becomes one of what the caller sent, and of what the caller receives.
"""

from __future__ import annotations

import bisect
import html
import re
from collections.abc import Sequence
from typing import NamedTuple

from dragoman.serving.text.links import Link

__all__ = ["Places", "Run", "Source", "Span", "Stretch", "moved_links", "span_of"]

_REFERENCE = re.compile(r"&#?\w{1,40};?")
_SPACE = re.compile(r"\s+")
_NEAR = 100
"""Characters that may stand between two of the text, such as the signs of a quote at the beginning of its lines."""
_LARGEST = 1 << 60

Span = tuple[int, int]


class Stretch(NamedTuple):
    """text[at : at + length] is written as `raw`, which begins at `place`; None: as something that has no parts."""

    at: int
    length: int
    place: int
    extent: int
    raw: str | None = None


class Run(NamedTuple):
    """text[at : at + length] is written as `extent` characters from `place` on: one for one if the two are equal."""

    at: int
    length: int
    place: int
    extent: int

    def goes_on(self, at: int, place: int) -> bool:
        """Whether the next character follows in both, one for one."""
        return self.length == self.extent and (self.at + self.length, self.place + self.extent) == (at, place)


class Source(NamedTuple):
    """`raw` is what `extent` characters of the document became, from `place` on; -1 where that is not known."""

    raw: str
    place: int = -1
    extent: int = 0


class Places:
    """Of one text; asked from left to right, so that it is read once."""

    def __init__(self, text: str, stretches: Sequence[Stretch]) -> None:
        self._text, self._stretches = text, stretches
        self._next = 0
        self._read, self._written = 0, 0  # of the stretch that is next: characters of the text, and of its source

    def runs(self, start: int, end: int) -> list[Run]:
        """The runs of text[start:end], with positions in the whole text."""
        found: list[Run] = []
        while self._next < len(self._stretches):
            stretch = self._stretches[self._next]
            first, last = max(start, stretch.at), min(end, stretch.at + stretch.length)
            if first < last:
                found += self._within(stretch, first, last)
            if stretch.at + stretch.length > end:
                break
            self._next, self._read, self._written = self._next + 1, 0, 0
        return found

    def _within(self, stretch: Stretch, first: int, last: int) -> list[Run]:
        at, length, place, extent, raw = stretch
        if raw is None:
            return [Run(at, length, place, extent)]
        if extent == length and self._text.startswith(raw, at):
            return [Run(first, last - first, place + first - at, last - first)]
        runs: list[Run] = []
        while self._read < last - at:
            begin, write = at + self._read, place + self._written
            read, written = _step(self._text, begin, raw, self._written)
            if read == 1 < written and raw[self._written + written - 1] == self._text[begin]:
                write, extent = write + written - 1, 1  # without what stands before it
            else:
                extent = written
            self._read, self._written = self._read + read, self._written + written
            if begin + read <= first:
                continue
            before = runs[-1] if runs else None
            if read == extent == 1 and before is not None and before.goes_on(begin, write):
                runs[-1] = Run(before.at, before.length + 1, before.place, before.extent + 1)
            else:
                runs.append(Run(begin, read, write, extent))
        return runs


def span_of(runs: Sequence[Run], start: int, end: int) -> Span | None:
    """What text[start:end] is written as; None if it is written as nothing."""
    first = max(bisect.bisect_right(runs, (start, _LARGEST, 0, 0)) - 1, 0)
    touched = []
    for run in runs[first:]:
        if run.at >= end:
            break
        if run.at + run.length > start:
            touched.append(run)
    if not touched:
        return None
    left, right = touched[0], touched[-1]
    begin = left.place + (max(start - left.at, 0) if left.length == left.extent else 0)
    stop = right.place + (min(end - right.at, right.length) if right.length == right.extent else right.extent)
    return begin, stop


def moved_links(links: Sequence[Link], source: Sequence[Run], target: Sequence[Run]) -> tuple[Link, ...]:
    """The links with both sides mapped to their other forms; each pair once."""
    found: dict[Link, None] = {}
    for link in links:
        was = span_of(source, link.source_start, link.source_end)
        became = span_of(target, link.target_start, link.target_end)
        if was is not None and became is not None:
            found[Link(*was, *became)] = None
    return tuple(found)


def _step(text: str, at: int, raw: str, written: int) -> tuple[int, int]:
    """How many characters of the text, and of how it is written, belong together next."""
    character, sign = text[at], raw[written : written + 1]
    if sign == "&" and (reference := _REFERENCE.match(raw, written)) is not None:
        meaning = html.unescape(reference.group())
        if meaning != reference.group() and text.startswith(meaning, at):
            return len(meaning), len(reference.group())
    if character.isspace() and sign.isspace():
        is_alone = not text[at + 1 : at + 2].isspace()
        space = _SPACE.match(raw, written)
        return 1, len(space.group()) if is_alone and space is not None else 1
    if sign == character:
        return 1, 1
    if sign == "\\" and raw.startswith(character, written + 1):
        return 1, 2
    if raw.startswith(capital := character.upper(), written):
        return 1, len(capital)
    near = raw.find(character, written, written + _NEAR)
    return 1, (near + 1 - written if near >= 0 else min(1, len(raw) - written))
