"""Long texts: split, and joined as they stood, with nothing left out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import InvalidRequest
from dragoman.serving.documents import Document, plan_document


def split_document(text: str, count_tokens: Callable[[str], int], max_tokens: int, **options: Any) -> Document:
    """The plan, all at once."""
    plan = plan_document(text, count_tokens, max_tokens, **options)
    try:
        while True:
            next(plan)
    except StopIteration as done:
        return cast(Document, done.value)


def joined(document: Document, translations: Sequence[str]) -> str:
    pieces = [document.gaps[0]]
    for translation, gap in zip(translations, document.gaps[1:], strict=True):
        pieces += [translation, gap]
    return "".join(pieces)


def words(text: str) -> int:
    return len(text.split()) + 1  # and the end token


def test_a_short_text_is_one_part_as_it_is() -> None:
    assert split_document("  One. Two. ", words, 10) == Document(("  One. Two. ",), ("", ""))


def test_several_sentences_are_parts_when_asked() -> None:
    assert split_document("One. Two.", words, 10, sentences=True).parts == ("One.", "Two.")


def test_a_text_over_the_limit_is_split_into_sentences_and_joined_with_its_own_spacing() -> None:
    document = split_document(" It rained.  We left.\n\n\tNobody   came. ", words, 4)
    assert document.parts == ("It rained.", "We left.", "Nobody   came.")
    assert joined(document, ["A.", "B.", "C."]) == " A.  B.\n\n\tC. "


def test_line_breaks_survive_even_when_the_text_would_fit() -> None:
    document = split_document("Title\r\nA line", words, 100)
    assert joined(document, ["Titel", "Eine Zeile"]) == "Titel\r\nEine Zeile"


def test_an_overlong_sentence_is_split_at_the_strongest_marks_that_do() -> None:
    text = "one two, three four; five six, seven eight nine"
    assert split_document(text, words, 6).parts == ("one two, three four;", "five six, seven eight nine")
    assert split_document(text, words, 4).parts == ("one two,", "three four;", "five six,", "seven eight nine")
    assert split_document(text, words, 3).parts == ("one two,", "three four;", "five six,", "seven eight", "nine")


def test_an_overlong_sentence_is_refused_when_asked() -> None:
    with pytest.raises(InvalidRequest, match=r"a sentence of 10 characters has more tokens than the model takes \(4\)"):
        split_document("a b, c d e", words, 4, long_input="refuse")


def test_pieces_of_an_overlong_sentence_are_about_as_long_as_sentences() -> None:
    parts = split_document("word " * 1000, words, 300).parts
    assert {words(part) for part in parts[:-1]} == {100}


def test_a_word_that_fits_the_model_is_never_split() -> None:
    text = "a" * 250 + " b " * 400
    assert split_document(text, len, 300).parts[0] == "a" * 250


def test_a_word_that_can_not_be_split_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a word of 9 characters"):
        split_document("abcdefghi b.", len, 5)


def test_the_language_token_goes_before_every_part() -> None:
    assert split_document(">>deu<< One. Two.", words, 3, lead=">>deu<< ").parts == (">>deu<< One.", ">>deu<< Two.")


def test_chinese_clauses_are_split_without_spaces() -> None:
    assert split_document("今天下雨，我们走了，没有人来。", len, 8).parts == ("今天下雨，", "我们走了，", "没有人来。")


@given(st.text(alphabet=st.sampled_from("ab cB.!?,;:。，\n "), max_size=80), st.integers(3, 8))
def test_parts_and_gaps_are_the_text_and_every_part_fits(text: str, limit: int) -> None:
    document = split_document(text, words, limit)
    assert joined(document, document.parts) == text
    assert all(words(part) <= limit for part in document.parts)


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


def planned(text: str, count: Counting, limit: int = 100) -> int:
    """How many slices the plan of `text` takes; one that is refused is planned, too."""
    slices = 1
    with contextlib.suppress(InvalidRequest):
        for _ in plan_document(text, count, limit):
            slices += 1
    return slices


@pytest.mark.parametrize("name", HOSTILE)
def test_each_character_is_tokenised_a_bounded_number_of_times(name: str) -> None:
    count = Counting()
    planned(HOSTILE[name] * 8, count)
    assert count.characters <= 8 * len(HOSTILE[name] * 8)


@pytest.mark.parametrize("name", HOSTILE)
def test_splitting_takes_linear_time(name: str) -> None:
    def seconds(text: str) -> float:
        began_s = time.thread_time()
        planned(text, Counting())
        return time.thread_time() - began_s

    once, four_times = (min(seconds(HOSTILE[name] * factor) for _ in range(5)) for factor in (4, 16))
    assert four_times <= 4 * 2.5 * max(once, 0.0005)


def test_no_slice_tokenises_much() -> None:
    for name, text in HOSTILE.items():
        count = Counting()
        before = 0
        with contextlib.suppress(InvalidRequest):
            for _ in plan_document(text * 8, count, 100):
                assert count.characters - before <= 8192, name
                before = count.characters
        assert count.longest <= 2048, name
