"""Translated attributes: their texts, which stand inside tags, become parts of the document like any other text.

A tag may stand in the middle of a part, and its attributes are translated as texts of their own. So the text of an attribute
is placed before the block of its tag, between two marks, and the tag contains a reference to it. `AttributeTexts` reads the
joined document and puts the texts where the references are. The marks are lone surrogates, which no received text can
contain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["AttributeTexts", "closing", "opening", "reference"]

_OPENING, _CLOSING, _REFERENCE, _END = "\ud800", "\ud801", "\ud802", "\ud803"
_MARK = re.compile(f"[{_OPENING}{_REFERENCE}]([0-9]+){_END}|{_CLOSING}")


def opening(name: int) -> str:
    """The mark before the text of attribute `name`."""
    return f"{_OPENING}{name}{_END}"


def closing() -> str:
    """The mark after the text of an attribute."""
    return _CLOSING


def reference(name: int) -> str:
    """The reference that is replaced by the text of attribute `name`."""
    return f"{_REFERENCE}{name}{_END}"


class AttributeTexts:
    """Reads a document as it is joined, from left to right, and keeps the texts of attributes until they are referred to."""

    __slots__ = ("_open", "_pieces", "_texts", "shifts")

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._open: str | None = None
        self._pieces: list[str] = []
        self.shifts: Sequence[tuple[int, int]] = ()
        """Of the last stretch: behind these of its characters others stand so much further on."""

    @property
    def is_open(self) -> bool:
        """Whether the text of an attribute follows."""
        return self._open is not None

    def placed(self, chunk: str) -> str:
        """The next stretch of the document as it is sent; marks are never cut in two."""
        self.shifts = ()
        if self._open is None and _OPENING not in chunk and _REFERENCE not in chunk:
            return chunk
        sent, shifts = list[str](), list[tuple[int, int]]()
        done = 0
        for mark in _MARK.finditer(chunk):
            (sent if self._open is None else self._pieces).append(chunk[done : mark.start()])
            done = mark.end()
            if mark.group() == _CLOSING:
                self._texts[self._open or ""] = "".join(self._pieces)
                self._open, self._pieces = None, []
            elif mark.group().startswith(_OPENING):
                self._open = mark.group(1)
            else:
                sent.append(self._texts.pop(mark.group(1), ""))
                shifts.append((mark.start(), len(sent[-1]) - len(mark.group())))
        (sent if self._open is None else self._pieces).append(chunk[done:])
        self.shifts = shifts
        return "".join(sent)
