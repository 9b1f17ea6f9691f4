"""The formats that a text may have, as blocks to translate."""

from __future__ import annotations

import html
import re
from collections.abc import Generator
from typing import Literal

from dragoman.serving.text.blocks import Blocks
from dragoman.serving.text.html_tokens import html_tokens
from dragoman.serving.text.markup_blocks import MarkedText, Opaque, marked_texts
from dragoman.serving.text.protection import Draft, Protection

__all__ = ["TextFormat", "blocks_of"]

TextFormat = Literal["text", "html"]

_SPACE = re.compile(r"[ \t\n\r\f]+")
_LONG = 100
"""Items. Nothing else is done between two pauses than the drawing up of one such block."""


def blocks_of(text: str, text_format: TextFormat, protection: Protection) -> Generator[None, None, Blocks]:
    """The blocks of a text; yields where a caller with other things to do should do them."""
    if text_format == "text":
        return Blocks(((yield from protection.block(Draft.of_text(text))),), ("", ""))
    tokens = yield from html_tokens(text)
    texts, gaps = yield from marked_texts(tokens)
    blocks = []
    for number, marked in enumerate(texts):
        if number % 20 == 19 or len(marked.items) > _LONG:
            yield
        draft = _draft(marked)
        blocks.append((yield from protection.block(draft)))
    return Blocks(tuple(blocks), tuple(gaps))


def _draft(marked: MarkedText) -> Draft:
    """Any white space is one space, as HTML shows it."""
    draft = Draft(write=_escaped)
    places: dict[int, int] = {}  # of items among the draft's tags
    for at, item in enumerate(marked.items):
        if isinstance(item, str):
            shown = _SPACE.sub(" ", item)
            draft.add_text(shown[1:] if shown.startswith(" ") and draft.ends_in_space else shown)
        elif isinstance(item, Opaque):
            draft.add_opaque(item.raw)
        else:
            places[at] = draft.add_tag(item.raw)
    draft.pair({places[at]: places[partner] for at, partner in marked.partners.items()})
    return draft


def _escaped(text: str) -> str:
    return html.escape(text, quote=False).replace("\u00a0", "&nbsp;")
