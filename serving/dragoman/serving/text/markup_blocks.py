"""Groups markup into blocks of text: what text continues across becomes tags and atoms of a block, all else is a gap."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dragoman.serving.text.attribute_texts import closing, opening, reference
from dragoman.serving.text.markup_tokens import HTML_TEXT, AttributeText, Kind, MarkupToken, Style, element_end
from dragoman.serving.text.places import Source

__all__ = ["Item", "MarkedText", "Opaque", "marked_texts"]

_SPACE = re.compile(r"[ \t\n\r\f]+")
_WORD = re.compile(r"[^\W\d_]")
_STEPS_BETWEEN_PAUSES = 100
_MOST_ITEMS = 512
"""A longer block ends there, in the middle of a sentence, because a block is processed without a pause."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A stretch of source among words that is not translated: an element that is kept."""

    raw: str


Item = str | Opaque | MarkupToken
"""An item of a block: text, a kept element, or a tag."""


@dataclass(slots=True)
class MarkedText:
    """A block: its items in order, their positions in the source, and for each tag the index of its partner."""

    items: list[Item] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    partners: dict[int, int] = field(default_factory=dict)
    style: Style = HTML_TEXT


class _Note(NamedTuple):
    """The content of a note: its blocks, and the source around them."""

    blocks: list[MarkedText]
    gaps: list[str]


def marked_texts(
    tokens: Sequence[MarkupToken], *, translates_attributes: bool = False, is_note: bool = False
) -> Generator[None, None, tuple[list[MarkedText], list[str], int]]:
    """The blocks of a document, the source around them (one gap more than blocks), and how many characters the tokens have.

    A translated attribute is a block before the one that its tag stands in (`attribute_texts`), and so is the content of a
    note. Notes and translated attributes of a note are none.
    """
    builder = _Builder(translates_attributes)
    at = steps = 0
    while at < len(tokens):
        if (steps := steps + 1) % _STEPS_BETWEEN_PAUSES == 0:
            yield
        token = tokens[at]
        if token.is_note and not is_note:
            end = yield from element_end(tokens, at)
            blocks, gaps, _ = yield from marked_texts(tokens[at + 1 : end - 1], is_note=True)
            builder.add_note(tokens[at:end], _Note(blocks, gaps))
            at = end
            continue
        raw = builder.with_references(token) if token.attributes else token.raw
        if token.kind is Kind.OPEN and token.is_kept:
            end = yield from element_end(tokens, at)
            rest = "".join([one.raw for one in tokens[at + 1 : end]])
            source = builder.source(raw + rest, len(token.raw) + len(rest))
            builder.add(source, None if token.is_block else Opaque(source.raw), token)
            at = end
        else:
            source = builder.source(raw, len(token.raw))
            builder.add(source, None if token.is_block else _item(token, raw), token)
            at += 1
        if len(builder.items) >= _MOST_ITEMS:
            builder.end_block()
            yield
    builder.end_block()
    return builder.blocks, [*builder.gaps, "".join(builder.gap)], builder.place


def _item(token: MarkupToken, raw: str) -> Item:
    if token.kind is Kind.TEXT:
        return token.text
    if token.kind is Kind.ATOM:
        return Opaque(token.written or raw)
    if raw is token.raw and not token.written:
        return token
    return dataclasses.replace(token, raw=raw if token.attributes else token.written, attributes=())


