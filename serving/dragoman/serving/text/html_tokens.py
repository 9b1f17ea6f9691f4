"""HTML as tokens: where tags, comments and texts begin and end, as the HTML standard's tokenizer finds them.

Only positions matter here: everything that is not translated must be reproduced byte for byte, which a tree can't do (and
Python's own `html.parser` takes minutes for a hundred thousand unclosed tags). One pass without backtracking: linear, and
without recursion. Nothing is an error: what is unfinished at the end is kept as it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Generator

from dragoman.serving.text.attributes import STEPS_BETWEEN_PAUSES, read_attributes
from dragoman.serving.text.markup_tokens import Kind, MarkupToken
from dragoman.serving.text.word_list import names

__all__ = ["INLINE", "html_tokens"]

_CHARACTERS_BETWEEN_PAUSES = 4096


INLINE = names("""
    a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd mark meter nobr output progress q rp rt
    ruby s samp small span strike strong sub sup time tt u var wbr input
    c v lang
""")
"""The last three are those of WebVTT, whose cues are sent as HTML: a class, a voice and a language."""
_OF_CUES = names("b c i lang rt ruby u v")
_EMPTY = names("area base basefont br col embed frame hr img input keygen link meta param source track wbr")
_KEPT = names("""
    applet audio canvas code iframe kbd math noembed noframes object plaintext pre samp script style svg template textarea tt
    var video xmp
""")
_RAW = names("script style xmp iframe noembed noframes title textarea plaintext")
"""Elements that have no elements in them."""


def html_tokens(source: str) -> Generator[None, None, list[MarkupToken]]:
    """The tokens that make up `source`; yields so that the caller can do other work."""
    tokens: list[MarkupToken] = []
    at = text_start = steps = 0
    while (at := source.find("<", at)) >= 0:
        if (steps := steps + 1) % STEPS_BETWEEN_PAUSES == 0:
            yield
        token = yield from _token(source, at)
        if token is None:  # a sign like any other
            at += 1
            continue
        if text_start < at:
            tokens.append((yield from _text(source[text_start:at])))
        tokens.append(token)
        at += len(token.raw)
        if token.kind is Kind.OPEN and token.name in _RAW:
            end = _raw_end(source, at, token.name)
            if at < end:
                tokens.append((yield from _text(source[at:end])))
            at = end
        text_start = at
    if text_start < len(source):
        tokens.append((yield from _text(source[text_start:])))
    return tokens


def _text(raw: str) -> Generator[None, None, MarkupToken]:
    """A text with many entities is read in pieces; no piece crosses an &."""
    pieces, start = [], 0
    while (end := raw.find("&", start + _CHARACTERS_BETWEEN_PAUSES)) >= 0:
        pieces.append(html.unescape(raw[start:end]))
        start = end
        yield
    return MarkupToken(Kind.TEXT, raw, text="".join((*pieces, html.unescape(raw[start:]))))


def _token(source: str, at: int) -> Generator[None, None, MarkupToken | None]:
    """The token that begins with the < at this position."""
    following = source[at + 1 : at + 3]
    if following[:1].isascii() and following[:1].isalpha():
        return (yield from _opened(source, at))
    if following[:1] == "/" and following[1:].isascii() and following[1:].isalpha():
        read = yield from read_attributes(source, at, at + 2)
        if read.end < 0:
            return MarkupToken(Kind.ASIDE, source[at:])
        name = _name(read.name)
        return MarkupToken(Kind.CLOSE, source[at : read.end], name, is_block=name not in INLINE)
    if source.startswith("<!--", at):
        return MarkupToken(Kind.ASIDE, source[at : _behind(source, "-->", at + 2)])
    if following[:1] in {"!", "?"} or (following[:1] == "/" and following[1:]):
        return MarkupToken(Kind.ASIDE, source[at : _behind(source, ">", at)])
    return None


def _opened(source: str, at: int) -> Generator[None, None, MarkupToken]:
    read = yield from read_attributes(source, at, at + 1)
    if read.end < 0:
        return MarkupToken(Kind.ASIDE, source[at:])
    tag = _name(read.name)
    kind = Kind.ASIDE if tag in _EMPTY else Kind.OPEN
    return MarkupToken(
        kind,
        source[at : read.end],
        tag,
        is_block=tag not in INLINE,
        is_kept=kind is Kind.OPEN and (tag in _KEPT or read.asks_to_be_kept),
        attributes=() if read.asks_to_be_kept else read.texts,
    )


def _name(written: str) -> str:
    """Without the classes that WebVTT has behind a name: <c.red> is ended by </c>."""
    name = written.lower()
    before = name.partition(".")[0]
    return before if before in _OF_CUES else name


def _behind(source: str, mark: str, start: int) -> int:
    """The position after the next `mark`; the end of the source without one."""
    found = source.find(mark, start)
    return len(source) if found < 0 else found + len(mark)


def _raw_end(source: str, start: int, name: str) -> int:
    """Where the end tag of a raw text element begins."""
    if name == "plaintext":  # nothing ends it
        return len(source)
    found = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(source, start)
    return len(source) if found is None else found.start()
