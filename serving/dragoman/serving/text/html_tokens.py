"""HTML as tokens: where tags, comments and texts begin and end, as the HTML standard's tokenizer finds them.

Only places matter here: whatever is not translated must come out byte for byte, which a tree does not tell (and Python's own
`html.parser` takes minutes for a hundred thousand characters that nobody closes). One pass, no way back: linear, and without
recursion. Nothing is an error: what is not finished at the end is kept as it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Generator

from dragoman.serving.text.markup_tokens import Kind, MarkupToken

__all__ = ["html_tokens"]

_STEPS_BETWEEN_PAUSES = 200
_CHARACTERS_BETWEEN_PAUSES = 4096


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


_INLINE = _names("""
    a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark meter nobr output progress q rp rt
    ruby s samp small span strike strong sub sup time tt u var wbr input
""")
_EMPTY = _names("area base basefont br col embed frame hr img input keygen link meta param source track wbr")
_KEPT = _names("""
    applet audio canvas code iframe kbd math noembed noframes object pre samp script style svg template textarea tt var
    video xmp
""")
_RAW = _names("script style xmp iframe noembed noframes title textarea")
"""Elements that have no elements in them."""

_ASKING = _names("translate class")

_TAG_NAME = re.compile(r"[^\s/>]+")
_BETWEEN_ATTRIBUTES = re.compile(r"[\s/]*")
_ATTRIBUTE_NAME = re.compile(r"=?[^\s/>=]*")
_EQUALS = re.compile(r"\s*=\s*")
_UNQUOTED = re.compile(r"[^\s>]*")

_Attributes = dict[str, str]
"""Those that may ask to keep an element; of several with one name the first counts."""


def html_tokens(source: str) -> Generator[None, None, list[MarkupToken]]:
    """The tokens that make up `source`; yields where a caller with other things to do should do them."""
    tokens: list[MarkupToken] = []
    at = text_start = steps = 0
    while (at := source.find("<", at)) >= 0:
        if (steps := steps + 1) % _STEPS_BETWEEN_PAUSES == 0:
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
    """A text of many entities is read in pieces; none goes on across an &."""
    pieces, start = [], 0
    while (end := raw.find("&", start + _CHARACTERS_BETWEEN_PAUSES)) >= 0:
        pieces.append(html.unescape(raw[start:end]))
        start = end
        yield
    return MarkupToken(Kind.TEXT, raw, text="".join((*pieces, html.unescape(raw[start:]))))


def _token(source: str, at: int) -> Generator[None, None, MarkupToken | None]:
    """What begins with the < at this place."""
    following = source[at + 1 : at + 3]
    if following[:1].isascii() and following[:1].isalpha():
        return (yield from _opened(source, at))
    if following[:1] == "/" and following[1:].isascii() and following[1:].isalpha():
        end, _ = yield from _attributes(source, at + 2)
        name = _TAG_NAME.match(source, at + 2)
        if end < 0 or name is None:
            return MarkupToken(Kind.ASIDE, source[at:])
        return MarkupToken(Kind.CLOSE, source[at:end], name.group().lower(), is_block=name.group().lower() not in _INLINE)
    if source.startswith("<!--", at):
        return MarkupToken(Kind.ASIDE, source[at : _behind(source, "-->", at + 2)])
    if following[:1] in {"!", "?"} or (following[:1] == "/" and following[1:]):
        return MarkupToken(Kind.ASIDE, source[at : _behind(source, ">", at)])
    return None


def _opened(source: str, at: int) -> Generator[None, None, MarkupToken]:
    end, attributes = yield from _attributes(source, at + 1)
    name = _TAG_NAME.match(source, at + 1)
    if end < 0 or name is None:
        return MarkupToken(Kind.ASIDE, source[at:])
    tag = name.group().lower()
    kind = Kind.ASIDE if tag in _EMPTY else Kind.OPEN
    is_kept = kind is Kind.OPEN and (tag in _KEPT or _asks_to_be_kept(attributes))
    return MarkupToken(kind, source[at:end], tag, is_block=tag not in _INLINE, is_kept=is_kept)


def _behind(source: str, mark: str, start: int) -> int:
    """Behind the next `mark`; the end of the source where there is none."""
    found = source.find(mark, start)
    return len(source) if found < 0 else found + len(mark)


def _raw_end(source: str, start: int, name: str) -> int:
    """Where the end tag of an element without elements begins."""
    found = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(source, start)
    return len(source) if found is None else found.start()


def _attributes(source: str, start: int) -> Generator[None, None, tuple[int, _Attributes]]:
    """Behind the > of a tag whose name begins at `start`, and attributes of it; -1 where the tag does not end."""
    name = _TAG_NAME.match(source, start)
    at = start if name is None else name.end()
    found: _Attributes = {}
    count = 0
    while True:
        at = _matched(_BETWEEN_ATTRIBUTES, source, at)
        if at >= len(source):
            return -1, found
        if source[at] == ">":
            return at + 1, found
        end = max(_matched(_ATTRIBUTE_NAME, source, at), at + 1)
        attribute, at, value = source[at:end].lower(), end, ""
        if (equals := _EQUALS.match(source, at)) is not None:
            at = equals.end()
            if source[at : at + 1] in {'"', "'"}:
                end = source.find(source[at], at + 1)
                if end < 0:
                    return -1, found
                value, at = source[at + 1 : end], end + 1
            else:
                end = _matched(_UNQUOTED, source, at)
                value, at = source[at:end], end
        if attribute in _ASKING:
            found.setdefault(attribute, value)
        if (count := count + 1) % _STEPS_BETWEEN_PAUSES == 0:
            yield


def _matched(pattern: re.Pattern[str], source: str, at: int) -> int:
    match = pattern.match(source, at)
    return at if match is None else match.end()


def _asks_to_be_kept(attributes: _Attributes) -> bool:
    """translate="no", or the class that translation services agree on."""
    return (
        attributes.get("translate", "").strip().lower() == "no"
        or "notranslate" in attributes.get("class", "").lower().split()
    )
