"""The formats of texts, each read into blocks to translate."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from typing import Literal

from dragoman.serving.text.document import Blocks
from dragoman.serving.text.html_tokens import html_tokens
from dragoman.serving.text.markdown_tokens import markdown_tokens
from dragoman.serving.text.markup_blocks import Item, MarkedText, Opaque, marked_texts
from dragoman.serving.text.markup_tokens import Kind, MarkupToken
from dragoman.serving.text.protection import Draft, Protection
from dragoman.serving.text.restoring import BEGAN_BEFORE
from dragoman.serving.text.xml_tokens import xml_tokens

__all__ = ["TextFormat", "blocks_of"]

TextFormat = Literal["text", "html", "xml", "markdown"]

_READERS: Mapping[str, Callable[[str], Generator[None, None, list[MarkupToken]]]] = {
    "html": html_tokens,
    "xml": xml_tokens,
    "markdown": markdown_tokens,
}
_SPACE = re.compile(r"[ \t\n\r\f]+")
_LONG = 100
"""In items: between two pauses at most one block of this size is created."""


def blocks_of(
    text: str, text_format: TextFormat, protection: Protection, *, translates_attributes: bool = False
) -> Generator[None, None, Blocks]:
    """The blocks of a text; yields so that the caller can do other work."""
    if text_format == "text":
        return Blocks(((yield from protection.block(Draft.of_text(text))),), ("", ""))
    tokens = yield from _READERS[text_format](text)
    texts, gaps, length = yield from marked_texts(tokens, translates_attributes=translates_attributes)
    blocks = []
    for number, marked in enumerate(texts):
        if number % 20 == 19 or len(marked.items) > _LONG:
            yield
        draft = _draft(marked, knows_places=length == len(text))  # XLIFF has its segments twice
        blocks.append((yield from protection.block(draft)))
    return Blocks(tuple(blocks), tuple(gaps))


def _draft(marked: MarkedText, *, knows_places: bool) -> Draft:
    """White space is collapsed into one space, as browsers show it, unless it is significant."""
    style = marked.style
    draft = Draft(write=style.write, knows_places=knows_places)
    places: dict[int, int] = {}  # of items among the draft's tags
    is_behind_aside = False  # with nothing but tags between
    for at, (item, source) in enumerate(zip(marked.items, marked.sources, strict=True)):
        if isinstance(item, str):
            shown = item if style.keeps_space else _SPACE.sub(" ", item)
            is_double = shown.startswith(" ") and draft.ends_in_space and not style.keeps_space
            if is_double and is_behind_aside:
                draft.end_tag_in_space()  # an image between two words
            draft.add_text(shown[1:] if is_double else shown, source)
        elif isinstance(item, Opaque):
            draft.add_opaque(item.raw, source)
        else:
            places[at] = draft.add_tag(item.raw, needs_words=item.needs_words)
        is_behind_aside = isinstance(item, MarkupToken) and (is_behind_aside or item.kind is Kind.ASIDE)
    draft.pair({place: places.get(marked.partners.get(at, -1), _beyond(marked.items[at])) for at, place in places.items()})
    return draft


def _beyond(item: Item) -> int:
    """Instead of a partner. In Markdown, unlike in HTML, an end without one always closes what began in another block."""
    is_end = isinstance(item, MarkupToken) and item.kind is Kind.CLOSE and item.needs_words
    return BEGAN_BEFORE if is_end else -1
