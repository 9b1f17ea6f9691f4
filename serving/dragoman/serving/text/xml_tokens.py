"""XML as tokens, byte for byte. Nothing is looked up, declared or expanded: an entity that the document declares itself
stands among words as it is written. Nothing is an error: what is not finished at the end is kept as it is.

Which elements are running text is seen from the document: an element that has text of its own beside its children is a
paragraph, and what is in it is inline; all other elements are structure (`xml_structure`).
"""

from __future__ import annotations

import re
from collections.abc import Container, Generator, Mapping

from dragoman.serving.text.android_resources import is_resources, resource_tokens
from dragoman.serving.text.attributes import STEPS_BETWEEN_PAUSES, read_attributes
from dragoman.serving.text.html_tokens import html_tokens
from dragoman.serving.text.markup_tokens import Kind, MarkupToken, Style
from dragoman.serving.text.word_list import names
from dragoman.serving.text.xliff import is_xliff, xliff_tokens
from dragoman.serving.text.xml_embedded import embedded_tokens
from dragoman.serving.text.xml_structure import local_name, structured
from dragoman.serving.text.xml_text import XML_ATTRIBUTE, XML_CDATA, XML_TEXT, text_tokens, unescaped

__all__ = ["xml_tokens"]

_STEPS_BETWEEN_PAUSES = 75
_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_NAME_START = re.compile(r"[^\W\d]|[:_]")
_DOCTYPE_SIGN = re.compile(r"[\"'\[\]>]|<!--")
_HTML_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_KEPT = names("""
    script style code codeph codeblock programlisting screen literal pre kbd samp tt math svg
    apiname classname cmdname command computeroutput constant envar filename filepath keycap methodname parmname replaceable
    systemitem systemoutput userinput varname
""")
_FEED = names("""
    author cloud creator date docs email generator guid icon id identifier language lastbuilddate link logo managingeditor
    name pubdate published ttl updated uri url webmaster
""")
_KEPT_IN: Mapping[str, Container[str]] = {
    **dict.fromkeys(("rss", "feed", "rdf"), _KEPT | _FEED),
    "resources": _KEPT | names("bool color dimen drawable fraction integer"),
    "svg": _KEPT.keys() - {"svg"},
}
"""By the first element of a document."""
_SPACES = {"preserve": Style(XML_TEXT.write, keeps_space=True), "default": XML_TEXT}


def xml_tokens(source: str) -> Generator[None, None, list[MarkupToken]]:
    """The tokens that make up `source`; yields so that the caller can do other work."""
    tokens: list[MarkupToken] = []
    spaces: list[tuple[str, Style]] = []  # elements that say how white space is read, and are open
    kept: Container[str] | None = None  # names of elements, when the first is known
    at = text_start = steps = 0
    while (at := source.find("<", at)) >= 0:
        if (steps := steps + 1) % _STEPS_BETWEEN_PAUSES == 0:
            yield
        style = spaces[-1][1] if spaces else XML_TEXT
        if text_start < at:
            tokens += yield from _text(source[text_start:at], style)
            text_start = at
        if source.startswith(_CDATA, at):
            end = _behind(source, _CDATA_END, at)
            tokens += yield from _cdata(source[at:end])
        elif (token := (yield from _token(source, at, kept))) is not None:
            tokens.append(token[0])
            if kept is None and token[0].kind is Kind.OPEN:
                kept = _KEPT_IN.get(local_name(token[0]), _KEPT)
            end = at + len(token[0].raw)
            _note_space(spaces, *token)
        else:  # a sign like any other
            end = at + 1
            tokens.append(MarkupToken(Kind.TEXT, "<", text="<", style=style))
        at = text_start = end
    if text_start < len(source):
        tokens += yield from _text(source[text_start:], spaces[-1][1] if spaces else XML_TEXT)
    if is_xliff(tokens):
        return (yield from xliff_tokens(tokens))
    if is_resources(tokens):
        tokens = yield from resource_tokens(tokens)
    return (yield from structured(tokens))


