"""The characters of Markdown: the meaning of escapes, and how text is written so that it is read as text."""

from __future__ import annotations

import html
import re
from collections.abc import Generator

from dragoman.serving.text.markup_tokens import Style

__all__ = ["MARKDOWN_CELL", "MARKDOWN_TEXT", "MARKDOWN_TITLE", "unescaped", "unescaped_slowly"]

_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])|&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_ESCAPES_BETWEEN_PAUSES = 500
_SIGNIFICANT = re.compile(
    r"""
    (?<=\s) \* (?=\s) | (?<=[^\W_]) _+ (?=[^\W_])   # these mean nothing, and stay as they are
    | (?P<escaped> [*`] | _ | ~~ | \\ (?=[!-/:-@\[-`{-~]|$)
      | ! (?=$) | < (?=[A-Za-z/!?]) | \[ | \]
      | & (?=[#A-Za-z][A-Za-z0-9]{0,31};)
      | ^ (?: [-+] (?=\s|$) | [#]{1,6} (?=\s|$) | > | = (?==*$) | (?<=^) - (?=-*$) )
    )
    | ^ (?P<number> \d{1,9}) (?P<point> [.)]) (?=\s|$)
    """,
    re.VERBOSE,
)


def unescaped(raw: str) -> str:
    """The meaning of a text."""
    return _ESCAPE.sub(_meaning, raw)


def unescaped_slowly(raw: str) -> Generator[None, None, str]:
    """The same for a text of any length; yields so that the caller can do other work."""
    pieces, done = list[str](), 0
    for number, found in enumerate(_ESCAPE.finditer(raw), 1):
        pieces += (raw[done : found.start()], _meaning(found))
        done = found.end()
        if number % _ESCAPES_BETWEEN_PAUSES == 0:
            yield
    return "".join((*pieces, raw[done:]))


def _meaning(found: re.Match[str]) -> str:
    return found.group(1) or html.unescape(found.group())


def _text(text: str) -> str:
    return _SIGNIFICANT.sub(_escaped, text).replace("\u00a0", "&nbsp;")


def _escaped(found: re.Match[str]) -> str:
    if found.group("number"):
        return f"{found.group('number')}\\{found.group('point')}"
    if found.group() == "`":
        return "&#96;"  # a backslash would not keep it from ending the code that another one begins
    return f"\\{found.group()}" if found.group("escaped") else found.group()


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")


def _title(text: str) -> str:
    return re.sub(r"([\\\"'()])", r"\\\1", text)


MARKDOWN_TEXT = Style(_text)
MARKDOWN_CELL = Style(_cell)
MARKDOWN_TITLE = Style(_title)
