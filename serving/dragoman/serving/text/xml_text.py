"""The characters of XML: the meaning of references, and how text is written as XML."""

from __future__ import annotations

import re
from collections.abc import Generator

from dragoman.serving.text.markup_tokens import Kind, MarkupToken, Style

__all__ = ["XML_ATTRIBUTE", "XML_CDATA", "XML_TEXT", "text_tokens", "unescaped", "unescaped_places"]

_KNOWN = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_REFERENCE = re.compile(r"&(?:#(\d{1,8})|#x([0-9a-fA-F]{1,6})|([^\W\d][\w.:-]{0,100}));")
_REFERENCES_BETWEEN_PAUSES = 200


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _attribute(text: str) -> str:
    return _text(text).replace('"', "&quot;").replace("'", "&apos;")


XML_TEXT = Style(_text)
XML_ATTRIBUTE = Style(_attribute)
XML_CDATA = Style(lambda text: text.replace("]]>", "]]]]><![CDATA[>"), keeps_space=True)


def text_tokens(raw: str, style: Style) -> Generator[None, None, list[MarkupToken]]:
    """A text, and among it the references that only the document's own declarations explain."""
    tokens: list[MarkupToken] = []
    pieces: list[str] = []
    begin = done = steps = 0  # `begin`: of the text that goes on
    for found in _REFERENCE.finditer(raw):
        if (steps := steps + 1) % _REFERENCES_BETWEEN_PAUSES == 0:
            yield
        if (meaning := _meaning(found)) is not None:
            pieces += (raw[done : found.start()], meaning)
        else:
            pieces.append(raw[done : found.start()])
            if begin < found.start():
                tokens.append(MarkupToken(Kind.TEXT, raw[begin : found.start()], text="".join(pieces), style=style))
            tokens.append(MarkupToken(Kind.ATOM, found.group()))
            begin, pieces = found.end(), []
        done = found.end()
    if begin < len(raw):
        tokens.append(MarkupToken(Kind.TEXT, raw[begin:], text="".join((*pieces, raw[done:])), style=style))
    return tokens


def unescaped(raw: str) -> str:
    """An attribute's value as it is meant; what is declared elsewhere stays as it is written."""
    return _REFERENCE.sub(lambda found: _meaning(found) or found.group(), raw)


def unescaped_places(raw: str) -> Generator[None, None, tuple[str, list[tuple[int, int]]] | None]:
    """What a text means, and for its beginning and what follows each reference, where that stands in it and in `raw`.

    None of a text with references that are declared elsewhere.
    """
    pieces, places = list[str](), [(0, 0)]
    done = length = 0
    for step, found in enumerate(_REFERENCE.finditer(raw), 1):
        if step % _REFERENCES_BETWEEN_PAUSES == 0:
            yield
        if (meaning := _meaning(found)) is None:
            return None
        pieces += (raw[done : found.start()], meaning)
        length += found.start() - done + len(meaning)
        done = found.end()
        places.append((length, done))
    return "".join((*pieces, raw[done:])), places


def _meaning(found: re.Match[str]) -> str | None:
    decimal, hexadecimal, name = found.groups()
    if name is not None:
        return _KNOWN.get(name)
    code = int(decimal) if decimal else int(hexadecimal, 16)
    is_character = code in {9, 10, 13} or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF
    return chr(code) if is_character and not 0x7F <= code <= 0x9F else None
