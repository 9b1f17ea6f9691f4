"""Tables of Markdown: rows and their cells."""

from __future__ import annotations

import re

__all__ = ["cells", "is_table"]

_MOST_CELLS = 200
"""The limit of a row: the last cell has the rest."""
_DELIMITERS = re.compile(r"\|?[ \t]*:?-+:?(?:[ \t]*\|[ \t]*:?-+:?)*[ \t]*\|?")
_CELL_SIGN = re.compile(r"\\.|\|")


def cells(source: str, start: int, end: int) -> list[tuple[int, int]]:
    """The texts of a row, without the white space around them."""
    found, begin = list[tuple[int, int]](), start
    for sign in _CELL_SIGN.finditer(source, start, end):
        if len(found) >= _MOST_CELLS:
            break
        if sign.group() == "|":
            found.append((begin, sign.start()))
            begin = sign.end()
    found.append((begin, end))
    stripped = []
    for number, (first, last) in enumerate(found):
        text = source[first:last]
        left = first + len(text) - len(text.lstrip(" \t"))
        if text.strip(" \t") or 0 < number < len(found) - 1:
            stripped.append((min(left, last), max(first + len(text.rstrip(" \t")), min(left, last))))
    return stripped


def is_table(source: str, header: tuple[int, int], row: tuple[int, int]) -> bool:
    """Whether two lines begin a table: a row of dashes with as many cells as the line before it."""
    if _DELIMITERS.fullmatch(source[slice(*row)].rstrip(" \t")) is None:
        return False
    if "|" not in source[slice(*row)] and "|" not in source[slice(*header)]:
        return False
    return len(cells(source, *row)) == len(cells(source, *header))
