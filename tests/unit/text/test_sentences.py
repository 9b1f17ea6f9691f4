"""Where sentences end, in languages that write with dots, without spaces, or from right to left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serving.text.sentences import sentence_spans


def sentences(text: str, language: str | None = None) -> list[str]:
    return [text[slice(*span)] for span in sentence_spans(text, language) if span is not None]


WHOLE = [
    "Mr. Smith met Dr. Jones in St. Paul.",
    "J. R. R. Tolkien wrote it.",
    "The U.S. Army left.",
    "It costs 3.50 dollars, i.e. not much.",
    "See Fig. 3 and No. 5 for details.",
    "He works for Acme Inc. in Ohio.",
    "Well... maybe not.",
    "“Why?” he asked.",
    '"Stop!" she cried, and ran.',
    "Visit www.example.com or write to a.b@c.org today.",
    "Version 2.0.1 is out.",
    "Das kostet z.B. drei Euro.",
    "Dr. Müller u. a. waren da.",
    "M. Dupont arrive.",
]


@pytest.mark.parametrize("text", WHOLE)
def test_a_sentence_stays_whole(text: str) -> None:
    assert sentences(text) == [text]


def test_a_german_ordinal_does_not_end_a_sentence() -> None:
    text = "Am 3. Mai war er da. Er ging 1990. Dann kam der 2. Band."
    assert sentences(text, "de") == ["Am 3. Mai war er da.", "Er ging 1990.", "Dann kam der 2. Band."]


SPLIT = [
    ("It rained. We left.", ["It rained.", "We left."]),
    ("Really? Yes! Good.", ["Really?", "Yes!", "Good."]),
    ("He left at 5 p.m. The door was open.", ["He left at 5 p.m.", "The door was open."]),
    ("“I know.” She smiled.", ["“I know.”", "She smiled."]),
    ("He said (quietly.) Then he left.", ["He said (quietly.)", "Then he left."]),
    ("I waited… Nobody came.", ["I waited…", "Nobody came."]),
    ("No. I will not.", ["No.", "I will not."]),
    ("¿Qué hora es? ¡No lo sé!", ["¿Qué hora es?", "¡No lo sé!"]),
    ("今日は雨です。「そう？」と彼は言った。", ["今日は雨です。", "「そう？」", "と彼は言った。"]),
    ("你好！你是谁？我不知道。", ["你好！", "你是谁？", "我不知道。"]),
    ("هل أنت هنا؟ نعم.", ["هل أنت هنا؟", "نعم."]),
    ("यह घर है। वह पेड़ है।", ["यह घर है।", "वह पेड़ है।"]),
    ("One line\nanother line. And more", ["One line", "another line.", "And more"]),
    ("The year was 1990. Everything changed.", ["The year was 1990.", "Everything changed."]),
    ("What?! Never again.", ["What?!", "Never again."]),
]


@pytest.mark.parametrize(("text", "expected"), SPLIT)
def test_sentences_are_told_apart(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(st.text(alphabet=st.sampled_from("ab AB.!?…\"'()。\n\t3"), max_size=60))
def test_nothing_but_white_space_stands_between_sentences(text: str) -> None:
    spans = [span for span in sentence_spans(text) if span is not None]
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    assert edges == sorted(edges)
    assert all(not text[before:after].strip() for before, after in zip(edges[::2], edges[1::2], strict=True))
    assert all(text[start:end].strip() == text[start:end] != "" for start, end in spans)
