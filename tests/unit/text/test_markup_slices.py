"""Reading markup and placeholders pauses often: so much is done at once, counted in lines of Python and not in time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import pytest
from pretend import STAND_INS, TOKENIZER

from dragoman.search import DecodingOptions
from dragoman.serving.text.formats import TextFormat, blocks_of
from dragoman.serving.text.protection import Protection

MOST_LINES = 15_000
"""Well below three milliseconds."""

N = 40_000
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


@pytest.mark.parametrize("name", HTML)
def test_no_slice_of_hostile_html_does_much(name: str) -> None:
    assert most_lines(reading(HTML[name], "html")) < MOST_LINES


def test_no_slice_of_many_placeholders_does_much() -> None:
    assert most_lines(reading("{a} " * (N // 4), "text")) < MOST_LINES


def test_the_count_sees_work_without_pauses() -> None:
    def busy() -> Generator[None, None, None]:
        for _ in range(MOST_LINES):
            pass
        yield

    assert most_lines(busy()) >= MOST_LINES
