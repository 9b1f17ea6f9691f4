"""Puts what was taken out of a part into its translation: tags around their words, placeholders for stand-ins."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dragoman.serving.text.document import Restored
from dragoman.serving.text.links import Link
from dragoman.serving.text.placeholder_slots import Atom, Slot, filled_slots
from dragoman.serving.text.places import Stretch
from dragoman.serving.text.placing import Placing

__all__ = ["BEGAN_BEFORE", "ENDS_LATER", "Restorer", "Tag", "woven"]

_KIND = re.compile(r"<[\w:.-]*|\W")
BEGAN_BEFORE, ENDS_LATER = -2, -3
"""Partners that stand in another part, or in another block."""


class Tag(NamedTuple):
    """`raw` stands before text[at]. `partner`: the index of its other half among the block's tags; -1 for none.

    `needs_words`: a pair that is left out where it would enclose nothing.
    """

    at: int
    raw: str
    partner: int = -1
    needs_words: bool = False

    def ends_a_pair(self, number: int) -> bool:
        """Whether the tag at this place among the block's is the second half of one."""
        return self.partner == BEGAN_BEFORE or 0 <= self.partner < number


@dataclass(frozen=True, slots=True)
class Restorer:
    """Puts the tags and atoms of a part into its translation."""

    source: str
    tags: Sequence[Tag]
    atoms: Sequence[Atom]
    write: Callable[[str], str]

    def __call__(self, translation: str, links: Sequence[Link]) -> Restored:
        placing = Placing(self.source, translation, links)
        slots = filled_slots(self.source, self.atoms, translation, links, placing)
        return woven(translation, self._placed(placing, len(translation), slots), slots, self.write)

    def _placed(self, placing: Placing, length: int, slots: Sequence[Slot]) -> list[tuple[int, str]]:
        """All tags with their places in the translation, from left to right.

        Pairs beside each other change places as their words do; where these became one word, one stands in the other. Pairs
        in each other stay so, clipped to the outer one. Tags without a partner here keep their order.
        """
        ranges, children = self._ranges(placing, length, slots), self._children()
        lone = list(itertools.accumulate(tag.partner == -1 for tag in self.tags))  # images and the like, up to each tag

        def in_target_order(tags: Sequence[int]) -> Iterator[int]:
            beside: list[int] = []
            outer = -1
            for tag in sorted(tags, key=lambda tag: ranges[tag][0]):
                if outer >= 0 and self._goes_into(tag, outer, ranges):
                    children[outer].append(tag)
                    continue
                beside.append(tag)
                outer = tag if self.tags[tag].partner >= 0 else outer
            return iter(beside)

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
            end = min(max(end, floor), ceiling)
            partner = self.tags[tag].partner
            is_empty = end == floor and self.tags[tag].needs_words and partner >= 0 and lone[tag] == lone[partner]
            placed.append((floor, "" if is_empty else self.tags[tag].raw))
            if partner >= 0:
                open_pairs.append((in_target_order(children[tag]), end, "" if is_empty else self.tags[partner].raw))
        return placed

    def _goes_into(self, tag: int, outer: int, ranges: Sequence[tuple[int, int]]) -> bool:
        """Whether a pair would enclose nothing beside another. None goes into one of its kind: links have no links."""
        start, end = ranges[tag]
        return (
            self.tags[tag].partner >= 0
            and not self.tags[tag].needs_words
            and ranges[outer][0] <= start < end <= ranges[outer][1]
            and _kind(self.tags[tag].raw) != _kind(self.tags[outer].raw)
        )

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

    def _ranges(self, placing: Placing, length: int, slots: Sequence[Slot]) -> list[tuple[int, int]]:
        """What of the translation each tag encloses; nothing, at its place, for one without a partner."""
        ranges: list[tuple[int, int]] = []
        floor = 0  # of tags without a partner
        by_atom = {slot.atom: slot for slot in slots}
        starts = [atom.start for atom in self.atoms]
        for tag in self.tags:
            span = self._pair_end(tag, len(self.source))
            found = None
            if span is not None and span[0] < span[1]:
                found = self._of_atoms(span, starts, by_atom)
                found = found or self._words_of(span, placing.range(*span) or placing.in_proportion(*span), placing.target)
            if found is None:
                at = self._point(placing, tag.at, (len(self.source), length))
                found = at, at
            if tag.partner < 0:
                floor = max(floor, found[0])
                found = floor, floor
            ranges.append(found)
        return ranges

    def _words_of(self, span: tuple[int, int], found: tuple[int, int] | None, target: str) -> tuple[int, int] | None:
        """The same without signs at an end where the source has none: <b>here</b>, not <b>, here.</b>"""
        if found is None:
            return None
        (start, end), first, last = found, self.source[span[0]], self.source[span[1] - 1]
        while first.isalnum() and start < end and not target[start].isalnum():
            start += 1
        while last.isalnum() and start < end and not target[end - 1].isalnum():
            end -= 1
        return (start, end) if start < end else found

    def _of_atoms(self, span: tuple[int, int], starts: Sequence[int], slots: Mapping[int, Slot]) -> tuple[int, int] | None:
        """Where the only atom stands that a pair encloses; None for a pair that encloses anything else."""
        number = bisect.bisect_left(starts, span[0])
        if number == len(self.atoms) or self.source[slice(*span)].strip() != self.source[slice(*self.atoms[number][:2])]:
            return None
        return slots[number].start, slots[number].end

    def _pair_end(self, tag: Tag, length: int) -> tuple[int, int] | None:
        """What the pair encloses of this part; None for a tag that is no beginning of one."""
        if tag.partner == ENDS_LATER:
            return tag.at, length
        return (tag.at, self.tags[tag.partner].at) if tag.partner >= 0 else None

    def _point(self, placing: Placing, at: int, whole: tuple[int, int]) -> int:
        return 0 if at <= 0 else whole[1] if at >= whole[0] else placing.point(at)


