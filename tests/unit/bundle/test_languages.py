"""What languages a bundle has, and how those of a request become tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.bundle.language_codes import parse_tag
from dragoman.bundle.languages import NO_LANGUAGE_TOKENS, Languages, LanguageTokens, marian_languages
from dragoman.bundle.manifest import ModelCard
from dragoman.errors import InvalidRequest


def model(source: str | None, target: str | None) -> ModelCard:
    return ModelCard("m", "MarianMTModel", 0, source, target)


PAIR = marian_languages(model("en", "de"), {})
MANY = marian_languages(
    model("en", "mul"), {">>deu<<": 7, ">>cmn_Hans<<": 8, ">>cmn_Hant<<": 9, ">>pt_BR<<": 10, ">>x-odd<<": 11, ">>nob<<": 12}
)


class TestCodes:
    @pytest.mark.parametrize(
        ("code", "tag"),
        [
            ("en", "en"),
            ("eng", "en"),
            ("EN-us", "en-US"),
            ("eng_Latn", "en-Latn"),
            ("en_XX", "en"),
            ("__en__", "en"),
            (">>eng<<", "en"),
            ("ger", "de"),
            ("cmn_Hant", "zh-Hant"),
            ("iw", "he"),
            ("es-419", "es-419"),
            ("haw", "haw"),
        ],
    )
    def test_usual_spellings_mean_the_same(self, code: str, tag: str) -> None:
        assert str(parse_tag(code)) == tag

    @pytest.mark.parametrize("code", ["", "e", "e n", "deutsch!", "ü", "\ud800", "en--us", "x" * 36, "12"])
    def test_what_is_no_code_is_none(self, code: str) -> None:
        assert parse_tag(code) is None

    @given(st.text())
    def test_any_text_is_a_tag_or_none(self, code: str) -> None:
        tag = parse_tag(code)
        assert tag is None or str(tag).isascii()


class TestPair:
    def test_lists_its_languages(self) -> None:
        assert (PAIR.source_codes, PAIR.target_codes) == (("en",), ("de",))

    @pytest.mark.parametrize(
        ("source", "target"), [("en", "de"), ("eng", None), (None, "DEU"), ("en-US", "de-CH"), (None, None)]
    )
    def test_takes_its_own_languages_and_needs_no_tokens(self, source: str | None, target: str | None) -> None:
        assert PAIR.tokens(source, target) == NO_LANGUAGE_TOKENS

    @pytest.mark.parametrize(
        ("source", "target", "complaint"),
        [
            ("de", "en", "source_language='de' is not a source language of this model; it has en"),
            ("en", "fr", "target_language='fr' is not a target language of this model; it has de"),
            ("en", "\ud800", "not a language code"),
        ],
    )
    def test_refuses_others_and_lists_what_there_is(self, source: str, target: str, complaint: str) -> None:
        with pytest.raises(InvalidRequest, match=complaint):
            PAIR.tokens(source, target)

    def test_reads_no_language_token_from_a_text(self) -> None:
        assert PAIR.leading_token(">>fra<< Hello") == ""

    def test_a_bundle_that_names_no_languages_can_be_asked_for_none(self) -> None:
        with pytest.raises(InvalidRequest, match="does not say which languages it has"):
            marian_languages(model(None, None), {}).tokens("en", None)


class TestSeveralLanguages:
    @pytest.mark.parametrize(
        ("code", "token"),
        [
            ("de", 7),
            ("deu", 7),
            ("de-AT", 7),
            ("zh-Hans", 8),
            ("cmn_hant", 9),
            ("pt", 10),
            ("pt-BR", 10),
            ("x-odd", 11),
            ("nb", 12),
        ],
    )
    def test_the_target_languages_token_goes_before_the_source(self, code: str, token: int) -> None:
        assert MANY.tokens("en", code) == LanguageTokens(source_prefix=(token,))

    def test_an_ambiguous_code_is_refused_with_the_choices(self) -> None:
        with pytest.raises(InvalidRequest, match="'zh' could be several languages of this model: zh-Hans, zh-Hant"):
            MANY.tokens(None, "zh")

    def test_another_region_is_not_the_one_there_is(self) -> None:
        with pytest.raises(InvalidRequest, match="'pt-PT' could be"):
            MANY.tokens(None, "pt-PT")

    def test_a_literal_token_is_found_with_the_space_after_it(self) -> None:
        assert MANY.leading_token(">>deu<<  Hello") == ">>deu<<  "

    @pytest.mark.parametrize("text", ["Hello >>deu<<", ">>deu", ">> deu<< x", "<<deu>>", ">>" + "x" * 100 + "<<"])
    def test_anything_else_is_text(self, text: str) -> None:
        assert MANY.leading_token(text) == ""

    def test_a_group_of_source_languages_takes_any_of_them(self) -> None:
        languages = marian_languages(model("gem", "en"), {})
        assert languages.tokens("sv", "en") == NO_LANGUAGE_TOKENS
        with pytest.raises(InvalidRequest, match="not a language code"):
            languages.tokens("??", "en")


def test_tokens_go_around_a_source() -> None:
    assert LanguageTokens(source_prefix=(5,), source_suffix=(6,)).wrap([1, 2, 0]) == (5, 1, 2, 0, 6)


def test_a_model_that_forces_the_first_token_gets_the_language_there() -> None:
    targets = tuple(language for language in MANY.targets if str(language) == "de")
    assert Languages(targets=targets).tokens(None, "de") == LanguageTokens(forced_bos=7)
