"""Tokens: what HTML, XML and Markdown have in common once they are read. Joined they are the source."""

from __future__ import annotations

import html
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["HTML_ATTRIBUTE", "HTML_TEXT", "AttributeText", "Kind", "MarkupToken", "Style", "element_end"]


class Kind(Enum):
    """The kind of a piece of source."""

    TEXT = auto()
    OPEN = auto()
    CLOSE = auto()
    ATOM = auto()
    """Stands among words like a word: a code span, an entity that the document declares."""
    ASIDE = auto()
    """A comment, a declaration, an element without content: it stays where it is."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a block's text is written as source again, and whether its white space is significant."""

    write: Callable[[str], str]
    keeps_space: bool = False


@dataclass(frozen=True, slots=True)
class AttributeText:
    """raw[start:end] of a token is a text of its own, which may be translated; `text` is its unescaped value."""

    start: int
    end: int
    text: str
    style: Style
    is_quoted: bool = True
    is_always_translated: bool = False
    """Without being asked for: the description of an image in Markdown, which is written like a text."""


def _html_text(text: str) -> str:
    return html.escape(text, quote=False).replace("\u00a0", "&nbsp;")


def _html_attribute(text: str) -> str:
    return html.escape(text).replace("\u00a0", "&nbsp;")


HTML_TEXT = Style(_html_text)
HTML_ATTRIBUTE = Style(_html_attribute)


@dataclass(frozen=True, slots=True)
class MarkupToken:
    """`raw` is the source, byte for byte. `text`: what a text means, without entities.

    `is_block`: text does not go on across it. `is_kept`: an element whose content is not translated. `needs_words`: a tag
    that means nothing around no words, so that it is left out there. `is_note`: it begins an element in a sentence whose
    content is a text of its own.
    """

    kind: Kind
    raw: str
    name: str = ""
    text: str = ""
    is_block: bool = False
    is_kept: bool = False
    needs_words: bool = False
    is_note: bool = False
    style: Style = HTML_TEXT
    attributes: tuple[AttributeText, ...] = ()
    written: str = ""
    """Its source in a translated block, if that is not `raw`."""


_STEPS_BETWEEN_PAUSES = 150


def element_end(tokens: Sequence[MarkupToken], start: int) -> Generator[None, None, int]:
    """The index after the element that tokens[start] opens; the end of the document if nothing closes it."""
    name, depth = tokens[start].name, 0
    for at in range(start, len(tokens)):
        if (at - start) % _STEPS_BETWEEN_PAUSES == _STEPS_BETWEEN_PAUSES - 1:
            yield
        if tokens[at].name == name:
            depth += (tokens[at].kind is Kind.OPEN) - (tokens[at].kind is Kind.CLOSE)
            if depth == 0:
                return at + 1
    return len(tokens)
