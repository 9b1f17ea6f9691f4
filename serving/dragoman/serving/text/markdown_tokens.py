"""Markdown as tokens: structure and running text, byte for byte.

Parsers for rendering do not report the positions of inline elements in the source, and can not pause; this one does both.
The tests use `markdown-it-py` to check that the structure is the same before and after a translation.
"""

from __future__ import annotations

from collections.abc import Generator

from dragoman.serving.text.html_tokens import html_tokens
from dragoman.serving.text.markdown_blocks import MarkdownBlock, markdown_blocks
from dragoman.serving.text.markdown_inline import inline_tokens
from dragoman.serving.text.markdown_text import MARKDOWN_CELL, MARKDOWN_TEXT
from dragoman.serving.text.markup_tokens import Kind, MarkupToken

__all__ = ["markdown_tokens"]

_BLOCKS_BETWEEN_PAUSES = 20


def markdown_tokens(source: str) -> Generator[None, None, list[MarkupToken]]:
    """The tokens that make up `source`; yields so that the caller can do other work."""
    blocks, labels = yield from markdown_blocks(source)
    tokens: list[MarkupToken] = []
    done = 0
    steps = 0
    for block in blocks:
        if block.kind == "kept" or not block.spans:
            continue
        parts = [[span] for span in block.spans] if block.kind == "cells" else [block.spans]
        for spans in parts:
            start, end = spans[0][0], spans[-1][1]
            if (steps := steps + 1) % _BLOCKS_BETWEEN_PAUSES == 0:
                yield
            if start >= end:
                continue
            tokens.append(MarkupToken(Kind.ASIDE, source[done:start], is_block=True))
            if block.kind == "html":
                tokens += yield from _html(source, block)
            else:
                style = MARKDOWN_CELL if block.kind == "cells" else MARKDOWN_TEXT
                tokens += yield from inline_tokens(source, spans, labels, style)
            done = end
    tokens.append(MarkupToken(Kind.ASIDE, source[done:], is_block=True))
    return tokens


def _html(source: str, block: MarkdownBlock) -> Generator[None, None, list[MarkupToken]]:
    """Lines of HTML. In a quotation, whose marks are between them, they are kept."""
    start, end = block.spans[0][0], block.spans[-1][1]
    between = (source[one[1] : other[0]] for one, other in zip(block.spans, block.spans[1:], strict=False))
    if any(text.strip() for text in between):
        return [MarkupToken(Kind.ASIDE, source[start:end], is_block=True)]
    return (yield from html_tokens(source[start:end]))
