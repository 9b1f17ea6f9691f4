"""Markup as blocks of text: what text goes on across becomes tags and atoms of a block, all else stays as it is."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from dragoman.serving.text.markup_tokens import Kind, MarkupToken

__all__ = ["MarkedText", "Opaque", "marked_texts"]

_SPACE = re.compile(r"[ \t\n\r\f]+")
_WORD = re.compile(r"[^\W\d_]")
_STEPS_BETWEEN_PAUSES = 200
_MOST_ITEMS = 512
"""A block of more ends there, in the middle of a sentence: what is done for one block is done without a pause."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A stretch of source that is not translated but stands among words: an element that is kept."""

    raw: str


Item = str | Opaque | MarkupToken
"""Of a block: text, what stands among it, and tags."""


@dataclass(slots=True)
class MarkedText:
    """A block: its items in order, and for each tag its partner's place among them."""

    items: list[Item] = field(default_factory=list)
    partners: dict[int, int] = field(default_factory=dict)


def marked_texts(tokens: Sequence[MarkupToken]) -> Generator[None, None, tuple[list[MarkedText], list[str]]]:
    """The blocks of a document, and the source around them: one gap more than blocks."""
    builder = _Builder()
    at = steps = 0
    while at < len(tokens):
        if (steps := steps + 1) % _STEPS_BETWEEN_PAUSES == 0:
            yield
        token = tokens[at]
        if token.kind is Kind.OPEN and token.is_kept:
            end = yield from _end_of(tokens, at)
            raw = "".join(one.raw for one in tokens[at:end])
            if token.is_block:
                builder.end_block()
                builder.gap.append(raw)
            else:
                builder.items.append((raw, Opaque(raw)))
            at = end
        elif token.is_block:
            builder.end_block()
            builder.gap.append(token.raw)
            at += 1
        else:
            builder.items.append((token.raw, token.text if token.kind is Kind.TEXT else token))
            at += 1
        if len(builder.items) >= _MOST_ITEMS:
            builder.end_block()
            yield
    builder.end_block()
    return builder.blocks, [*builder.gaps, "".join(builder.gap)]


def _end_of(tokens: Sequence[MarkupToken], start: int) -> Generator[None, None, int]:
    """Behind the element that tokens[start] opens; the end of the document where nothing closes it."""
    name, depth = tokens[start].name, 0
    for at in range(start, len(tokens)):
        if (at - start) % _STEPS_BETWEEN_PAUSES == _STEPS_BETWEEN_PAUSES - 1:
            yield
        if tokens[at].name == name:
            depth += (tokens[at].kind is Kind.OPEN) - (tokens[at].kind is Kind.CLOSE)
            if depth == 0:
                return at + 1
    return len(tokens)


class _Builder:
    def __init__(self) -> None:
        self.blocks: list[MarkedText] = []
        self.gaps: list[str] = []
        self.gap: list[str] = []  # source since the last block
        self.items: list[tuple[str, Item]] = []  # of the block that goes on, with their source

    def end_block(self) -> None:
        """What was collected is a block if there are words in it. What is around its text belongs to the gaps."""
        items, self.items = self.items, []
        if not any(isinstance(item, str) and _WORD.search(item) for _, item in items):
            self.gap += [raw for raw, _ in items]
            return
        partners = _partners([item for _, item in items])
        worded = [at for at, (_, item) in enumerate(items) if _is_content(item)]
        first, last = worded[0], worded[-1]
        while True:  # a pair of which only one half would stand in the block stays whole
            inside = [at for at in range(first, last + 1) if at in partners and not first <= partners[at] <= last]
            if not inside:
                break
            first, last = (min([first, *(partners[at] for at in inside)]), max([last, *(partners[at] for at in inside)]))
        self.gap += [raw for raw, _ in items[:first]]
        raw_first, text = items[first]
        if isinstance(text, str) and (stripped := _SPACE.match(raw_first)):
            self.gap.append(stripped.group())
            items[first] = (raw_first[stripped.end() :], text.lstrip(" \t\n\r\f"))
        raw_last, text = items[last]
        after = ""
        if isinstance(text, str) and (trailing := len(raw_last) - len(raw_last.rstrip(" \t\n\r\f"))):
            after = raw_last[-trailing:]
            items[last] = (raw_last[:-trailing], text.rstrip(" \t\n\r\f"))
        kept = [item for _, item in items[first : last + 1]]
        own = {at - first: partner - first for at, partner in partners.items() if first <= at <= last}
        self.blocks.append(MarkedText(kept, own))
        self.gaps.append("".join(self.gap))
        self.gap = [after, *(raw for raw, _ in items[last + 1 :])]


def _is_content(item: Item) -> bool:
    return isinstance(item, Opaque) or (isinstance(item, str) and bool(_SPACE.sub("", item)))


def _partners(items: Sequence[Item]) -> dict[int, int]:
    """Tags that open and close the same element, both ways. What is not nested has no partner."""
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
