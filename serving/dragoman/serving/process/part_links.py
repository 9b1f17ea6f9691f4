"""The links between a part of a text and its translations, once the engine knows what their tokens look at."""

from __future__ import annotations

from dragoman.bundle.languages import LanguageTokens
from dragoman.bundle.tokenizer import Tokenizer
from dragoman.errors import ServerError
from dragoman.serving.engine import Sequence
from dragoman.serving.text.aligning import Side, links_between
from dragoman.serving.text.document import Document
from dragoman.serving.text.links import Link

__all__ = ["part_links"]


def part_links(
    tokenizer: Tokenizer, around: LanguageTokens, document: Document, position: int, sequence: Sequence
) -> tuple[tuple[Link, ...], ...]:
    """Of each hypothesis; in characters of the part and of its translation."""
    lead, text = len(document.lead), document.parts[position].text
    own = tokenizer.source_spans(document.lead + text)
    spans = [(max(begin - lead, 0), max(end - lead, 0)) for begin, end in own]
    spans = [*[(0, 0)] * len(around.source_prefix), *spans, *[(0, 0)] * len(around.source_suffix)]
    if len(spans) != len(sequence.source):
        raise ServerError(f"{len(spans)} places of {len(sequence.source)} tokens")
    source = Side(text, spans)
    return tuple(
        links_between(source, Side(tokenizer.decode(one.tokens), tokenizer.target_spans(one.tokens)), one.alignment)
        for one in sequence.forced
    )
