"""HTML in the text of an XML element, with its signs as references (&lt;b&gt;), as feeds and files of messages have it.

It is read as HTML only if all of it is whole: known elements, each closed where it was opened, and nothing of what the
document declares itself. A text that only speaks of tags stays a text.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Generator, Sequence

from dragoman.serving.text.html_tokens import html_tokens
from dragoman.serving.text.markup_tokens import HTML_ATTRIBUTE, HTML_TEXT, Kind, MarkupToken, Style
from dragoman.serving.text.word_list import names
from dragoman.serving.text.xml_text import XML_TEXT, unescaped_places

__all__ = ["EMBEDDED_TEXT", "embedded_tokens"]

_TAG = re.compile(r"&lt;/?[a-zA-Z][a-zA-Z0-9]{0,20}(?=[\s/&>])")
_ELEMENTS = names("""
    a abbr article aside b bdi bdo big blockquote body br caption center cite code col dd del details div dl dt em figcaption
    figure font footer h1 h2 h3 h4 h5 h6 head header hr html i iframe img ins kbd label li main mark nav ol p pre q s samp
    script section small span strike strong style sub summary sup table tbody td tfoot th thead title tr tt u ul var
    video wbr
""")
_STEPS_BETWEEN_PAUSES = 100
EMBEDDED_TEXT = Style(lambda text: XML_TEXT.write(HTML_TEXT.write(text)))
_ATTRIBUTE = Style(lambda text: XML_TEXT.write(HTML_ATTRIBUTE.write(text)))


def embedded_tokens(raw: str) -> Generator[None, None, list[MarkupToken] | None]:
    """The tokens of such a text; None of any other."""
    if _TAG.search(raw) is None:
        return None
    read = yield from unescaped_places(raw)
    if read is None:
        return None
    content, places = read
    tokens = yield from html_tokens(content)
    if not (yield from _is_whole(tokens)):
        return None
    found: list[MarkupToken] = []
    at = 0
    for number, token in enumerate(tokens):
        if number % _STEPS_BETWEEN_PAUSES == _STEPS_BETWEEN_PAUSES - 1:
            yield
        first = _raw_place(places, at)
        attributes = tuple(
            dataclasses.replace(
                text,
                start=_raw_place(places, at + text.start) - first,
                end=_raw_place(places, at + text.end) - first,
                style=_ATTRIBUTE,
            )
            for text in token.attributes
        )
        at += len(token.raw)
        name = f"html:{token.name}" if token.name else ""  # no other element has it
        own = raw[first : _raw_place(places, at)]
        found.append(dataclasses.replace(token, raw=own, name=name, style=EMBEDDED_TEXT, attributes=attributes))
    return found


def _is_whole(tokens: Sequence[MarkupToken]) -> Generator[None, None, bool]:
    """Whether there are tags, and all of them are what they should be."""
    open_names: list[str] = []
    has_tags = False
    for number, token in enumerate(tokens):
        if number % _STEPS_BETWEEN_PAUSES == _STEPS_BETWEEN_PAUSES - 1:
            yield
        if token.kind is Kind.TEXT:
            continue
        if not token.raw.endswith(">") or (token.name and token.name not in _ELEMENTS):
            return False
        has_tags = has_tags or token.name != ""
        if token.kind is Kind.OPEN:
            open_names.append(token.name)
        elif token.kind is Kind.CLOSE and (not open_names or open_names.pop() != token.name):
            return False
    return has_tags and not open_names


def _raw_place(places: Sequence[tuple[int, int]], at: int) -> int:
    """Where the character `at` of the content is written."""
    known = places[bisect.bisect_right(places, (at, 1 << 60)) - 1]
    return known[1] + at - known[0]
