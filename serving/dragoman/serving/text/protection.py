"""Protects what must not reach the model, and enforces terms: makes blocks, and search options of their parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from dragoman.bundle.tokenizer import Tokenizer
from dragoman.search import DecodingOptions
from dragoman.search.phrase_table import Phrases
from dragoman.serving.text.capitals import Capitals, without
from dragoman.serving.text.document import Block, PlainBlock
from dragoman.serving.text.glossary import Glossary
from dragoman.serving.text.marked import MarkedBlock
from dragoman.serving.text.origin import Origin, Replaced
from dragoman.serving.text.placeholder_slots import Atom
from dragoman.serving.text.placeholders import is_aside, placeholder_spans
from dragoman.serving.text.places import Source, Stretch
from dragoman.serving.text.restoring import Tag
from dragoman.serving.text.stand_ins import StandIns
from dragoman.serving.text.term_places import PartTerms, Term
from dragoman.serving.text.unread_words import UnreadWords

__all__ = ["BEAM_WITH_TERMS", "Draft", "Protection"]

BEAM_WITH_TERMS = 4
"""Parts with terms or placeholders are searched with at least so many rows."""
_MOST_PHRASES = 24
_SPANS_BETWEEN_PAUSES = 200
_LOOKED_THROUGH = 4096
"""Characters of a block that are searched for terms between two pauses."""
_OPAQUE = "\ufffc"
_LONGEST_JOINT = 3
_JOINT = re.compile(rf"[-+/:=|&,;.–×]{{1,{_LONGEST_JOINT}}}")
"""Between two that are one: Ctrl+C, %d/%d."""


@dataclass(slots=True)
class Draft:
    """A block as its format sees it: text, tags at places of it, and what stands among it, for one character each."""

    write: Callable[[str], str] = str
    knows_places: bool = True
    pieces: list[str] = field(default_factory=list)
    sources: list[Stretch] = field(default_factory=list)
    tags: list[tuple[int, str, bool]] = field(default_factory=list)
    opaque: list[tuple[int, str]] = field(default_factory=list)
    partners: Mapping[int, int] = field(default_factory=dict)
    length: int = 0
    ends_in_space: bool = True

    @classmethod
    def of_text(cls, text: str) -> Draft:
        draft = cls()
        draft.add_text(text, Source(text, 0, len(text)))
        return draft

    def add_text(self, text: str, source: Source) -> None:
        if text:
            if self.knows_places and source.place >= 0:
                self.sources.append(Stretch(self.length, len(text), source.place, source.extent, source.raw))
            self.pieces.append(text)
            self.length += len(text)
            self.ends_in_space = text[-1].isspace()

    def add_opaque(self, raw: str, source: Source) -> None:
        self.opaque.append((self.length, raw))
        if self.knows_places:
            self.sources.append(Stretch(self.length, 1, source.place, source.extent))
        self.add_text(_OPAQUE, Source(""))

    def add_tag(self, raw: str, *, needs_words: bool = False) -> int:
        """Add a tag; returns its index."""
        self.tags.append((self.length, raw, needs_words))
        return len(self.tags) - 1

    def end_tag_in_space(self) -> None:
        """The last tag is followed by a space, which the text already has before it."""
        at, raw, needs_words = self.tags[-1]
        self.tags[-1] = at, raw + " ", needs_words

    def pair(self, partners: Mapping[int, int]) -> None:
        self.partners = partners


def _joined(
    spans: Sequence[tuple[int, int, str]], text: str, draft: Draft
) -> Generator[None, None, list[tuple[int, int, str]]]:
    """With those as one that only signs stand between: models lose the signs."""
    tags, found = {place for place, _, _ in draft.tags}, list[tuple[int, int, str]]()
    for number, (start, end, raw) in enumerate(spans):
        if number % _SPANS_BETWEEN_PAUSES == _SPANS_BETWEEN_PAUSES - 1:
            yield
        before = found[-1] if found else (0, 0, "")
        between = text[max(before[1], start - _LONGEST_JOINT - 1) : start]
        if found and _JOINT.fullmatch(between) and tags.isdisjoint(range(before[1], start + 1)):
            found[-1] = before[0], end, f"{before[2]}{draft.write(between)}{raw}"
        else:
            found.append((start, end, raw))
    return found


class Protection:
    """A request's settings: whether placeholders are kept, and words that the model can't read (`unread`), which terms are
    enforced, and whether capitals are lowered.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stand_ins: StandIns,
        decoding: DecodingOptions,
        *,
        keeps_placeholders: bool = False,
        keeps_places: bool = False,
        glossary: Glossary | None = None,
        capitals: Capitals | None = None,
        unread: UnreadWords | None = None,
        can_enforce: bool = True,
        places_terms: bool = True,
        widest: int = BEAM_WITH_TERMS,
    ) -> None:
        self._tokenizer, self._stand_ins, self._decoding = tokenizer, stand_ins, decoding
        self._keeps_placeholders, self._glossary, self._capitals = keeps_placeholders, glossary, capitals
        self._unread = unread
        self._keeps_places, self._places_terms = keeps_places, places_terms
        self._can_enforce, self._widest = can_enforce and not decoding.sampling, widest

    def block(self, draft: Draft) -> Generator[None, None, Block]:
        """The block to translate; yields so that the caller can do other work."""
        text = "".join(draft.pieces)
        spans = yield from self._spans(text, draft)
        capitals = self._capitals if self._capitals is not None and self._capitals.may_be_in(text) else None
        if not (spans or draft.tags or self._glossary or capitals) and draft.write is str:
            return PlainBlock(text)
        source, replaced = text, list[Replaced]()
        partners = draft.partners
        tags = [Tag(at, raw, partners.get(one, -1), needs_words) for one, (at, raw, needs_words) in enumerate(draft.tags)]
        text, atoms, places = yield from self._with_stand_ins(text, spans, tags, replaced)
        tags = [tag._replace(at=at) for tag, at in zip(tags, places, strict=True)]
        origin = Origin(source, draft.sources, replaced) if self._keeps_places else None
        return MarkedBlock(
            text, tags, atoms, write=draft.write, options=self._part_options, capitals=capitals, origin=origin
        )

    def _spans(self, text: str, draft: Draft) -> Generator[None, None, list[tuple[int, int, str]]]:
        """The spans that stand-ins replace, and their source."""
        found = [(at, at + 1, raw) for at, raw in draft.opaque]
        if self._keeps_placeholders:
            opaque, tags = {start for start, _, _ in found}, {place for place, _, _ in draft.tags}
            for span in placeholder_spans(text, tags):
                if span is None:
                    yield
                    continue
                start, end = span
                if opaque.isdisjoint(range(start, end)):
                    found.append((start, end, draft.write(text[start:end])))
        if self._unread is not None and not text.isascii():
            others = without(text, [(start, end) for start, end, _ in sorted(found)]) if found else text
            for span in self._unread.spans(others, {place for place, _, _ in draft.tags}):
                if span is None:
                    yield
                elif not self._has_term(text[slice(*span)]):
                    found.append((*span, draft.write(text[slice(*span)])))
        return (yield from _joined(sorted(found), text, draft))

    def _has_term(self, text: str) -> bool:
        """Whether the glossary translates any of it."""
        return self._glossary is not None and bool(self._glossary.find(text))

    def _with_stand_ins(
        self, text: str, spans: Sequence[tuple[int, int, str]], tags: Sequence[Tag], replaced: list[Replaced]
    ) -> Generator[None, None, tuple[str, list[Atom], list[int]]]:
        """The text with stand-ins for `spans`, which are noted in `replaced`, and where the tags are then."""
        places = [tag.at for tag in tags]
        free = list(self._stand_ins.for_text(self._with_terms(text))) if spans else []
        pieces: list[str] = []
        atoms: list[Atom] = []
        moved: list[int] = []
        done = shift = next_place = 0
        for number, (start, end, raw) in enumerate(spans):
            if number % _SPANS_BETWEEN_PAUSES == _SPANS_BETWEEN_PAUSES - 1:
                yield
            while next_place < len(places) and places[next_place] <= start:
                moved.append(places[next_place] + shift)
                next_place += 1
            stand_in = free[number % len(free)] if free else text[start:end]
            touches = start > 0 and (text[start - 1].isalnum() or start == done)
            before = " " if touches else ""  # a stand-in is a word of its own
            behind = " " if text[end : end + 1].isalnum() else ""
            pieces += (text[done:start], before, stand_in, behind)
            begin = start + shift + len(before)
            atoms.append(Atom(begin, begin + len(stand_in), raw, len(before), len(behind), is_aside(text[start:end])))
            replaced.append(Replaced(begin - len(before), len(before) + len(stand_in) + len(behind), start, end))
            while next_place < len(places) and places[next_place] == end and tags[next_place].partner < next_place:
                moved.append(begin + len(stand_in))  # before the space, but for the beginning of a pair
                next_place += 1
            shift = begin + len(stand_in) + len(behind) - end
            done = end
        moved += [place + shift for place in places[next_place:]]
        return "".join((*pieces, text[done:])), atoms, moved

    def _with_terms(self, text: str) -> str:
        """The text and the terms that its translation must contain. Stand-ins are not matched as words."""
        if self._glossary is None or len(text) > _LOOKED_THROUGH:
            return text
        terms = self._glossary.find(text)
        return " ".join((text, *(term.target for term in terms if term.target is not None)))

    def _part_options(self, text: str, stand_ins: Sequence[str]) -> tuple[Mapping[str, object] | None, PartTerms | None]:
        matches = self._glossary.find(text) if self._glossary is not None else []
        terms = [Term(match.start, match.end, match.target, match.inflects) for match in matches if match.target is not None]
        everywhere = () if self._glossary is None else self._glossary.forbidden
        forbidden = [*everywhere, *(target for match in matches for target in match.forbidden)]
        own = [one for one in stand_ins if self._can_enforce and self._stand_ins.has(one)]
        options: dict[str, object] = {}
        # Endings of stand-ins are corrected when their placeholders are put back.
        if phrases := self._spelled([*own, *(term.target for term in terms if term.inflects)]):
            options["phrases"] = (*self._decoding.phrases, *phrases)
        if whole := self._spelled([term.target for term in terms if not term.inflects], _MOST_PHRASES - len(phrases)):
            options["terms"] = (*self._decoding.terms, *whole)
        if options:
            options["beam_size"] = max(self._decoding.beam_size, min(BEAM_WITH_TERMS, self._widest))
        if forbidden:
            words = (tuple(self._tokenizer.encode_target(target)) for target in dict.fromkeys(forbidden))
            options["bad_words"] = (*self._decoding.bad_words, *filter(None, words))
        placed = PartTerms(text, terms[:_MOST_PHRASES], stand_ins) if terms and self._places_terms else None
        return options or None, placed

    def _spelled(self, targets: Sequence[str], most: int = _MOST_PHRASES) -> Phrases:
        """The possible token sequences for each of these words, computed once."""
        return tuple(filter(None, dict.fromkeys(map(self._alternatives, targets))))[:most]

    def _alternatives(self, target: str) -> tuple[tuple[int, ...], ...]:
        """The token sequences of a target term, also of its form at the beginning of a sentence."""
        spellings = dict.fromkeys((target, target[:1].upper() + target[1:]))
        return tuple(tokens for spelling in spellings if (tokens := tuple(self._tokenizer.encode_target(spelling))))