def _kind(raw: str) -> str:
    """What a tag begins with: its name, or a sign of Markdown."""
    found = _KIND.match(raw)
    return "" if found is None else found.group().lower()


def woven(text: str, inserted: Sequence[tuple[int, str]], slots: Sequence[Slot], write: Callable[[str], str]) -> Restored:
    """`text` with `inserted` before its characters and with others in the place of some; none in what is replaced."""
    weaving = _Weaving(text, write)
    waiting = 0
    for start, end, raw, _ in [*slots, Slot(len(text), len(text), "", -1)]:
        if start < weaving.done:  # overlaps what stands there: behind it
            weaving.insert(raw)
            continue
        while waiting < len(inserted) and (inserted[waiting][0] <= start):
            weaving.copy(inserted[waiting][0])
            weaving.insert(inserted[waiting][1])
            waiting += 1
        weaving.copy(start)
        weaving.replace(end, raw)
    for _, raw in inserted[waiting:]:
        weaving.insert(raw)
    return Restored("".join(weaving.pieces), weaving.stretches, weaving.kept)


class _Weaving:
    """A text that is written from left to right, and where its characters come to stand."""

    def __init__(self, text: str, write: Callable[[str], str]) -> None:
        self._text, self._write = text, write
        self.pieces: list[str] = []
        self.stretches: list[Stretch] = []
        self.kept: int | None = None  # from where on something is replaced
        self.done = self._length = 0  # of the text, and of what was written

    def insert(self, raw: str) -> None:
        self.pieces.append(raw)
        self._length += len(raw)

    def copy(self, end: int) -> None:
        """The text up to there."""
        if end > self.done:
            written = self._write(self._text[self.done : end])
            self.stretches.append(Stretch(self.done, end - self.done, self._length, len(written), written))
            self.insert(written)
            self.done = end

    def replace(self, end: int, raw: str) -> None:
        """`raw` takes the place of the text up to there."""
        if end > self.done and self.kept is None:
            self.kept = self.done
        if end > self.done and raw:
            place = self._length + len(raw) - len(raw.lstrip())
            self.stretches.append(Stretch(self.done, end - self.done, place, len(raw.strip())))
        self.insert(raw)
        self.done = end
