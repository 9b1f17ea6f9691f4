"""Blocks of text from which something was taken out: tags, and what is no words; and how it comes back into a translation.

A *tag* stands between characters of a block's text; two of them may be a pair, and pairs are nested. An *atom* takes the
place of characters: its stand-in is translated as if it were a number, and replaced again.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dragoman.serving.text.document import Part
from dragoman.serving.text.links import Link
from dragoman.serving.text.placing import Placing

__all__ = ["Atom", "MarkedBlock", "PartOptions", "Tag"]

PartOptions = Callable[[str, Sequence[str]], Mapping[str, object] | None]
"""The decoding options of a part: from its text, and from what its translation must have."""


@dataclass(frozen=True, slots=True)
class Tag:
    """`raw` stands before text[at]. `partner`: the place of its other half among the block's tags; -1 for none."""

    at: int
    raw: str
    partner: int = -1


@dataclass(frozen=True, slots=True)
class Atom:
    """text[start:end] is the stand-in for `raw`."""

    start: int
    end: int
    raw: str


class MarkedBlock:
    """Text with tags and atoms, each in the order of the text. `write` makes source of translated text: it escapes it.

    Parts are asked for from left to right: a tag between two of them belongs to the next.
    """

    def __init__(
        self,
        text: str,
        tags: Sequence[Tag] = (),
        atoms: Sequence[Atom] = (),
        *,
        write: Callable[[str], str] = str,
        options: PartOptions | None = None,
    ) -> None:
        self.text = text
        self._tags, self._atoms = tags, atoms
        self._write, self._options = write, options
        self._tag_places = [tag.at for tag in tags]
        self._atom_places = [atom.start for atom in atoms]
        self._last = len(text.rstrip())
        self._next_tag = 0

    def part(self, start: int, end: int) -> Part:
        """With the tags that stand in it, and those before it that no part had."""
        text = self.text[start:end]
        atoms = self._atoms[bisect.bisect_left(self._atom_places, start) : bisect.bisect_left(self._atom_places, end)]
        stop = len(self._tags) if end >= self._last else bisect.bisect_left(self._tag_places, end, self._next_tag)
        while stop < len(self._tags) and self._tags[stop].at == end and 0 <= self._tags[stop].partner < stop:
            stop += 1  # the end of a pair belongs to what stands in it
        first, self._next_tag = self._next_tag, stop
        own = [
            Tag(
                min(max(tag.at, start), end) - start,
                tag.raw,
                tag.partner - first if first <= tag.partner < stop else _beyond(tag.partner, first),
            )
            for tag in self._tags[first:stop]
        ]
        stand_ins = [Atom(atom.start - start, atom.end - start, atom.raw) for atom in atoms]
        decoding = self._options(text, [text[atom.start : atom.end] for atom in stand_ins]) if self._options else None
        inside = any(0 < tag.at < len(text) for tag in own)
        if not own and not stand_ins and self._write is str:
            return Part(text, decoding)
        restorer = _Restorer(text, own, stand_ins, self._write)
        return Part(text, decoding, needs_links=inside, restore=restorer)


_BEGAN_BEFORE, _ENDS_LATER = -2, -3
"""Partners that stand in another part."""


def _beyond(partner: int, first: int) -> int:
    """A partner that stands in another part; -1 where there is none at all."""
    return -1 if partner < 0 else _BEGAN_BEFORE if partner < first else _ENDS_LATER


