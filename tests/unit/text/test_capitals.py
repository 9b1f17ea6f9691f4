"""Sentences in capitals are translated as normal ones and come out in capitals."""

from __future__ import annotations

import pytest
from pretend import planned, translated

from dragoman.serving.text.capitals import Capitals

ENGLISH = Capitals("en", "de")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("WHERE IS THE STATION?", "Where is the station?"),
        ("I THINK I'M LATE.", "I think I'm late."),
        ("NASA FLIES TO THE MOON IN 2030!", "NASA flies to the moon in 2030!"),
        ("OPEN THE HTML FILE", "Open the HTML file"),
        ("ПРИВЕТ, МИР", "Привет, мир"),
    ],
)
def test_a_sentence_in_capitals_is_read_as_a_normal_one(text: str, read: str) -> None:
    assert planned(text, "text", capitals=ENGLISH).parts[0].text == read
    assert translated(text, "text", capitals=ENGLISH) == text


@pytest.mark.parametrize("text", ["STOP!", "The NATO and the EU", "OK", "A B", "你好，世界。", "Where is it?"])
def test_acronyms_words_and_mixed_texts_stay(text: str) -> None:
    assert planned(text, "text", capitals=ENGLISH).parts[0].text == text


def test_each_sentence_is_seen_for_itself() -> None:
    assert [part.text for part in planned("It is late. GO HOME NOW! Thanks.", "text", capitals=ENGLISH).parts] == [
        "It is late.",
        "Go home now!",
        "Thanks.",
    ]


def test_tags_and_placeholders_stay_as_they_are() -> None:
    found = translated("<p>OPEN <b>THE</b> FILE {name} NOW &amp; HERE</p>", capitals=ENGLISH)
    assert found == "<p>OPEN <b>THE</b> FILE {name} NOW &amp; HERE</p>"


def test_letters_that_change_otherwise_are_right() -> None:
    assert Capitals("en", "de").raised("große Straße") == "GROSSE STRASSE"
    assert Capitals("en", "tr").raised("iyi ışık") == "İYİ IŞIK"
    assert Capitals("tr", "en").lowered("İYİ IŞIK") == "İyi ışık"


@pytest.mark.parametrize(
    ("target", "prefix", "read"),
    [
        ("de", "WO IST", "Wo ist"),
        ("de", "„IN DER NASA I", "„In der NASA i"),
        ("de", "GROẞE STRASSE", "GROẞE strasse"),
        ("en", "SO I'M HERE", "So I'm here"),
        ("tr", "IŞIK İYİ", "Işık iyi"),
        ("de", "Wo ist", "Wo ist"),
        ("de", "…", "…"),
    ],
)
def test_a_prefix_in_capitals_is_lowered_and_is_the_same_in_capitals(target: str, prefix: str, read: str) -> None:
    capitals = Capitals("en", target)
    assert capitals.lowered_prefix(prefix) == read
    assert capitals.raised(read) == capitals.raised(prefix)


def test_without_the_option_nothing_is_changed() -> None:
    assert planned("WHERE IS IT?", "text").parts[0].text == "WHERE IS IT?"
