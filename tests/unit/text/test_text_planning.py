"""Long texts: split, and joined as they stood, with nothing left out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calm import on_a_calm_machine
from dragoman.bundle.manifest import Segmentation
from dragoman.errors import InvalidRequest
from dragoman.serving.text.document import Document, plain_text
from dragoman.serving.text.fitting import Measure
from dragoman.serving.text.planning import Splitting, plan_document


def planned(text: str, count_tokens: Callable[[str], int], max_tokens: int, lead: str = "", **options: Any) -> Document:
    """The plan, all at once."""
    plan = plan_document(plain_text(text), Measure(count_tokens, max_tokens, lead), Splitting(**options), lead)
    try:
        while True:
            next(plan)
    except StopIteration as done:
        return cast(Document, done.value)


def parts(text: str, count_tokens: Callable[[str], int], max_tokens: int, **options: Any) -> tuple[str, ...]:
    return tuple(part.text for part in planned(text, count_tokens, max_tokens, **options).parts)


def joined(document: Document, translations: Sequence[str]) -> str:
    pieces = [document.gaps[0]]
    for translation, gap in zip(translations, document.gaps[1:], strict=True):
        pieces += [translation, gap]
    return "".join(pieces)


def words(text: str) -> int:
    return len(text.split()) + 1  # and the end token


def test_each_sentence_is_a_part_and_white_space_stays_outside() -> None:
    document = planned("  One. Two. ", words, 10)
    assert [part.text for part in document.parts] == ["One.", "Two."]
    assert document.gaps == ("  ", " ", " ")


def test_sentences_are_joined_with_their_own_spacing() -> None:
    document = planned(" It rained.  We left.\n\n\tNobody   came. ", words, 4)
    assert [part.text for part in document.parts] == ["It rained.", "We left.", "Nobody   came."]
    assert joined(document, ["A.", "B.", "C."]) == " A.  B.\n\n\tC. "


@pytest.mark.parametrize(
    ("text", "gaps"),
    [
        ("今天天气很好。我们去公园吧！", ("", " ", "")),
        ("“你要去哪儿？”她问。\n　　走了。我不知道。", ("", " ", "\n\u3000\u3000", " ", "")),
        ("首都是北京。The capital is Beijing. 好。", ("", " ", " ", "")),
    ],
)
def test_sentences_of_a_language_without_spaces_get_them_in_one_that_has_them(text: str, gaps: tuple[str, ...]) -> None:
    document = planned(text, len, 50, language="zh", spaced=True)
    assert document.gaps == gaps
    places = [0, *(place for part in document.parts for place in part.source), len(text)]
    between = tuple(text[start:end] for start, end in zip(places[::2], places[1::2], strict=True))
    assert planned(text, len, 50, language="zh").gaps == between
    assert [text[slice(*part.source)] for part in document.parts] == [part.text for part in document.parts]


def test_a_long_sentence_of_a_language_without_spaces_gets_them_at_its_clauses() -> None:
    document = planned("今天天气很好，我们去公园，他不来。", len, 8, language="zh", spaced=True)
    assert [part.text[-1] for part in document.parts] == ["，", "，", "。"]
    assert document.gaps == ("", " ", " ", "")


@pytest.mark.parametrize("segmentation", ["sentence", "line"])
def test_marks_of_lists_and_headings_stay_as_they_are(segmentation: str) -> None:
    text = (
        "# A list\n- One item\n  * Another - with a dash\n> Quoted\n>>> Quoted again\n> - An item\n"
        "•  Dot\n-5 degrees\n- \n---\n"
        "1. First\n 2) Second\n(3) Third\n1.2. Fourth\nb) Last\n- [x] Done\n[10:23] At once\n5 apples"
    )
    document = planned(text, words, 9, segmentation=segmentation)
    expected = ("A list", "One item", "Another - with a dash", "Quoted", "Quoted again", "An item", "Dot", "-5 degrees")
    expected += ("First", "Second", "Third", "Fourth", "Last", "Done", "At once", "5 apples")
    assert tuple(part.text for part in document.parts) == expected
    assert joined(document, expected) == text


def test_a_date_and_a_decimal_are_no_marks_of_lists() -> None:
    assert planned("5. 10. 2020 war ein Tag.", words, 9, language="de").parts[0].text == "5. 10. 2020 war ein Tag."
    assert planned("1.5 apples.", words, 9).parts[0].text == "1.5 apples."


def test_cells_between_tabs_are_translated_one_by_one() -> None:
    document = planned("\tName\tThe age\r\nTom\t\t25", words, 9)
    assert [part.text for part in document.parts] == ["Name", "The age", "Tom"]
    assert document.gaps == ("\t", "\t", "\r\n", "\t\t25")


def test_a_wide_mark_of_an_item_has_no_space_behind_it() -> None:
    document = planned("・駅はどこですか。\n・ここです。そこです。", len, 20, language="ja", spaced=True)
    assert document.gaps == ("・", "\n・", " ", "")


def test_a_single_item_is_an_item() -> None:
    document = planned("- One item.", words, 9)
    assert (document.gaps, document.parts[0].text) == (("- ", ""), "One item.")


@pytest.mark.parametrize("text", ["...", "42", "3,50 €", "|---|:--|", "\u200b", "— 🙂 —", "!\n?\n\n***"])
def test_what_has_no_letters_is_not_translated(text: str) -> None:
    document = planned(text, words, 9)
    assert (document.parts, document.gaps) == ((), (text,))
    around = planned(f"One.\n{text}\nTwo.", words, 9)
    assert [part.text for part in around.parts] == ["One.", "Two."]
    assert around.gaps == ("", f"\n{text}\n", "")


def test_a_text_that_is_not_to_be_split_is_translated_whatever_it_is() -> None:
    assert [part.text for part in planned("42", words, 9, segmentation="none").parts] == ["42"]


def test_lines_are_parts_when_requested() -> None:
    document = planned("One. Two.\r\n\r\n  Three.", words, 10, segmentation="line")
    assert [part.text for part in document.parts] == ["One. Two.", "Three."]
    assert document.gaps == ("", "\r\n\r\n  ", "")


def test_a_text_is_one_part_when_nothing_is_to_be_split() -> None:
    document = planned(" One. Two.\nThree. ", words, 10, segmentation="none")
    assert [part.text for part in document.parts] == ["One. Two.\nThree."]
    assert document.gaps == (" ", " ")


@pytest.mark.parametrize("segmentation", ["line", "none"])
def test_what_is_too_long_is_split_at_sentences_that_stay_together_where_they_fit(segmentation: str) -> None:
    text = "One two. Three four. Five six seven eight nine ten, eleven."
    expected = ("One two. Three four.", "Five six seven eight nine", "ten,", "eleven.")
    assert parts(text, words, 6, segmentation=segmentation) == expected


def test_an_overlong_sentence_is_split_at_the_strongest_marks_that_do() -> None:
    text = "one two, three four; five six, seven eight nine"
    assert parts(text, words, 6) == ("one two, three four;", "five six, seven eight nine")
    assert parts(text, words, 4) == ("one two,", "three four;", "five six,", "seven eight nine")
    assert parts(text, words, 3) == ("one two,", "three four;", "five six,", "seven eight", "nine")


def test_what_is_too_long_is_refused_when_nothing_may_be_split() -> None:
    with pytest.raises(InvalidRequest, match=r"a text of 10 characters has more tokens than the model takes \(4\)"):
        planned("a b, c d e", words, 4, segmentation="none", refuse_long=True)


def test_pieces_of_an_overlong_sentence_are_about_as_long_as_sentences() -> None:
    assert {words(part) for part in parts("word " * 1000, words, 300)[:-1]} == {100}


def test_a_word_that_fits_the_model_is_never_split() -> None:
    text = "a" * 250 + " b " * 400
    assert parts(text, len, 300)[0] == "a" * 250


def test_a_word_that_can_not_be_split_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a word of 9 characters"):
        planned("abcdefghi b.", len, 5)


def test_the_language_token_counts_for_every_part() -> None:
    document = planned("One two. Three.", words, 3, lead=">>deu<< ")
    assert document.lead == ">>deu<< "
    assert [part.text for part in document.parts] == ["One", "two.", "Three."]


def test_chinese_clauses_are_split_without_spaces() -> None:
    assert parts("今天下雨，我们走了，没有人来。", len, 8) == ("今天下雨，", "我们走了，", "没有人来。")


@given(
    st.text(alphabet=st.sampled_from("ab cB.!?,;:。，\n "), max_size=80),
    st.integers(3, 8),
    st.sampled_from(get_args(Segmentation)),
)
def test_parts_and_gaps_are_the_text_and_every_part_fits(text: str, limit: int, segmentation: str) -> None:
    document = planned(text, words, limit, segmentation=segmentation)
    found = [part.text for part in document.parts]
    assert joined(document, found) == text
    assert all(words(part) <= limit for part in found)


HOSTILE = {
    "marks that end nothing": "." * 5000 + "x",
    "marks and closing quotes": '."' * 2500,
    "one word again and again": "abc " * 1250,
    "abbreviations": "e. " * 1650,
    "initials": "A. " * 1650,
    "lines": "a\n" * 2500,
    "commas": "," * 5000 + "x",
    "commas and spaces": ", " * 2500,
    "spaces": "a" + " " * 5000 + "b",
    "clauses": "a; b, c " * 620,
    "wide commas": "今天下雨，我们走了" * 550,
    "wide marks": "。" * 5000,
    "opening brackets": ". " + "(" * 5000 + "A",
    "spaced dots": ". " * 2500,
    "spaced closing quotes": ". »" * 1650,
    "opening quotes": "“ " * 2500,
    "list markers": "1. " * 1650,
    "quotes": ">" * 5000,
    "quotes and spaces": "> " * 2500,
    "tabs": "a\t" * 2500,
    "questions": "a? B! " * 830,
}


class Counting:
    """A tokenizer of one token per word that knows how many characters it has read."""

    def __init__(self) -> None:
        self.characters = 0
        self.longest = 0

    def __call__(self, text: str) -> int:
        self.characters += len(text)
        self.longest = max(self.longest, len(text))
        return words(text)


def slices(text: str, count: Counting, segmentation: str = "sentence", limit: int = 100, lead: str = "") -> Iterator[None]:
    """The slices that the plan of `text` takes; one that is refused is planned, too."""
    plan: Any = plan_document(plain_text(text), Measure(count, limit, lead), Splitting(cast(Segmentation, segmentation)))
    with contextlib.suppress(InvalidRequest):
        yield from plan


everything = pytest.mark.parametrize(
    ("name", "segmentation"), [(name, segmentation) for name in HOSTILE for segmentation in get_args(Segmentation)]
)


@everything
def test_each_character_is_tokenised_a_bounded_number_of_times(name: str, segmentation: str) -> None:
    count = Counting()
    list(slices(HOSTILE[name] * 8, count, segmentation))
    assert count.characters <= 8 * len(HOSTILE[name] * 8)


@pytest.mark.parametrize("name", HOSTILE)
@on_a_calm_machine
def test_splitting_takes_linear_time(name: str) -> None:
    def seconds(text: str) -> float:
        began_s = time.thread_time()
        list(slices(text, Counting()))
        return time.thread_time() - began_s

    once, four_times = (min(seconds(HOSTILE[name] * factor) for _ in range(3)) for factor in (2, 8))
    assert four_times <= 4 * 2.5 * max(once, 0.0005)


@everything
def test_no_slice_tokenises_much(name: str, segmentation: str) -> None:
    count = Counting()
    before = 0
    for _ in slices(HOSTILE[name] * 8, count, segmentation):
        assert count.characters - before <= 8192
        before = count.characters
    assert count.longest <= 2048


def test_no_slice_tokenises_a_long_lead_often() -> None:
    count, before = Counting(), 0
    for _ in slices("A. " * 3000, count, lead="go on " * 40):
        assert count.characters - before <= 8192
        before = count.characters
