"""Where sentences end, in languages that write with dots, without spaces, or from right to left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentence_cases import CASES, sentences_of, text_of

from dragoman.serving.text.sentences import sentence_spans


def sentences(text: str, language: str | None = None) -> list[str]:
    return [text[slice(*span)] for span in sentence_spans(text, language) if span is not None]


KNOWN_MISSES = ("他问：“为什么？”", "真的吗？！|太好了……", "เขามาแล้ว|")
"""A quotation within a Chinese sentence looks like one that ends it; an ellipsis may go on; Thai does not mark sentences."""


@pytest.mark.parametrize(("language", "marked"), CASES)
def test_sentences_of_the_cases(language: str, marked: str) -> None:
    found = sentences(text_of(marked), language)
    assert (found == sentences_of(marked)) != marked.startswith(KNOWN_MISSES), found


@pytest.mark.parametrize("code", ["de", "deu", "deu_Latn", "de_DE", "__de__", ">>deu<<"])
def test_a_language_may_be_spelt_in_any_way(code: str) -> None:
    assert sentences("Am 3. Mai ging er.", code) == ["Am 3. Mai ging er."]


def test_the_language_chooses_the_rules() -> None:
    text = "Sie wohnt nahe bzw. Er wohnt fern."
    assert sentences(text, "de") == [text]
    assert len(sentences(text, "en")) == 2


@pytest.mark.parametrize("language", [None, "tlh", "not a code", "xx-yy-zz"])
def test_without_a_known_language_the_usual_rules_hold(language: str | None) -> None:
    assert sentences("Mr. Smith left. It rained.", language) == ["Mr. Smith left.", "It rained."]


def test_thai_is_split_at_spaces_into_pieces_as_long_as_sentences() -> None:
    clause = "เขาไปโรงเรียนทุกวัน"
    pieces = sentences(" ".join([clause] * 20), "th")
    assert all(60 <= len(piece) <= 60 + len(clause) for piece in pieces[:-1])
    assert " ".join(pieces) == " ".join([clause] * 20)


@given(
    st.text(alphabet=st.sampled_from("ab AB.!?…\"'()»“。．\n\t\xa03-•"), max_size=60),
    st.sampled_from([None, "en", "de", "fr", "zh", "th"]),
)
def test_nothing_but_white_space_stands_between_sentences(text: str, language: str | None) -> None:
    spans = [span for span in sentence_spans(text, language) if span is not None]
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    assert edges == sorted(edges)
    assert all(not text[before:after].strip() for before, after in zip(edges[::2], edges[1::2], strict=True))
    assert all(text[start:end].strip() == text[start:end] != "" for start, end in spans)


@pytest.mark.parametrize("line", [" \n", "* * *\n", " \u2028", "a\n"])
def test_a_text_of_short_lines_has_pauses(line: str) -> None:
    assert sum(span is None for span in sentence_spans(line * 10_000)) >= 90
