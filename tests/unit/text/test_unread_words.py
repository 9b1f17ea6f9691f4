"""Words of which the vocabulary has no letter come out as they went in."""

from __future__ import annotations

import re
import time

import pytest
from pretend import STAND_INS, TOKENIZER, planned, translated

from dragoman.serving.text.formats import TextFormat
from dragoman.serving.text.glossary import glossary_of_pairs
from dragoman.serving.text.stand_ins import StandIns
from dragoman.serving.text.unread_words import UnreadWords

LATIN = UnreadWords(lambda text: any("a" <= letter.lower() <= "ž" for letter in text))
"""Of a model that has only seen Latin letters."""
HEBREW = "שלום עולם"


def read(text: str, text_format: TextFormat = "text") -> list[str]:
    """What the model reads, with 0 for stand-ins."""
    assert STAND_INS.for_text("")[0].isdigit()
    parts = planned(text, text_format, unread=LATIN).parts
    return [re.sub(r"\d+", "0", part.text) for part in parts]


@pytest.mark.parametrize(
    "text",
    [
        f"{HEBREW}.",
        "გამარჯობა, როგორ ხარ?",
        "你好，世界。我们走吧！",
        "यह हिन्दी है।",
        "יש לי 5 כלבים.",
        "می‌خواهم",
        f"{HEBREW} {{name}}: {HEBREW}!",
        "שלום{name}5שלום{x} 👍שלום",
    ],
)
def test_a_sentence_without_a_word_that_the_model_reads_is_not_translated(text: str) -> None:
    assert read(text) == []
    assert translated(text, "text", lambda _: ".", unread=LATIN) == text
    page = f"<p>{text.replace(' ', ' <b>', 1)}</b></p><p>Words</p>"
    assert read(page, "html") == ["Words"]
    assert translated(page, unread=LATIN) == page


def test_only_its_sentences_are_kept_of_a_text() -> None:
    names = StandIns(TOKENIZER, lambda probes: [re.sub(r".*\d.*", "", probe) for probe in probes])
    parts = planned(f"It is late. {HEBREW}. Go home.", "text", unread=LATIN, stand_ins=names).parts
    assert [part.text for part in parts] == ["It is late.", "Go home."]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (f"The word {HEBREW} means hello.", ["The word 0 means hello."]),
        ("Say שלום, or გამარჯობა!", ["Say 0, or 0!"]),
        ("<p>Say <b>שלום</b> to <i>all</i></p>", ["Say 0 to all"]),
        ("The angle Ω is small", ["The angle 0 is small"]),
    ],
)
def test_unread_words_among_others_are_placeholders(text: str, parts: list[str]) -> None:
    text_format: TextFormat = "html" if text.startswith("<") else "text"
    assert read(text, text_format) == parts
    assert translated(text, text_format, str.upper, unread=LATIN).lower() == text.lower()


@pytest.mark.parametrize("text", ["Schöne Grüße, naïve café.", "Paul Erdőשs is here", "In 2013 — “so” — it’s 5 €5"])
def test_words_with_a_letter_that_is_read_go_to_the_model(text: str) -> None:
    (part,) = planned(text, "text", unread=LATIN, placeholders=False).parts
    assert part.text == text


def test_letters_that_are_known_in_longer_pieces_only_are_read() -> None:
    pieces = UnreadWords(lambda text: "葡萄" in text)
    assert list(pieces.spans("葡萄 葡")) == [(3, 4)]


def test_what_the_glossary_translates_goes_to_the_model() -> None:
    glossary = glossary_of_pairs([("שלום", "Hallo")])
    (part,) = planned("שלום", "text", unread=LATIN, glossary=glossary).parts
    assert part.text == "שלום"


def test_finding_them_takes_linear_time_and_pauses() -> None:
    words = LATIN
    for text in ("ש" * 200_000, "ש " * 100_000, "é" * 200_000, "".join(map(chr, range(0x4E00, 0x9FFF))) * 5):
        began_s = time.process_time()
        list(words.spans(text))
        assert time.process_time() - began_s < 2.0
    fresh = UnreadWords(lambda text: False)
    longest_s, before_s = 0.0, time.process_time()
    for span in fresh.spans("".join(map(chr, range(0x4E00, 0x9FFF)))):
        if span is None:
            now_s = time.process_time()
            longest_s, before_s = max(longest_s, now_s - before_s), now_s
    assert 0.0 < longest_s < 0.1
