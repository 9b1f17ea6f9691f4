"""Blocks of text from which tags and other non-words were taken out, and how these come back into a translation.

A *tag* stands between characters of a block's text; two of them may be a pair, and pairs are nested. An *atom* replaces
characters: its stand-in is translated as if it were a number, and replaced again.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dragoman.serving.text.capitals import Capitals
from dragoman.serving.text.document import LETTER, Part
from dragoman.serving.text.origin import Origin
from dragoman.serving.text.placeholder_slots import Atom, Slot
from dragoman.serving.text.restoring import BEGAN_BEFORE, ENDS_LATER, Restorer, Tag, woven
from dragoman.serving.text.term_places import PartTerms

__all__ = ["MarkedBlock", "PartOptions"]

PartOptions = Callable[[str, Sequence[str]], tuple[Mapping[str, object] | None, PartTerms | None]]
"""The decoding options of a part and its terms: from its text, and from what its translation must have."""

_ATOMS_AT_ONCE = 1000
"""Atoms that are put back where they stood between two pauses: two milliseconds."""
_MOST_ASIDES = 16
"""At one end of a sentence."""


class MarkedBlock:
    """Text with tags and atoms, each in the order of the text. `write` escapes translated text for the source format.

    Parts are requested from left to right: a tag between two of them belongs to the next.
    """

    def __init__(
        self,
        text: str,
        tags: Sequence[Tag] = (),
        atoms: Sequence[Atom] = (),
        *,
        write: Callable[[str], str] = str,
        options: PartOptions | None = None,
        capitals: Capitals | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.text = text
        self._tags, self._atoms = tags, atoms
        self._write, self._options, self._capitals = write, options, capitals
        self._tag_places = [tag.at for tag in tags]
        self._atom_places = [atom.start for atom in atoms]
        self._origin = origin
        self._last = len(text.rstrip())
        self._next_tag = 0

    def has_words(self, start: int, end: int) -> bool:
        """Whether there are words besides the stand-ins."""
        for atom in self._atoms_of(start, end):
            if LETTER.search(self.text, start, atom.start) is not None:
                return True
            start = atom.end
        return LETTER.search(self.text, start, end) is not None

    def bare(self, start: int, end: int) -> tuple[int, int]:
        """Models turn an emoji at an end of a sentence into a part of it: the subject, or what something is like."""
        text, atoms = self.text, self._atoms_of(start, end)
        for atom in atoms[:_MOST_ASIDES]:
            if not atom.is_aside or atom.start != start:
                break
            start = atom.end + atom.behind
            while start < end and text[start].isspace():
                start += 1
        for atom in atoms[: -_MOST_ASIDES - 1 : -1]:
            if not atom.is_aside or atom.end != end:
                break
            end = atom.start - atom.before
            while start < end and text[end - 1].isspace():
                end -= 1
        return start, end

    def part(self, start: int, end: int) -> Part:
        """With the tags within it, and those before it that belong to no earlier part."""
        text, atoms, capitals = self.text[start:end], self._atoms_of(start, end), None
        first, stop = self._take_tags(end)
        own = [
            tag._replace(
                at=min(max(tag.at, start), end) - start,
                partner=tag.partner - first if first <= tag.partner < stop else _beyond(tag.partner, first),
            )
            for tag in self._tags[first:stop]
        ]
        stand_ins = [Atom(atom.start - start, atom.end - start, atom.raw) for atom in atoms]
        write = self._write
        if self._capitals is not None:
            lowered = self._capitals.lowered(text, [(atom.start, atom.end) for atom in stand_ins])
            if lowered is not None:
                text, write, capitals = lowered, _InCapitals(self._capitals, write), self._capitals
        decoding, terms = None, None
        if self._options is not None:
            decoding, terms = self._options(text, [text[atom.start : atom.end] for atom in stand_ins])
        places = () if self._origin is None else self._origin.places(start, end)
        if not own and not stand_ins and write is str:
            return Part(text, decoding, needs_links=terms is not None, places=places, terms=terms)
        is_inside = any(0 < tag.at < len(text) for tag in own)
        may_swap = len({atom.raw for atom in stand_ins}) > 1
        restore = Restorer(text, own, stand_ins, write)
        needs_links = is_inside or may_swap or terms is not None
        marks = len(own) + len(stand_ins)
        return Part(text, decoding, needs_links, restore, places, terms, marks, capitals)

    def unchanged(self, start: int, end: int) -> Iterable[str]:
        """Tags and atoms stay where they stood: placing those of a long stretch would take long."""
        cuts = [atom.end for atom in self._atoms_of(start, end)[_ATOMS_AT_ONCE - 1 :: _ATOMS_AT_ONCE] if atom.end < end]
        for begin, stop in itertools.pairwise([start, *cuts, end]):
            yield self._woven(begin, stop)

    def _woven(self, start: int, end: int) -> str:
        first, stop = self._take_tags(end)
        tags = [(min(max(tag.at, start), end) - start, tag.raw) for tag in self._tags[first:stop]]
        slots = [
            Slot(max(atom.start - atom.before - start, 0), min(atom.end + atom.behind, end) - start, atom.raw, -1)
            for atom in self._atoms_of(start, end)
        ]
        return woven(self.text[start:end], tags, slots, self._write).text

    def _atoms_of(self, start: int, end: int) -> Sequence[Atom]:
        return self._atoms[bisect.bisect_left(self._atom_places, start) : bisect.bisect_left(self._atom_places, end)]

    def _take_tags(self, end: int) -> tuple[int, int]:
        """The first and last of the tags that belong to a part which ends there."""
        stop = len(self._tags) if end >= self._last else bisect.bisect_left(self._tag_places, end, self._next_tag)
        while stop < len(self._tags) and self._tags[stop].at == end and self._tags[stop].ends_a_pair(stop):
            stop += 1  # the end of a pair belongs to what stands in it
        first, self._next_tag = self._next_tag, stop
        return first, stop


@dataclass(frozen=True, slots=True)
class _InCapitals:
    """Writes text in capitals."""

    capitals: Capitals
    write: Callable[[str], str]

    def __call__(self, text: str) -> str:
        return self.write(self.capitals.raised(text))


def _beyond(partner: int, first: int) -> int:
    """A partner that stands in another part; one that is not in the block at all stays what it is."""
    return partner if partner < 0 else BEGAN_BEFORE if partner < first else ENDS_LATER
