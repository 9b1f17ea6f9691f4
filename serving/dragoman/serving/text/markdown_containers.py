"""The containers of Markdown: quotes and list items, which contain lines.

They are nested to a bounded depth, as in other parsers, so that the cost of a line is bounded by its length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dragoman.serving.text.markdown_line import CODE_INDENT, Line

__all__ = ["RULE", "Containers", "item_marker"]

_MOST = 64
_FOOTNOTE_INDENT = 4
RULE = re.compile(r"(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_BULLET = re.compile(r"[-+*](?=[ \t]|$)")
_NUMBER = re.compile(r"\d{1,9}[.)](?=[ \t]|$)")
_BLANK = re.compile(r"[ \t]*$")


@dataclass(slots=True)
class _Container:
    """A quote, or an item of a list whose lines are indented by `indent` columns."""

    indent: int = 0  # 0: a quote
    is_empty: bool = False


class Containers:
    """The open containers, the outermost first."""

    def __init__(self) -> None:
        self._open: list[_Container] = []

    def __len__(self) -> int:
        return len(self._open)

    def close(self, count: int) -> None:
        """Close all but the outermost `count`."""
        del self._open[count:]

    def close_empty(self) -> None:
        """After a blank line: an item that has begun with a blank line has no second one."""
        if self._open and self._open[-1].is_empty:
            self._open.pop()

    def open_footnote(self) -> None:
        """Its lines are indented."""
        self._open.append(_Container(_FOOTNOTE_INDENT))

    def matched(self, line: Line) -> int:
        """How many containers continue in this line, which is read up to their contents."""
        for number, container in enumerate(self._open):
            indent, text = line.indent()
            if container.indent:
                if text < line.end and indent < container.indent:
                    return number
                line.skip(container.indent)
            elif not _skip_quote(line, indent, text):
                return number
        return len(self._open)

    def open_next(self, line: Line, *, in_paragraph: bool) -> bool:
        """Open the container that begins at this position of a line, and read past its mark; whether there was one."""
        indent, text = line.indent()
        if len(self._open) >= _MOST or indent > CODE_INDENT or text >= line.end:
            return False
        if _skip_quote(line, indent, text):
            self._open.append(_Container())
            return True
        marker = item_marker(line.source, text, line.end, in_paragraph=in_paragraph)
        if marker is None:
            return False
        line.skip(indent)
        line.advance(marker.end())
        after, content = line.indent()
        width = indent + len(marker.group())
        if content >= line.end:
            self._open.append(_Container(width + 1, is_empty=True))
            return True
        step = after if after <= CODE_INDENT + 1 else 1
        line.skip(step)
        self._open.append(_Container(width + step))
        return True

    def note_content(self) -> None:
        """The innermost container has content."""
        if self._open:
            self._open[-1].is_empty = False


def item_marker(source: str, text: int, end: int, *, in_paragraph: bool) -> re.Match[str] | None:
    """Of an item of a list; in a paragraph not of an empty one, nor of one that does not begin with 1."""
    if source[text] in "-*_" and RULE.match(source, text, end):
        return None
    marker = _BULLET.match(source, text, end) or _NUMBER.match(source, text, end)
    if marker is not None and in_paragraph:
        is_empty = _BLANK.match(source, marker.end(), end) is not None
        if is_empty or (source[text].isdigit() and marker.group()[:-1] != "1"):
            return None
    return marker


def _skip_quote(line: Line, indent: int, text: int) -> bool:
    """Past the sign of a quote, and a space behind it."""
    if indent > CODE_INDENT or text >= line.end or line.source[text] != ">":
        return False
    line.skip(indent)
    line.advance(text + 1)
    if line.at < line.end and line.source[line.at] in " \t":
        line.skip(1)
    return True
