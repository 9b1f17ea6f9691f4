"""Placeholders come out as they went in, and the search is made to generate what stands for them."""

from __future__ import annotations

import time

import pytest
from pretend import STAND_INS, planned, translated

from dragoman.search import DecodingOptions
from dragoman.serving.text.placeholders import placeholder_spans


@pytest.mark.parametrize(
    "placeholder",
    [
        *(
            "https://example.org/a?b=1&c=%20#d",
            "www.example.org",
            "tom.x+y@example.co.uk",
            "{name}",
            "{{ user.name }}",
            "${x}",
        ),
        *(
            "%s",
            "%d",
            "%(count)d",
            "%1$s",
            "5 km",
            "3.5kg",
            "20 °C",
            "1,000.50 €",
            "100%",
            "`a b()`",
            "😀",
            "👍🏽",
            "👩‍👩‍👧",
            "🇩🇪",
        ),
    ],
)
def test_a_placeholder_never_reaches_the_model(placeholder: str) -> None:
    text = f"Look at {placeholder}, please."
    (part,) = planned(text, "text").parts
    assert placeholder not in part.text
    stand_in = part.text.removeprefix("Look at ").removesuffix(", please.")
    assert STAND_INS.has(stand_in)
    assert part.decoding == {"phrases": ((tuple(map(ord, stand_in)),),), "beam_size": 4}
    assert translated(text, "text") == text
    assert translated(text, "text", translate=lambda part: f"Bitte {stand_in} !") == f"Bitte {placeholder} !"


@pytest.mark.parametrize(
    "text", ["Only words.", "In 1908 he was 5.", "50-50 or 3.14", "a@b", "{", "} {", "% of it", "100", "1908 in"]
)
def test_words_and_numbers_are_no_placeholders(text: str) -> None:
    (part,) = planned(text, "text").parts
    assert (part.text, part.decoding, part.restore) == (text, None, None)


def test_several_have_stand_ins_of_their_own_that_the_text_does_not_have() -> None:
    text = "Was {a} or {b} or {a} in 2013?"
    (part,) = planned(text, "text").parts
    assert part.text.count("2013") == 1
    assert len(set(part.text.split())) == 7
    assert (
        translated(text, "text", translate=lambda part: " ".join(reversed(part.split()))) == "2013? in {a} or {b} or {a} Was"
    )


def test_one_that_the_translation_lacks_is_put_in() -> None:
    assert translated("See {a} now", "text", lambda _: "Sieh jetzt", lambda _: []) == "Sieh {a} jetzt"


def test_they_are_translated_when_the_caller_says_so() -> None:
    (part,) = planned("See {a} now", "text", placeholders=False).parts
    assert (part.text, part.decoding) == ("See {a} now", None)


def test_sampling_is_not_forced_to_say_anything() -> None:
    (part,) = planned("See {a} now", "text", decoding=DecodingOptions(sampling=True)).parts
    assert part.decoding is None


@pytest.mark.parametrize("hostile", ["%(", "{", "a@", "`", "http://", "1.", "www.", "%0", "{{ ", "\U0001f600", "a.", "5 "])
def test_finding_them_takes_linear_time(hostile: str) -> None:
    began_s = time.process_time()
    assert len(list(placeholder_spans(hostile * (100_000 // len(hostile))))) < 100_000
    assert time.process_time() - began_s < 2.0
