"""Wraps the prose of the pages: `python docs/wrap.py`, or `make docs`. Tables, code and generated pages stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

WIDTH = 120
HERE = Path(__file__).resolve().parent
GENERATED = ("cli.md", "api.md", "metrics.md")

_ITEM = re.compile(r"(\s*(?:[-*]|\d+\.) +)(.*)")
_CODE_SPAN = re.compile(r"`+[^`]+`+")
_MEANS_A_BLOCK = re.compile(r"([-+*>#]+|\d+[.)])$")
"""A word that would begin a list, a quotation or a heading if it stood first in a line."""
_GLUE = "\0"


def pages() -> list[Path]:
    """The pages that people write."""
    return sorted([*(page for page in HERE.glob("*.md") if page.name not in GENERATED), *HERE.parent.glob("*.md")])


def wrapped(text: str) -> str:
    """The page with every paragraph and list item filled to WIDTH columns."""
    lines: list[str] = []
    for is_prose, block in blocks(text):
        lines += _filled(block) if is_prose else block
    return "\n".join(lines) + "\n"


def blocks(text: str) -> Iterator[tuple[bool, list[str]]]:
    """Paragraphs and list items (True), and runs of lines that are something else."""
    kinds: list[tuple[bool, int]] = []
    fenced, inserted, number = False, False, 0
    lines = text.rstrip("\n").split("\n")
    for at, line in enumerate(lines):
        fence = line.lstrip().startswith("```")
        before = lines[at - 1] if at else ""
        goes_on = bool(kinds) and kinds[-1][0]  # an indented line within a list item
        inserted = (inserted or line.endswith(": begin -->")) and not line.endswith(": end -->")  # by a benchmark
        literal = fenced or fence or inserted or not line.strip() or line.lstrip().startswith(("|", "#", "<!--"))
        indented_code = line.startswith("    ") and not goes_on and not _ITEM.match(line)
        fenced ^= fence
        prose = not literal and not indented_code
        if not prose or not goes_on or _ITEM.match(line) or not before.strip():
            number += 1
        kinds.append((prose, number))
    for (prose, _), group in groupby(zip(kinds, lines, strict=True), key=lambda pair: pair[0]):
        yield prose, [line for _, line in group]


def _filled(block: list[str]) -> list[str]:
    marked = _ITEM.match(block[0])
    first = marked[1] if marked else re.match(r"\s*", block[0])[0]  # type: ignore[index]
    text = " ".join([block[0][len(first) :], *(line.strip() for line in block[1:])])
    glued = _CODE_SPAN.sub(lambda span: span[0].replace(" ", _GLUE), text)
    words: list[str] = []
    for word in glued.split():
        if words and _MEANS_A_BLOCK.match(word):
            words[-1] += _GLUE + word
        else:
            words.append(word)
    lines, line = [], first
    for word in words:
        if len(line) + len(word) > WIDTH and line.strip() and line != first:
            lines.append(line.rstrip())
            line = " " * len(first)
        line += word + " "
    return [each.replace(_GLUE, " ") for each in [*lines, line.rstrip()]]


def main() -> None:
    """Write every page anew whose wrapping differs."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := wrapped(text)) != text:
            page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
