"""What languages a bundle has, and how those of a request become tokens."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.bundle.language_codes import parse_tag
from dragoman.bundle.languages import NO_LANGUAGE_TOKENS, LanguageResolver, LanguageTokens, language_resolver
from dragoman.bundle.manifest import (
    SCHEMA_VERSION,
    Dimensions,
    Languages,
    Manifest,
    ModelCard,
    SpecialTokens,
    TokenizerFiles,
)
from dragoman.errors import InvalidRequest
from dragoman.search import DecodingOptions


def resolver(source: str | None, target: str | None, tokens: dict[str, int] | None = None) -> LanguageResolver:
    return language_resolver(manifest(ModelCard("m", "MarianMTModel", 1, source, target)), tokens)


def manifest(
    card: ModelCard = ModelCard("m", "M2M100ForConditionalGeneration", 1),  # noqa: B008 - frozen
    languages: Languages | None = None,
    generation: DecodingOptions = DecodingOptions(),  # noqa: B008 - frozen
) -> Manifest:
    return Manifest(
        schema_version=SCHEMA_VERSION,
        dragoman_version="0.1.0",
        model=card,
        dimensions=Dimensions(8, 1, 8, 1, 1, 64, 64, max_source_tokens=24, max_target_tokens=24),
        tokens=SpecialTokens(pad=1, eos=2, decoder_start=2),
        generation=generation,
        tokenizer=TokenizerFiles("marian", {}),
        precision="fp32",
        targets=("cpu",),
        graphs=(),
        files={},
        languages=languages,
    )


PAIR = resolver("en", "de")
MANY = resolver(
    "en", "mul", {">>deu<<": 7, ">>cmn_Hans<<": 8, ">>cmn_Hant<<": 9, ">>pt_BR<<": 10, ">>x-odd<<": 11, ">>nob<<": 12}
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
        assert (PAIR.source.codes, PAIR.target.codes) == (("en",), ("de",))

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

    def test_a_bundle_without_languages_refuses_language_options(self) -> None:
        with pytest.raises(InvalidRequest, match="does not list its languages"):
            resolver(None, None).tokens("en", None)


class TestSeveralLanguages:
    @pytest.mark.parametrize(
        ("code", "token"),
        [
            ("de", 7),
            ("deu", 7),
            ("de-AT", 7),
            ("zh-Hans", 8),
            ("cmn_hant", 9),
            ("zh-TW", 9),
            ("zh_HK", 9),
            ("zh-CN", 8),
            ("no", 12),
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
        with pytest.raises(InvalidRequest, match=r"'pt-PT' is not .* the nearest it has is pt-BR"):
            MANY.tokens(None, "pt-PT")

    def test_a_region_stands_for_the_script_that_is_written_there(self) -> None:
        simplified = resolver("en", "mul", {">>zh_CN<<": 7, ">>no<<": 8})
        assert [simplified.tokens("en", code).source_prefix for code in ("zh", "zh-Hans", "cmn", "nb")] == [
            (7,), (7,), (7,), (8,)
        ]  # fmt: skip
        for code in ("zh-TW", "zh-Hant"):
            with pytest.raises(InvalidRequest, match=f"'{code}' is not a target language .* nearest it has is zh-CN"):
                simplified.tokens("en", code)

    def test_a_literal_token_is_found_with_the_space_after_it(self) -> None:
        assert MANY.leading_token(">>deu<<  Hello") == ">>deu<<  "

    @pytest.mark.parametrize("text", ["Hello >>deu<<", ">>deu", ">> deu<< x", "<<deu>>", ">>" + "x" * 100 + "<<"])
    def test_anything_else_is_text(self, text: str) -> None:
        assert MANY.leading_token(text) == ""

    def test_a_group_of_source_languages_takes_any_of_them(self) -> None:
        languages = resolver("gem", "en")
        assert languages.tokens("sv", "en") == NO_LANGUAGE_TOKENS
        with pytest.raises(InvalidRequest, match="not a language code"):
            languages.tokens("??", "en")


def test_tokens_go_around_a_source() -> None:
    assert LanguageTokens(source_prefix=(5,), source_suffix=(6,)).wrap([1, 2, 0]) == (5, 1, 2, 0, 6)


NLLB = Languages({"eng_Latn": 50, "deu_Latn": 51, "zho_Hans": 52, "zho_Hant": 53}, "before", "forced_bos")


class TestLanguagesOfTheManifest:
    def test_the_source_token_goes_before_the_source_and_the_target_is_forced(self) -> None:
        tokens = language_resolver(manifest(languages=NLLB)).tokens("en", "zh-Hant")
        assert tokens == LanguageTokens(source_prefix=(50,), forced_bos=53)

    def test_the_source_token_goes_after_the_end_token(self) -> None:
        languages = dataclasses.replace(NLLB, source_place="after")
        assert language_resolver(manifest(languages=languages)).tokens("en", "de").wrap([7, 2]) == (7, 2, 50)

    def test_the_target_token_goes_before_the_source_where_the_model_wants_it_there(self) -> None:
        languages = dataclasses.replace(NLLB, source_place="none", target_place="source_before")
        assert language_resolver(manifest(languages=languages)).tokens("en", "de") == LanguageTokens(source_prefix=(51,))

    @pytest.mark.parametrize(
        ("source", "target", "missing"), [(None, "de", "source_language"), ("en", None, "target_language")]
    )
    def test_a_language_that_the_model_needs_must_be_named(
        self, source: str | None, target: str | None, missing: str
    ) -> None:
        with pytest.raises(InvalidRequest, match=f"this model needs a {missing}; it has en-Latn, de-Latn, zh-Hans, zh-Hant"):
            language_resolver(manifest(languages=NLLB)).tokens(source, target)

    def test_the_bundles_defaults_take_the_place_of_languages_that_are_not_named(self) -> None:
        languages = dataclasses.replace(NLLB, default_source="eng_Latn", default_target="deu_Latn")
        found = language_resolver(manifest(languages=languages))
        assert found.tokens(None, None) == LanguageTokens(source_prefix=(50,), forced_bos=51)
        assert found.tokens("de", "en") == LanguageTokens(source_prefix=(51,), forced_bos=50)

    def test_a_first_token_that_the_model_forces_anyway_is_default_enough(self) -> None:
        bundle = manifest(languages=NLLB, generation=DecodingOptions(forced_bos=51))
        assert language_resolver(bundle).tokens("en", None) == LanguageTokens(source_prefix=(50,))

    def test_the_start_token_may_choose_the_target_language(self) -> None:
        languages = Languages({"en_XX": 1, "ro_RO": 2}, "after", "decoder_start")
        found = language_resolver(manifest(languages=languages))
        assert found.tokens("en", "ro") == LanguageTokens(source_suffix=(1,), decoder_start=2)
        chosen = found.tokens("ro", "en")
        assert chosen == LanguageTokens(source_suffix=(2,), decoder_start=1)
        assert chosen.apply(DecodingOptions(beam_size=2)) == DecodingOptions(beam_size=2, decoder_start=1)
