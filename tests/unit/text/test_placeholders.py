"""Placeholders come out as they went in, and the search is made to generate what stands for them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

import pytest
from pretend import STAND_INS, TOKENIZER, planned, translated

from dragoman.search import DecodingOptions
from dragoman.serving.text.formats import TextFormat
from dragoman.serving.text.links import Link
from dragoman.serving.text.placeholders import placeholder_spans
from dragoman.serving.text.stand_ins import StandIns


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
            "20 ℃",
            "68 ℉",
            "50 km²",
            "3 cm³",
            "1,000.50 €",
            "100%",
            "$30",
            "£1,000.50",
            "%d/%d",
            "{city},{country}",
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
    "text", ["Only words.", "In 1908 he was 5.", "50-50 or 3.14", "a@b", "{ it", "} { it", "% of it", "it is 100", "1908 in"]
)
def test_words_and_numbers_are_no_placeholders(text: str) -> None:
    (part,) = planned(text, "text").parts
    assert (part.text, part.decoding, part.restore) == (text, None, None)


def test_elements_with_only_signs_between_are_one() -> None:
    text = "Press <kbd>Ctrl</kbd>+<kbd>C</kbd>, <kbd>A</kbd> &amp; <kbd>B</kbd> or <kbd>D</kbd>&amp;<b>{x}</b>."
    (part,) = planned(text).parts
    assert sum(map(STAND_INS.has, re.findall(r"\w+", part.text))) == 5
    assert translated(text) == text


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


def spoken(text: str, say: Callable[[list[str]], str], links: Callable[[str], list[Link]] = lambda _: []) -> str:
    """The translation of a text by a model that says what `say` makes of its stand-ins."""

    def translate(part: str) -> str:
        return say([word for word in re.findall(r"\w+", part) if STAND_INS.has(word)])

    return translated(text, "text", translate, links)


@pytest.mark.parametrize(
    ("say", "written"),
    [
        (lambda own: f"Nimm {own[0]} und {own[1]}.", "Nimm {a} und {b}."),
        (lambda own: f"Nimm {own[0]}0 und {own[1]}er.", "Nimm {a} und {b}."),
        (lambda own: f"Nimm 1{own[0]} und {own[1]}s.", "Nimm {a} und {b}."),
        (lambda own: f"Nimm {own[0]} und {own[1]}, ja, {own[0]}.", "Nimm {a} und {b}, ja,."),
        (lambda own: f"Nimm {own[0]}erzündung und {own[1]}.", "Nimm {a} erzündung und {b}."),
        (lambda own: f"Nimm {own[0]}{own[1]}.", "Nimm {a} {b}."),
        (lambda own: f"Nimm {own[0]}.", "Nimm {a} {b}."),
        (lambda own: "Nimm es.", "{a} Nimm {b} es."),
        (lambda own: "", "{a} {b}"),
    ],
)
def test_whatever_the_model_writes_each_comes_out_once_and_alone(say: Callable[[list[str]], str], written: str) -> None:
    found = spoken("Take {a} and {b}.", say)
    assert [found.count(one) for one in ("{a}", "{b}")] == [1, 1]
    assert found == written


def test_they_change_places_only_where_the_alignment_says_so() -> None:
    def swapped(own: list[str]) -> str:
        return f"Gib {own[1]} nun {own[0]}"

    def links(part: str) -> list[Link]:
        first, second = [match.span() for match in re.finditer(r"\w+", part)][1:3]
        said = swapped(part.split()[1:3])
        places = [match.span() for match in re.finditer(r"\w+", said)]
        return [Link(*second, *places[1]), Link(*first, *places[3])]

    assert spoken("Give {a} {b} now", swapped) == "Gib {a} nun {b}"
    assert spoken("Give {a} {b} now", swapped, links) == "Gib {b} nun {a}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{size}px wide", 1),
        ("%s%s", 1),
        ("{a} {b}", 2),
        ("a{b}c.{d}", 1),
        ("great😀", 1),
        ("{\\i1}so", 1),
        ("{a}/{b}", 1),
        ("{a}/ {b}", 2),
    ],
)
def test_a_stand_in_is_a_word_of_its_own(text: str, parts: int) -> None:
    (part,) = planned(f"See {text} now", "text").parts
    assert sum(STAND_INS.has(word) for word in re.findall(r"\w+", part.text)) == parts


def test_a_hundred_thousand_come_out_as_they_went_in() -> None:
    text = "%s " * 100_000
    assert translated(text, "text", lambda _: "x", lambda _: []).count("%s") == 100_000


def test_stand_ins_are_words_that_the_model_writes_again() -> None:
    def translate(texts: Sequence[str]) -> list[str]:
        return [text if "Paris" in text or "68" in text else "Nein." for text in texts]

    assert list(StandIns(TOKENIZER, translate).for_text(""))[:3] == ["68", "Paris", "70"]
    assert "Boston" not in StandIns(TOKENIZER, list).for_text("Boston")
    assert list(StandIns(TOKENIZER).for_text("")) == list(StandIns(TOKENIZER, lambda texts: [""] * len(texts)).for_text(""))


def test_they_are_translated_when_the_caller_says_so() -> None:
    (part,) = planned("See {a} now", "text", placeholders=False).parts
    assert (part.text, part.decoding) == ("See {a} now", None)


def test_sampling_is_not_constrained_to_stand_ins() -> None:
    (part,) = planned("See {a} now", "text", decoding=DecodingOptions(sampling=True)).parts
    assert part.decoding is None


@pytest.mark.parametrize("hostile", ["%(", "{", "a@", "`", "http://", "1.", "www.", "%0", "{{ ", "\U0001f600", "a.", "5 "])
def test_finding_them_takes_linear_time(hostile: str) -> None:
    began_s = time.process_time()
    assert len(list(placeholder_spans(hostile * (100_000 // len(hostile))))) < 100_000
    assert time.process_time() - began_s < 2.0


def test_a_tag_between_a_placeholder_and_a_word_parts_them() -> None:
    for page in ("{a}<b>word</b> is", "The <b>{a}</b>px are", "{a}<b>{b}</b> is", "x{a}<i>y</i>{b} z"):
        parts = [part.text for part in planned(page).parts]
        assert not any(sign in part for part in parts for sign in "{}"), parts
        assert translated(page).replace(" ", "") == page.replace(" ", "")


def test_what_a_tag_cuts_is_no_placeholder() -> None:
    assert planned("{a<b>b}</b> is").parts[0].text == "{ab} is"


@pytest.mark.parametrize("text", ["😍", "{name}", "5 km", "😍 😂!", "{a}: {b}", "https://a.b/c", "{a} <b>{b}</b> 5"])
def test_what_is_only_placeholders_is_not_translated(text: str) -> None:
    copied = StandIns(TOKENIZER, lambda probes: [re.sub(r".*\d.*", "", probe) for probe in probes])
    assert copied.for_text("")[0].isalpha()
    page = f"<p>{text}</p><p>Words {{x}}</p>"
    assert [part.text.split()[0] for part in planned(page, stand_ins=copied).parts] == ["Words"]
    assert translated(page, stand_ins=copied) == page


def test_letters_beside_codes_of_subtitles_are_words() -> None:
    (part,) = planned(r"It is {\i1}late{\i0} now", "text").parts
    assert re.sub(r"\d+", "0", part.text) == "It is 0 late 0 now"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("😀 I like cats. 😀", ["I like cats."]),
        ("👍🏽👍🏽 I like cats 😀 🐈!", ["I like cats 0 0!"]),
        ("✨ Where is it? ✨ Here 🐈 🐈", ["Where is it?", "Here"]),
        ("I like 🐈 and dogs🐕", ["I like 0 and dogs"]),
        (r"{\an8}It is {\i1}late{\i0}", ["It is 0 late"]),
        ("<p><b>😀 I <i>like</i> cats</b> 😀</p>", ["I like cats"]),
        ("{name} is here {now}", ["0 is here 0"]),
    ],
)
def test_emoji_at_the_ends_of_a_sentence_stay_there(text: str, parts: list[str]) -> None:
    text_format: TextFormat = "html" if text.startswith("<") else "text"
    copied = StandIns(TOKENIZER, lambda probes: [re.sub(r".*\d.*", "", probe) for probe in probes])
    names = "|".join(copied.for_text(""))
    found = [re.sub(names, "0", part.text) for part in planned(text, text_format, stand_ins=copied).parts]
    assert found == parts
    assert translated(text, text_format, stand_ins=copied).replace(" late", "late") == text


def test_a_hundred_thousand_emoji_around_a_word_stay_there() -> None:
    text = "😀 " * 50_000 + "word" + " 😀" * 50_000
    began_s = time.process_time()
    assert translated(text, "text", links=lambda _: []) == text
    assert time.process_time() - began_s < 10.0
