"""Reading markup and placeholders pauses often: so much is done at once, counted in lines of Python and not in time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import pytest
from pretend import STAND_INS, TOKENIZER

from dragoman.search import DecodingOptions
from dragoman.serving.text.formats import TextFormat, blocks_of
from dragoman.serving.text.marked import MarkedBlock
from dragoman.serving.text.placeholder_slots import Atom
from dragoman.serving.text.protection import Protection
from dragoman.serving.text.restoring import Tag

MOST_LINES = 15_000
"""Well below three milliseconds."""

N = 20_000
HTML = {
    "nested tags": "<b>" * (N // 7) + "word" + "</b>" * (N // 7),
    "nested words": "<b>w" * (N // 8) + "</b>" * (N // 8),
    "attributes": "<a" + " b=1" * (N // 4) + ">word",
    "signs": "<" * N,
    "entities": "&amp;" * (N // 5),
    "kept elements": "<code>" * (N // 6) + "word",
    "crossing pairs": "<b><i>x</b></i> " * (N // 16),
    "tagged words": "<i>w</i> " * (N // 9),
    "atoms": "x <code>a</code> " * (N // 17),
    "paragraphs": "<p>a" * (N // 4),
    "placeholders": "<p>" + "{a} " * (N // 4),
}

XML = {
    **{name: text for name, text in HTML.items() if name not in {"kept elements"}},
    "references": "&amp;&own;" * (N // 10),
    "segments": "<xliff>" + "<source>a</source>" * (N // 18),
    "open segments": "<xliff>" + "<source>" * (N // 8),
    "sections": "<![CDATA[a]]>" * (N // 13),
    "declarations": "<!DOCTYPE a [" + "<!ENTITY a '&a;&a;'>" * (N // 20),
    "html in text": "<d>" + "&lt;b&gt;a&lt;/b&gt; " * (N // 21) + "</d>",
    "nested html in text": "<d>" + "&lt;b&gt;" * (N // 19) + "&lt;/b&gt;" * (N // 19) + "</d>",
    "tags in text": "<d>" + "&lt;b " * (N // 6),
    "texts with tags": "<d>&lt;b&gt;a</d>" * (N // 17),
    "escapes of resources": "<resources><string>" + "\\'" * (N // 2),
    "lines of resources": "<resources><string>" + "a\\n" * (N // 3),
    "segmented": "<xliff>" + "<source>a</source><seg-source>" * (N // 30),
    "spaces": "<a xml:space='preserve'>" * (N // 24),
}
MARKDOWN = {
    "quotes": "> " * (N // 2),
    "quotes in lines": ("> " * 100 + "a\n") * (N // 200),
    "lists": "- " * (N // 2),
    "lists and blank lines": "- " * 100 + "\n" * N,
    "open brackets": "[" * N,
    "closed brackets": "[" * (N // 2) + "]" * (N // 2),
    "links": "[a](b" * (N // 5),
    "link titles": "[a](b 'c" * (N // 8),
    "link parentheses": "[a](" + "(" * N,
    "images": "![" * (N // 2),
    "nested links": "[a" * (N // 4) + "](b)" * (N // 8),
    "stars": "*a " * (N // 3),
    "stars that open": "a**b" + "c* " * (N // 3),
    "mixed signs": "*a _b ~c " * (N // 9),
    "emphasis": "**a** " * (N // 6),
    "nested emphasis": "*a **a " * (N // 14) + "a** a*" * (N // 12),
    "backticks": "".join("`" * n + "a" for n in range(280)),
    "tags": "<a b='" * (N // 6),
    "comments": "<!--" * (N // 4),
    "html comments": "a <!-- " * (N // 7),
    "references": "[a]: b\n" * (N // 14) + "[a]" * (N // 6),
    "open definitions": "[a]:\n" * (N // 5),
    "cells": "|a" * (N // 4) + "\n" + "|-" * (N // 4) + "\n" + "|a" * (N // 4),
    "rows": "|a|\n|-|\n" + "|a|\n" * (N // 8),
    "hashes": "# " + " " * N + "a",
    "dashes": "- " * N + "a",
    "rules": ("-" * 100 + "a\n") * (N // 100),
    "entities": "&amp;" * (N // 5),
    "hard breaks": "a  \n" * (N // 4),
    "escapes": "\\" * N,
    "colons": ":a" * (N // 2),
    "autolinks": "<a:" * (N // 3),
    "numbers": "1. " * (N // 3),
    "front matter": "---\n" * (N // 4),
}


def most_lines(slices: Generator[None, None, object]) -> int:
    """Of Python, between two pauses."""
    lines, most = 0, 0

    def count(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        for _ in slices:
            lines, most = 0, max(most, lines)
    finally:
        sys.settrace(before)
    return max(most, lines)


def reading(text: str, text_format: TextFormat) -> Generator[None, None, object]:
    return blocks_of(text, text_format, Protection(TOKENIZER, STAND_INS, DecodingOptions(), keeps_placeholders=True))


HOSTILE = {
    f"{kind}: {name}": (kind, text)
    for kind, texts in (("html", HTML), ("xml", XML), ("markdown", MARKDOWN))
    for name, text in texts.items()
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_slice_of_hostile_markup_does_much(name: str) -> None:
    kind, text = HOSTILE[name]
    assert most_lines(reading(text, kind)) < MOST_LINES


@pytest.mark.parametrize("name", HOSTILE)
def test_reading_hostile_markup_takes_linear_time(name: str) -> None:
    kind, text = HOSTILE[name]
    began_s = time.process_time()
    for _ in reading(text, kind):
        pass
    assert time.process_time() - began_s < 4.0


def test_no_slice_of_many_placeholders_does_much() -> None:
    assert most_lines(reading("{a} " * (N // 4), "text")) < MOST_LINES


def test_the_count_sees_work_without_pauses() -> None:
    def busy() -> Generator[None, None, None]:
        for _ in range(MOST_LINES):
            pass
        yield

    assert most_lines(busy()) >= MOST_LINES


def test_what_is_not_translated_comes_out_as_it_stood_and_is_not_searched_for_terms() -> None:
    def search(*_: object) -> None:
        raise AssertionError("a long stretch would take long")

    tags, atoms = [Tag(0, "<b>", 1), Tag(1, "</b>", 0)], [Atom(2, 3, "{a}")]
    block = MarkedBlock("5 % 7, word", tags, atoms, options=search)
    assert "".join(block.unchanged(0, 6)) == "<b>5</b> {a} 7,"


def test_what_stays_as_it_stood_is_put_together_in_slices() -> None:
    count = 4500
    atoms = [Atom(2 * n, 2 * n + 1, "{a}") for n in range(count)]
    tags = [Tag(2 * n, f"<{n}>", -1) for n in range(0, count, 500)]
    block = MarkedBlock("5 " * count, tags, atoms)
    pieces = list(block.unchanged(0, 2 * count))
    assert max(piece.count("{a}") for piece in pieces) == 1000
    assert "".join(pieces) == "".join(f"<{n}>{{a}} " if n % 500 == 0 else "{a} " for n in range(count))
