"""Links tell of the text that was sent and of the text that is answered, whatever was taken out, read or written between."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretend import planned

from dragoman.serving.text.capitals import Capitals
from dragoman.serving.text.formats import TextFormat
from dragoman.serving.text.joining import JoinedHypothesis, TextHypothesis
from dragoman.serving.text.links import Link

_WORD = re.compile(r"\w+")


def linked(text: str, text_format: TextFormat, *, reverse: bool = False, **options: object) -> list[tuple[str, str]]:
    """The words that are linked when a text is translated by its own words, or by those in reverse."""
    document = planned(text, text_format, places=True, **options)  # type: ignore[arg-type]
    joined = JoinedHypothesis(document.gaps[0])
    for part, gap in zip(document.parts, document.gaps[1:], strict=True):
        translation = _WORD.sub(lambda word: word.group()[::-1] if reverse else word.group(), part.text)
        links = [Link(*word.span(), *word.span()) for word in _WORD.finditer(part.text)]
        written = part.written(translation, links)
        joined.add(TextHypothesis(written.text, 0.0, 1, written.links), gap)
    whole = joined.whole()
    numbers = [list(map(int, found.split(", "))) for found in re.findall(r"\[(\d+, \d+, \d+, \d+)\]", whole.alignment)]
    return [(text[a:b], whole.text[c:d]) for a, b, c, d in numbers]


@pytest.mark.parametrize(
    ("text_format", "text", "expected"),
    [
        ("text", "I love 😍 it.  Go to {place} now", ["I", "love", "😍", "it", "Go", "to", "{place}", "now"]),
        ("text", "{a} 5. {b}\nGo {c}", ["Go", "{c}"]),
        ("text", "5 km. THE END IS HERE", ["THE", "END", "IS", "HERE"]),
        ("html", "<p>The <b>red</b>  <i>house</i>.</p>\n<p>It</p>", ["The", "red", "house", "It"]),
        ("html", "A &lt;b&gt; &amp; c&nbsp;d &copy;x\n\n e", ["A", "b", "c", "d", "x", "e"]),
        ("html", "Use <code>f(x)</code> now", ["Use", "<code>f(x)</code>", "now"]),
        ("xml", "<r><a>Say &own; to <b>him</b></a></r>", ["Say", "&own;", "to", "him"]),
        (
            "markdown",
            "> A *red* \\* thing\n> in [two](u) lines\n\n- `x` ends",
            ["A", "red", "thing", "in", "two", "lines", "`x`", "ends"],
        ),
    ],
)
def test_linked_words_are_those_of_both_texts(text_format: TextFormat, text: str, expected: list[str]) -> None:
    assert linked(text, text_format, capitals=Capitals("en", "en")) == [(word, word) for word in expected]


def test_texts_of_attributes_move_what_stands_behind_them() -> None:
    text = "A ![long description](u) b and <img alt='more words'> c"
    assert linked(text, "markdown", attributes=True) == [(word, word) for word in ("A", "b", "and", "c")]


def test_segments_of_xliff_have_no_places() -> None:
    text = "<xliff><file><unit><source>A <g>b</g></source></unit></file></xliff>"
    assert linked(text, "xml") == []


PIECES = [
    "word ",
    "two. ",
    "&amp;",
    "&lt;b&gt; ",
    "<b>",
    "</b>",
    "<br>",
    "<i>x</i>",
    "  ",
    "\n",
    "{a}",
    " 😍 ",
    "5 km",
    "ß",
    "— ",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join), st.booleans())
def test_every_linked_word_is_found_in_both_texts(source: str, reverse: bool) -> None:
    for was, became in linked(source, "html", reverse=reverse):
        if was.isalnum():
            assert became == (was[::-1] if reverse else was)