@dataclass(frozen=True, slots=True)
class _Restorer:
    """Puts the tags and atoms of a part into its translation."""

    source: str
    tags: Sequence[Tag]
    atoms: Sequence[Atom]
    write: Callable[[str], str]

    def __call__(self, translation: str, links: Sequence[Link]) -> str:
        placing = Placing(self.source, translation, links)
        return _woven(translation, self._placed(placing, len(translation)), self._replaced(translation, placing), self.write)

    def _placed(self, placing: Placing, length: int) -> list[tuple[int, str]]:
        """All tags with their places in the translation, from left to right.

        Pairs beside each other change places as their words do; pairs in each other stay so, clipped to the outer one. Tags
        without a partner here keep their order.
        """
        ranges, children = self._ranges(placing, length), self._children()

        def in_target_order(tags: Sequence[int]) -> Iterator[int]:
            return iter(sorted(tags, key=lambda tag: ranges[tag][0]))

        placed: list[tuple[int, str]] = []
        floor = 0
        open_pairs = [(in_target_order(children[-1]), length, "")]  # what is in each, where it ends, its closing tag
        while open_pairs:
            inside, ceiling, closing = open_pairs[-1]
            tag = next(inside, None)
            if tag is None:
                open_pairs.pop()
                if open_pairs:
                    floor = ceiling
                    placed.append((floor, closing))
                continue
            start, end = ranges[tag]
            floor = min(max(start, floor), ceiling)
            placed.append((floor, self.tags[tag].raw))
            if (partner := self.tags[tag].partner) >= 0:
                open_pairs.append((in_target_order(children[tag]), min(max(end, floor), ceiling), self.tags[partner].raw))
        return placed

    def _children(self) -> dict[int, list[int]]:
        """Of each pair, by its first tag, what stands directly in it; −1 stands for the part."""
        children: dict[int, list[int]] = {-1: []}
        open_tags = [-1]
        for number, tag in enumerate(self.tags):
            if 0 <= tag.partner < number:
                open_tags.pop()
                continue
            children[open_tags[-1]].append(number)
            if tag.partner >= 0:
                children[number] = []
                open_tags.append(number)
        return children

    def _ranges(self, placing: Placing, length: int) -> list[tuple[int, int]]:
        """What of the translation each tag encloses; nothing, at its place, for one without a partner."""
        ranges: list[tuple[int, int]] = []
        floor = 0  # of tags without a partner
        for tag in self.tags:
            span = self._pair_end(tag, len(self.source))
            found = placing.range(*span) if span is not None and span[0] < span[1] else None
            if found is None:
                at = self._point(placing, tag.at, (len(self.source), length))
                found = at, at
            if tag.partner < 0:
                floor = max(floor, found[0])
                found = floor, floor
            ranges.append(found)
        return ranges

    def _pair_end(self, tag: Tag, length: int) -> tuple[int, int] | None:
        """What the pair encloses of this part; None for a tag that is no beginning of one."""
        if tag.partner == _ENDS_LATER:
            return tag.at, length
        return (tag.at, self.tags[tag.partner].at) if tag.partner >= 0 else None

    def _point(self, placing: Placing, at: int, whole: tuple[int, int]) -> int:
        return 0 if at <= 0 else whole[1] if at >= whole[0] else placing.point(at)

    def _replaced(self, translation: str, placing: Placing) -> list[tuple[int, int, str]]:
        """Stretches of the translation, from left to right, and what stands there instead."""
        found: list[tuple[int, int, str]] = []
        searched: dict[str, int] = {}
        for atom in self.atoms:
            stand_in = self.source[atom.start : atom.end]
            at = translation.find(stand_in, searched.get(stand_in, 0))
            if at >= 0:
                searched[stand_in] = at + len(stand_in)
                found.append((at, at + len(stand_in), atom.raw))
            else:  # the model has not said it: it goes where it stood
                at = placing.point(atom.start)
                found.append((at, at, _spaced(atom.raw, translation, at)))
        return sorted(found, key=lambda one: one[:2])


def _spaced(raw: str, text: str, at: int) -> str:
    """`raw` with a space to what stands beside text[at]."""
    before = " " if at and not text[at - 1].isspace() else ""
    after = " " if at < len(text) and not text[at].isspace() and text[at].isalnum() else ""
    return before + raw + after


def _woven(
    text: str, inserted: Sequence[tuple[int, str]], replaced: Sequence[tuple[int, int, str]], write: Callable[[str], str]
) -> str:
    """`text` with `inserted` before its characters and with others in the place of some; none in what is replaced."""
    pieces: list[str] = []
    done, waiting = 0, 0
    for start, end, raw in [*replaced, (len(text), len(text), "")]:
        if start < done:  # overlaps what stands there: behind it
            pieces.append(raw)
            continue
        while waiting < len(inserted) and (inserted[waiting][0] <= start):
            at = max(inserted[waiting][0], done)
            pieces += (write(text[done:at]), inserted[waiting][1])
            done, waiting = at, waiting + 1
        pieces += (write(text[done:start]), raw)
        done = end
    pieces += [raw for _, raw in inserted[waiting:]]
    return "".join(pieces)