class _Builder:
    def __init__(self, translates_attributes: bool) -> None:
        self.blocks: list[MarkedText] = []
        self.gaps: list[str] = []
        self.gap: list[str] = []  # source since the last block
        self.items: list[tuple[Source, Item]] = []  # of the block that goes on
        self.place = 0  # of what is added next
        self._style: Style | None = None
        self._translates_attributes = translates_attributes
        self._attributes: list[tuple[int, AttributeText | _Note]] = []  # of the block that goes on
        self._own: list[tuple[int, AttributeText | _Note]] = []  # of the token that is added next
        self._named = 0

    def with_references(self, token: MarkupToken) -> str:
        """The source of a token with references instead of the attributes that are translated."""
        source, pieces, done = token.written or token.raw, list[str](), 0
        for text in token.attributes:
            if not (self._translates_attributes or text.is_always_translated):
                continue
            quote = "" if text.is_quoted else '"'
            pieces += (source[done : text.start], quote, reference(self._named), quote)
            self._own.append((self._named, text))
            self._named, done = self._named + 1, text.end
        return "".join((*pieces, source[done:])) if pieces else token.raw

    def source(self, raw: str, extent: int) -> Source:
        """Of what follows in the document."""
        self.place += extent
        return Source(raw, self.place - extent, extent)

    def add_note(self, tokens: Sequence[MarkupToken], note: _Note) -> None:
        """A note is in its sentence what a tag without a partner is."""
        whole = "".join([token.raw for token in tokens])
        raw = f"{tokens[0].raw}{reference(self._named)}{tokens[-1].raw}" if note.blocks else whole
        if note.blocks:
            self._own.append((self._named, note))
            self._named += 1
        aside = MarkupToken(Kind.ASIDE, raw)
        self.add(self.source(raw, len(whole)), aside, aside)

    def add(self, source: Source, item: Item | None, token: MarkupToken) -> None:
        """`item` of the block that goes on; without one the block ends, and its source stands behind it."""
        if item is None:
            self.end_block()
            self._attributes, self._own = self._own, []
            self._put_attributes()
            self.gap.append(source.raw)
            return
        if self._own:
            self._attributes += self._own
            self._own = []
        if self._style is None and token.kind is Kind.TEXT:
            self._style = token.style
        self.items.append((source, item))

    def _put_attributes(self) -> None:
        """The texts of attributes come before what their tags stand in."""
        for name, text in self._attributes:
            self.gap.append(opening(name))
            blocks, gaps = text if isinstance(text, _Note) else ([_of_attribute(text)], ["", ""])
            for block, gap in zip(blocks, gaps, strict=False):
                self.blocks.append(block)
                self.gaps.append("".join((*self.gap, gap)))
                self.gap = []
            self.gap = [gaps[-1], closing()]
        self._attributes = []

    def end_block(self) -> None:
        """What was collected is a block if there are words in it. What is around its text belongs to the gaps."""
        items, self.items = self.items, []
        style, self._style = self._style or HTML_TEXT, None
        self._put_attributes()
        if not any(isinstance(item, str) and _WORD.search(item) for _, item in items):
            self.gap += [source.raw for source, _ in items]
            return
        partners = _partners([item for _, item in items])
        worded = [at for at, (_, item) in enumerate(items) if _is_content(item)]
        first, last = worded[0], worded[-1]
        while True:  # a pair of which only one half would stand in the block stays whole
            inside = [at for at in range(first, last + 1) if at in partners and not first <= partners[at] <= last]
            if not inside:
                break
            first, last = (min([first, *(partners[at] for at in inside)]), max([last, *(partners[at] for at in inside)]))
        self.gap += [_around(source, item) for source, item in items[:first]]
        (raw, place, extent), text = items[first]
        if isinstance(text, str) and (stripped := _SPACE.match(raw)):
            self.gap.append(stripped.group())
            space = stripped.end()
            items[first] = Source(raw[space:], place + space, extent - space), text.lstrip(" \t\n\r\f")
        (raw, place, extent), text = items[last]
        after = ""
        if isinstance(text, str) and (space := len(raw) - len(raw.rstrip(" \t\n\r\f"))):
            after = raw[-space:]
            items[last] = Source(raw[:-space], place, extent - space), text.rstrip(" \t\n\r\f")
        sources, kept = zip(*items[first : last + 1], strict=True)
        own = {at - first: partner - first for at, partner in partners.items() if first <= at <= last}
        self.blocks.append(MarkedText(list(kept), list(sources), own, style))
        self.gaps.append("".join(self.gap))
        self.gap = [after, *(_around(source, item) for source, item in items[last + 1 :])]


def _of_attribute(text: AttributeText) -> MarkedText:
    return MarkedText([text.text.strip()], [Source("")], {}, text.style)


def _around(source: Source, item: Item) -> str:
    """What stands before or behind the text of a block, in the translation of it."""
    return source.raw if isinstance(item, str) else item.raw


def _is_content(item: Item) -> bool:
    return isinstance(item, Opaque) or (isinstance(item, str) and bool(_SPACE.sub("", item)))


def _partners(items: Sequence[Item]) -> dict[int, int]:
    """The index of the matching tag of each tag, both ways. Tags that are not properly nested have no partner."""
    partners: dict[int, int] = {}
    open_tags: list[int] = []
    open_names: dict[str, int] = {}  # how many are open
    for at, item in enumerate(items):
        if not isinstance(item, MarkupToken):
            continue
        if item.kind is Kind.OPEN:
            open_tags.append(at)
            open_names[item.name] = open_names.get(item.name, 0) + 1
        elif item.kind is Kind.CLOSE and open_names.get(item.name):
            while True:
                opened = open_tags.pop()
                name = _name(items[opened])
                open_names[name] -= 1
                if name == item.name:
                    break
            partners[opened], partners[at] = at, opened
    return partners


def _name(item: Item) -> str:
    return item.name if isinstance(item, MarkupToken) else ""
