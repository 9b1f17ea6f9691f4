r"""Texts of Android's resources (strings.xml): \' and \u00e9 are characters, \n separates texts, @string/other is none."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial

from dragoman.serving.text.markup_tokens import HTML_TEXT, Kind, MarkupToken, Style
from dragoman.serving.text.xml_embedded import EMBEDDED_TEXT
from dragoman.serving.text.xml_text import XML_CDATA, XML_TEXT, unescaped

__all__ = ["is_resources", "resource_tokens"]

_MOST_BEFORE_ROOT = 50
_STEPS_BETWEEN_PAUSES = 100
_REFERENCE = re.compile(r"\s*[@?][\w.:+]{1,200}(?:/[\w.]{1,200})?\s*")
_SIGN = re.compile(
    r"""\\u( [dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2} | (?![dD][89a-fA-F])[0-9a-fA-F]{4} )
    | \\([^\s<&u]) | \"
    """,
    re.VERBOSE,
)
_Convert = Callable[[str], str]
_MEANINGS: Mapping[_Convert, _Convert] = {
    XML_TEXT.write: unescaped,
    XML_CDATA.write: str,
    HTML_TEXT.write: html.unescape,  # in CDATA
    EMBEDDED_TEXT.write: lambda raw: html.unescape(unescaped(raw)),
}
"""By how a text is written: what it means, but for the escapes."""
_SIGNIFICANT = re.compile(r"[\\'\"]|^[@?]")


def is_resources(tokens: Sequence[MarkupToken]) -> bool:
    """Whether the first element is that of such a file."""
    root = next((token for token in tokens[:_MOST_BEFORE_ROOT] if token.kind is Kind.OPEN), None)
    return root is not None and root.name == "resources"


def resource_tokens(tokens: Sequence[MarkupToken]) -> Generator[None, None, list[MarkupToken]]:
    """The same, with what the texts mean."""
    found: list[MarkupToken] = []
    for number, token in enumerate(tokens):
        if number % _STEPS_BETWEEN_PAUSES == _STEPS_BETWEEN_PAUSES - 1:
            yield
        if token.kind is not Kind.TEXT:
            found.append(token)
        elif _REFERENCE.fullmatch(token.raw):
            found.append(MarkupToken(Kind.ASIDE, token.raw))
        else:
            found += yield from _read(token)
    return found


def _read(token: MarkupToken) -> Generator[None, None, list[MarkupToken]]:
    style = Style(partial(_written, token.style.write), keeps_space=token.style.keeps_space)
    meaning = _MEANINGS[token.style.write]
    if _SIGN.search(token.raw) is None:
        return [dataclasses.replace(token, style=style)]
    raw, found, pieces = token.raw, list[MarkupToken](), list[str]()
    begin = done = 0  # of the text that goes on, and what of it is in `pieces`

    def end_text(end: int) -> None:
        nonlocal pieces
        if begin < end:
            text = "".join((*pieces, meaning(raw[done:end])))
            found.append(MarkupToken(Kind.TEXT, raw[begin:end], text=text, style=style))
        pieces = []

    for number, sign in enumerate(_SIGN.finditer(raw)):
        if number % _STEPS_BETWEEN_PAUSES == _STEPS_BETWEEN_PAUSES - 1:
            yield
        code, escaped = sign.groups()
        if escaped in {"n", "t"} or sign.group() == '"':  # quotes are no text: they keep the white space between them
            end_text(sign.start())
            found.append(MarkupToken(Kind.ASIDE, sign.group(), is_block=escaped is not None))
            begin = sign.end()
        else:
            pieces += (meaning(raw[done : sign.start()]), _character(code) if code else escaped)
        done = sign.end()
    end_text(len(raw))
    return found


def _character(code: str) -> str:
    r"""What stands for a character: four digits, or twice four (d83d\ude00)."""
    return bytes.fromhex(code.replace(r"\u", "")).decode("utf-16-be")


def _written(write: _Convert, text: str) -> str:
    return _SIGNIFICANT.sub(r"\\\g<0>", write(text))
