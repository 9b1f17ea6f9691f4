"""Finds the stand-ins of placeholders in a translation, and which placeholder each one stands for.

A constrained search can still write a stand-in twice, add an ending, or begin with the wrong one; an unconstrained search
may leave them out. In the result every placeholder occurs exactly once and unaltered.
"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from dragoman.serving.text.links import Link
from dragoman.serving.text.placing import Placing

__all__ = ["Atom", "Slot", "filled_slots"]

_LETTERS = re.compile(r"[0-9A-Za-z\u00c0-\u024f\u0370-\u058f]+")
_LONGEST_ENDING = 4
"""Letters behind a stand-in that are an ending, and go with it. More are a word, which is kept."""


class Atom(NamedTuple):
    """source[start:end] is the stand-in for `raw`; so many spaces were added `before` and `behind` it.

    `is_aside`: it is no word of its sentence, if it stands at an end of it.
    """

    start: int
    end: int
    raw: str
    before: int = 0
    behind: int = 0
    is_aside: bool = False


class Slot(NamedTuple):
    """translation[start:end] is replaced by `raw`; `atom` is its number, -1 for text that is only removed."""

    start: int
    end: int
    raw: str
    atom: int


class _Found(NamedTuple):
    start: int  # with what is glued to it
    end: int
    word: str
    atom: int


def filled_slots(
    source: str, atoms: Sequence[Atom], translation: str, links: Sequence[Link], placing: Placing
) -> list[Slot]:
    """The slots from left to right, without overlaps: every atom exactly once."""
    if not atoms:
        return []
    waiting: dict[str, deque[int]] = defaultdict(deque)
    for number, atom in enumerate(atoms):
        waiting[source[atom.start : atom.end]].append(number)
    found = _found(translation, waiting)
    slots: list[Slot] = []
    kept: list[_Found] = []
    for one in sorted(found, key=lambda one: (one.end - one.start > len(one.word), one.start)):  # without endings first
        if waiting[one.word]:
            waiting[one.word].popleft()
            kept.append(one)
        else:
            start = one.start - (one.start > 0 and translation[one.start - 1] == " ")
            slots.append(Slot(start, one.end, "", -1))
    kept.sort()
    missing = sorted(number for numbers in waiting.values() for number in numbers)
    named = _named(source, atoms, kept, set(missing))
    before = -1
    for one, number in zip(kept, _in_right_order(named, kept, atoms, links), strict=True):
        slots.append(
            Slot(one.start, one.end, _apart(atoms[number].raw, translation, one, is_joined=one.start == before), number)
        )
        before = one.end
    _put_missing(slots, missing, atoms, translation, placing)
    return sorted(slots, key=lambda slot: (slot.start, slot.end))


def _put_missing(
    slots: list[Slot], missing: Sequence[int], atoms: Sequence[Atom], translation: str, placing: Placing
) -> None:
    """Atoms that the model has not written go where they stood: after the atom before them, and before the next one."""
    taken = [(slot.start, slot.end) for slot in slots]
    placed = sorted((slot.atom, slot.start, slot.end) for slot in slots if slot.atom >= 0)
    numbers = [number for number, _, _ in placed]
    least = 0  # behind the missing one before
    for number in missing:
        following = bisect.bisect_left(numbers, number)
        low = max(least, placed[following - 1][2] if following else 0)
        high = placed[following][1] if following < len(placed) else len(translation)
        at = placing.point(atoms[number].start)
        at = min(max(at, low), high) if low <= high else at
        at = next((end for start, end in taken if start < at < end), at)
        is_joined = (at == least and number != missing[0]) or any(end == at for _, end in taken)
        slots.append(Slot(at, at, _spaced(atoms[number].raw, translation, at, is_joined=is_joined), number))
        least = at


def _found(translation: str, words: dict[str, deque[int]]) -> list[_Found]:
    """All stand-ins in the translation, with the letters attached to them."""
    pattern = re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)))
    matches = list(pattern.finditer(translation))
    starts = {match.start() for match in matches}
    found, before = [], 0
    for match in matches:
        start, end = match.span()
        behind = _LETTERS.match(translation, end)
        if behind is not None and end not in starts and behind.end() - end <= _LONGEST_ENDING:
            end = behind.end()
        while match.group().isdigit() and start > before and translation[start - 1].isdigit():
            start -= 1  # 12013 is not 2013
        found.append(_Found(start, end, match.group(), -1))
        before = end
    return found


def _named(source: str, atoms: Sequence[Atom], kept: Sequence[_Found], missing: set[int]) -> list[int]:
    """Match atoms by the words that the model has written; atoms with the same word keep their order."""
    numbers: dict[str, deque[int]] = defaultdict(deque)
    for number, atom in enumerate(atoms):
        if number not in missing:
            numbers[source[atom.start : atom.end]].append(number)
    return [numbers[one.word].popleft() for one in kept]


def _in_right_order(named: list[int], kept: Sequence[_Found], atoms: Sequence[Atom], links: Sequence[Link]) -> Sequence[int]:
    """The order as written if the attention confirms it for all atoms that have changed places; otherwise that of the
    source.
    """
    in_order = sorted(named)
    for number, expected, one in zip(named, in_order, kept, strict=True):
        if number == expected or atoms[number].raw == atoms[expected].raw:
            continue
        atom = atoms[number]
        looks = any(
            link.source_start < atom.end and link.source_end > atom.start
            for link in links
            if link.target_start < one.end and link.target_end > one.start
        )
        if not looks:
            return in_order
    return named


def _apart(raw: str, text: str, one: _Found, *, is_joined: bool) -> str:
    """Separated by a space from a word that continues at the stand-in, and from a placeholder before it."""
    behind = " " if (following := _LETTERS.match(text, one.end)) and following.end() - one.end > _LONGEST_ENDING else ""
    before = " " if is_joined or (one.start and _LETTERS.match(text[one.start - 1])) else ""
    return before + raw + behind


def _spaced(raw: str, text: str, at: int, *, is_joined: bool) -> str:
    """`raw` with a space if text[at] or the placeholder before it would touch it."""
    before = " " if is_joined or (at and not text[at - 1].isspace()) else ""
    after = " " if at < len(text) and not text[at].isspace() and text[at].isalnum() else ""
    return before + raw + after
