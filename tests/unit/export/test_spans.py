"""Where tokens stand in a text: every kind of tokenizer, in the caller's own characters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bundled_tokenizer import bundled_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from dragoman.bundle.spans import Span, joined_empty, spans_by_decoding
from dragoman.bundle.tokenizer import Tokenizer
from dragoman.export.checkpoint import read_checkpoint
from random_families import FAMILIES
from random_marian import REFERENCE_MODEL

TEXTS = [
    "Where is the station?",
    "  two  spaces ",
    "ﬁne Ｆｕｌｌ width，☃ and n̈",
    "naïve café – “quoted”",
    "日本語 text",
    "👩‍👩‍👧 x",
    "",
]
FAMILIES_OF_KIND = ["NLLB", "M2M100", "T5", "BART", "ByT5"]


@pytest.fixture(scope="module", params=["Marian", *FAMILIES_OF_KIND])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("spans")
    named = request.param
    path: Path = REFERENCE_MODEL if named == "Marian" else FAMILIES[named].write(directory / "model")
    checkpoint = read_checkpoint(path)
    return bundled_tokenizer(checkpoint, directory)


@pytest.mark.parametrize("text", TEXTS)
def test_source_spans_are_ranges_of_the_text_in_order(tokenizer: Tokenizer, text: str) -> None:
    spans = tokenizer.source_spans(text)
    assert len(spans) == len(tokenizer.encode(text))
    assert all(0 <= begin <= end <= len(text) for begin, end in spans)
    begins = [begin for begin, end in spans if begin < end]
    assert begins == sorted(begins)
    covered = {at for begin, end in spans for at in range(begin, end)}
    assert {at for at, character in enumerate(text) if not character.isspace()} <= covered


@pytest.mark.parametrize("text", TEXTS)
def test_target_spans_are_ranges_of_the_decoded_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode_target(text)
    ids = [*ids[:3], *tokenizer.encode("")[-1:], *ids[3:]]  # a special token has no characters
    decoded, spans = tokenizer.decode(ids), tokenizer.target_spans(ids)
    assert len(spans) == len(ids)
    assert all(0 <= begin <= end <= len(decoded) for begin, end in spans)
    covered = {at for begin, end in spans for at in range(begin, end)}
    assert {at for at, character in enumerate(decoded) if not character.isspace()} <= covered


def test_a_ligature_is_found_where_it_stands(tokenizer: Tokenizer) -> None:
    text = "ab  ﬁsh ok"
    of_ligature = [text[begin:end].strip() for begin, end in tokenizer.source_spans(text) if begin <= 4 < end]
    assert of_ligature
    assert all("ﬁsh".startswith(piece) for piece in of_ligature)


def test_a_language_before_and_behind_the_text_has_no_characters(tokenizer: Tokenizer) -> None:
    spans = tokenizer.source_spans("a b", [4], [5, 6])
    assert spans[0] == (0, 0)
    assert spans[-2:] == [(3, 3)] * 2
    assert len(spans) == len(tokenizer.encode("a b", [4], [5, 6]))


def test_parts_of_a_character_are_all_at_its_place() -> None:
    text = "é☃"
    spans = spans_by_decoding(lambda ids: bytes(ids).decode(errors="replace"), list(text.encode()))
    assert spans == [(0, 1)] * 2 + [(1, 2)] * 3


def spans_by_prefixes(decode: Callable[[list[int]], str], ids: list[int]) -> list[Span]:
    """What `spans_by_decoding` has to find, from every prefix decoded anew."""
    text, spans, end = decode(ids), list[Span](), 0
    for count in range(1, len(ids) + 1):
        begin, beginning = end, text if count == len(ids) else decode(ids[:count])
        while end < min(len(text), len(beginning)) and beginning[end] == text[end]:
            end += 1
        spans.append((begin, end))
    return joined_empty(spans)


@pytest.mark.parametrize("text", [*TEXTS, "It's 3:45 – don't ☃☃ stop…  Ünïcödé, 日本 and 👩‍👩‍👧!"])
def test_spans_from_a_few_tokens_are_those_from_all_tokens_before(tokenizer: Tokenizer, text: str) -> None:
    decode = tokenizer.decode
    ids = [token for token in tokenizer.encode_target(text) if token not in tokenizer.silent]
    assert spans_by_decoding(decode, ids) == spans_by_prefixes(decode, ids)


@given(text=st.text(max_size=60))
def test_spans_of_any_text_are_those_from_all_tokens_before(text: str) -> None:
    ids = list(text.encode(errors="surrogatepass"))

    def decode(some: list[int]) -> str:
        return bytes(some).decode(errors="replace")

    assert spans_by_decoding(decode, ids) == spans_by_prefixes(decode, ids)


def test_spans_of_many_tokens_are_found_from_few_at_a_time() -> None:
    longest = 0

    def decode(ids: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids) if len(ids) < 4000 else 0)
        return bytes(ids).decode(errors="replace")

    for text in (b"word " * 800, b"\x80" * 4000, b"\xf0\x9f" * 2000):
        spans = spans_by_decoding(decode, list(text))
        assert len(spans) == len(text)
        assert spans[-1][1] == len(decode(list(text)))
    assert longest < 200


@given(data=st.data())
def test_spans_of_any_tokens_are_what_each_adds_to_the_text(tokenizer: Tokenizer, data: st.DataObject) -> None:
    if not hasattr(tokenizer, "text_of") or not hasattr(tokenizer, "text_spans"):
        pytest.skip("this tokenizer is not decoded piece by piece")
    written = [index for text in TEXTS for index in tokenizer.encode_target(text)]  # the mark of a space alone, too
    ids = data.draw(st.lists(st.integers(5, 900) | st.sampled_from(written), max_size=12))
    ids = [index for index in ids if index not in tokenizer.silent]
    assert tokenizer.text_spans(ids) == spans_by_decoding(tokenizer.text_of, ids)