def _text(raw: str, style: Style) -> Generator[None, None, list[MarkupToken]]:
    """A text, or the HTML that is written in it."""
    embedded = yield from embedded_tokens(raw)
    return (yield from text_tokens(raw, style)) if embedded is None else embedded


def _note_space(spaces: list[tuple[str, Style]], token: MarkupToken, asked: str) -> None:
    """xml:space holds for an element and what is in it; elements inside are noted where one of them has the same name."""
    if token.kind is Kind.OPEN and (asked in _SPACES or (spaces and spaces[-1][0] == token.name)):
        spaces.append((token.name, _SPACES.get(asked) or spaces[-1][1]))
    elif token.kind is Kind.CLOSE and spaces and spaces[-1][0] == token.name:
        spaces.pop()


def _token(source: str, at: int, kept: Container[str] | None) -> Generator[None, None, tuple[MarkupToken, str] | None]:
    """What begins with the < at this place, and its xml:space. `kept`: names of elements that are; None for the first."""
    if source.startswith("<!--", at):
        return MarkupToken(Kind.ASIDE, source[at : _behind(source, "-->", at + 4)]), ""
    if source.startswith("<?", at):
        return MarkupToken(Kind.ASIDE, source[at : _behind(source, "?>", at)]), ""
    if source.startswith("<!", at):
        return MarkupToken(Kind.ASIDE, source[at : (yield from _doctype_end(source, at))], is_block=True), ""
    is_end = source.startswith("</", at)
    if _NAME_START.match(source, at + 1 + is_end) is None:
        return None
    read = yield from read_attributes(source, at, at + 1 + is_end, XML_ATTRIBUTE, unescaped)
    if read.end < 0:
        return MarkupToken(Kind.ASIDE, source[at:]), ""
    raw = source[at : read.end]
    if is_end:
        return MarkupToken(Kind.CLOSE, raw, read.name), ""
    is_empty = raw.endswith("/>")
    local = read.name.rpartition(":")[2].lower()
    names_kept = _KEPT_IN.get(local, _KEPT) if kept is None else kept
    return MarkupToken(
        Kind.ASIDE if is_empty else Kind.OPEN,
        raw,
        read.name,
        is_kept=not is_empty and (local in names_kept or read.asks_to_be_kept),
        attributes=() if read.asks_to_be_kept else read.texts,
        text=read.asked.get("id", read.asked.get("rid", "")) if local in {"bpt", "ept", "sc", "ec"} else "",
    ), read.asked.get("xml:space", "")


def _cdata(raw: str) -> Generator[None, None, list[MarkupToken]]:
    """A section is a block of its own: of HTML where it has tags, as in feeds, otherwise of text."""
    if not raw.endswith(_CDATA_END):
        return [MarkupToken(Kind.ASIDE, raw, is_block=True)]
    content = raw[len(_CDATA) : -len(_CDATA_END)]
    if _HTML_TAG.search(content):
        inside = yield from html_tokens(content)
    else:
        inside = [MarkupToken(Kind.TEXT, content, text=content, style=XML_CDATA)] if content else []
    return [
        MarkupToken(Kind.ASIDE, _CDATA, is_block=True),
        *inside,
        MarkupToken(Kind.ASIDE, _CDATA_END, is_block=True),
    ]


def _doctype_end(source: str, at: int) -> Generator[None, None, int]:
    """Behind a declaration, which may have quoted texts, comments and declarations in brackets."""
    depth, place, steps = 0, at + 2, 0
    while (sign := _DOCTYPE_SIGN.search(source, place)) is not None:
        if (steps := steps + 1) % STEPS_BETWEEN_PAUSES == 0:
            yield
        place = sign.end()
        if sign.group() in {'"', "'"}:
            place = _behind(source, sign.group(), place)
        elif sign.group() == "<!--":
            place = _behind(source, "-->", place)
        elif sign.group() == ">":
            if depth <= 0:
                return place
        else:
            depth += 1 if sign.group() == "[" else -1
    return len(source)


def _behind(source: str, mark: str, start: int) -> int:
    """Behind the next `mark`; the end of the source where there is none."""
    found = source.find(mark, start)
    return len(source) if found < 0 else found + len(mark)
