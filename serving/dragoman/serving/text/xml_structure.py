"""Decides which elements of an XML document are structure, and which are part of running text."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence

from dragoman.serving.text.attributes import STEPS_BETWEEN_PAUSES
from dragoman.serving.text.html_tokens import INLINE
from dragoman.serving.text.markup_tokens import Kind, MarkupToken
from dragoman.serving.text.word_list import names

__all__ = ["local_name", "structured"]

_BLOCKS = names("""
    address article aside blockquote body br caption dd div dl dt entry figcaption figure footer h1 h2 h3 h4
    h5 h6 head header hr html itemizedlist lb li listitem main nav ol orderedlist p para section simpara table
    tbody td text th thead title tr ul variablelist
""")
"""Names that mean structure wherever they stand (XHTML, DocBook, DITA, TEI)."""
_NOTES = names("fn footnote")
"""Of DITA and DocBook. They have paragraphs, but the sentence that they stand in goes on behind them."""


@dataclasses.dataclass(slots=True)
class _Element:
    start: int
    parent: int  # among the elements; -1 for none
    end: int = -1
    has_text: bool = False
    is_inline: bool = False


def structured(tokens: Sequence[MarkupToken]) -> Generator[None, None, list[MarkupToken]]:
    """The same tokens; tags of structure are blocks. Elements are inline in one that has text, and in inline ones."""
    elements, owners = yield from _elements(tokens)
    for number, element in enumerate(elements):
        if number % STEPS_BETWEEN_PAUSES == STEPS_BETWEEN_PAUSES - 1:
            yield
        parent = elements[element.parent] if element.parent >= 0 else None
        element.is_inline = _is_inline(tokens[element.start], parent, tokens)
    found: list[MarkupToken] = []
    for at, token in enumerate(tokens):
        if at % STEPS_BETWEEN_PAUSES == STEPS_BETWEEN_PAUSES - 1:
            yield
        if _is_note(at, elements, owners, tokens):
            found.append(dataclasses.replace(token, is_note=True))
            continue
        is_block = token.is_block or _ends_text(at, tokens, elements[owners[at]] if owners[at] >= 0 else None)
        found.append(dataclasses.replace(token, is_block=True) if is_block and not token.is_block else token)
    return found


def _elements(tokens: Sequence[MarkupToken]) -> Generator[None, None, tuple[list[_Element], list[int]]]:
    """All elements, and of each token the number of its own or of the one that it stands in; -1 for none."""
    elements: list[_Element] = []
    owners = [-1] * len(tokens)
    open_elements: list[int] = []
    open_names: dict[str, int] = {}
    for at, token in enumerate(tokens):
        if at % STEPS_BETWEEN_PAUSES == STEPS_BETWEEN_PAUSES - 1:
            yield
        parent = owners[at] = open_elements[-1] if open_elements else -1
        if token.kind is Kind.ATOM or (token.kind is Kind.TEXT and not token.text.isspace()):
            if parent >= 0:
                elements[parent].has_text = True
        elif token.kind is Kind.OPEN:
            owners[at] = len(elements)
            open_elements.append(len(elements))
            open_names[token.name] = open_names.get(token.name, 0) + 1
            elements.append(_Element(at, parent))
        elif token.kind is Kind.CLOSE and open_names.get(token.name):
            name = ""
            while name != token.name:
                owners[at] = open_elements.pop()
                name = tokens[elements[owners[at]].start].name
                open_names[name] -= 1
            elements[owners[at]].end = at
    return elements, owners


def _ends_text(at: int, tokens: Sequence[MarkupToken], owner: _Element | None) -> bool:
    """Whether a tag is structure."""
    token = tokens[at]
    if token.kind is Kind.OPEN:
        return owner is None or not owner.is_inline
    if token.kind is Kind.CLOSE:
        return owner is None or owner.end != at or not owner.is_inline
    return token.kind is Kind.ASIDE and token.name != "" and not _is_inline(token, owner, tokens)


def _is_note(at: int, elements: Sequence[_Element], owners: Sequence[int], tokens: Sequence[MarkupToken]) -> bool:
    """Whether a note begins there, in a sentence."""
    token = tokens[at]
    if token.kind is not Kind.OPEN or token.is_kept or local_name(token) not in _NOTES:
        return False
    note = elements[owners[at]]
    parent = elements[note.parent] if note.parent >= 0 else None
    return note.end >= 0 and parent is not None and (parent.has_text or parent.is_inline)


def _is_inline(token: MarkupToken, parent: _Element | None, tokens: Sequence[MarkupToken]) -> bool:
    name = local_name(token)
    if parent is None or name in _BLOCKS:
        return False
    return parent.has_text or parent.is_inline or (name in INLINE and local_name(tokens[parent.start]) in _BLOCKS)


def local_name(token: MarkupToken) -> str:
    """Without a prefix, in small letters."""
    return token.name.rpartition(":")[2].lower()
