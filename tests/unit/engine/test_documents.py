"""Long texts: split, and joined as they stood, with nothing left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import InvalidRequest
from dragoman.serving.documents import Document, split_document


def words(text: str) -> int:
    return len(text.split()) + 1  # and the end token


def test_a_short_text_is_one_part_as_it_is() -> None:
    assert split_document("  One. Two. ", words, 10) == Document(("  One. Two. ",), ("", ""))


def test_several_sentences_are_parts_when_asked() -> None:
    assert split_document("One. Two.", words, 10, sentences=True).parts == ("One.", "Two.")


def test_a_text_over_the_limit_is_split_into_sentences_and_joined_with_its_own_spacing() -> None:
    document = split_document(" It rained.  We left.\n\n\tNobody   came. ", words, 4)
    assert document.parts == ("It rained.", "We left.", "Nobody   came.")
    assert document.join(["A.", "B.", "C."]) == " A.  B.\n\n\tC. "


def test_line_breaks_survive_even_when_the_text_would_fit() -> None:
    document = split_document("Title\r\nA line", words, 100)
    assert document.join(["Titel", "Eine Zeile"]) == "Titel\r\nEine Zeile"


def test_an_overlong_sentence_is_split_at_the_strongest_marks_that_do() -> None:
    text = "one two, three four; five six, seven eight nine"
    assert split_document(text, words, 6).parts == ("one two, three four;", "five six, seven eight nine")
    assert split_document(text, words, 4).parts == ("one two,", "three four;", "five six,", "seven eight nine")
    assert split_document(text, words, 3).parts == ("one two,", "three four;", "five six,", "seven eight", "nine")


def test_an_overlong_sentence_is_refused_when_asked() -> None:
    with pytest.raises(InvalidRequest, match=r"a sentence of 10 characters has more tokens than the model takes \(4\)"):
        split_document("a b, c d e", words, 4, long_input="refuse")


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
    assert document.join(document.parts) == text
    assert all(words(part) <= limit for part in document.parts)
