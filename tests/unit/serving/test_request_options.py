"""Options of requests: one schema, and nothing a caller writes gets past it."""

from __future__ import annotations

import json
import math

import pytest
from fake_bundle import MANIFEST
from hypothesis import example, given, settings
from hypothesis import strategies as st
from options_reader import DEFAULTS, DIMENSIONS, LIMITS, READER, read

from dragoman.bundle.languages import LanguageResolver, language_resolver
from dragoman.errors import InvalidRequest
from dragoman.search.options import DECODING_OPTIONS, DecodingOptions
from dragoman.serving.process.options import OptionsReader, RequestOptions
from dragoman.serving.process.request_admission import check_sizes, read_text

TOKENS = {">>deu<<": 7, ">>nld<<": 9}
OWN = {"request_id", "timeout_ms", "priority", "prefix_text", "split", "cache", "source_language", "target_language"} | {
    "task",
    "task_prefix",
}


class TestTexts:
    def test_arrive_as_they_were_sent(self) -> None:
        assert [read_text(raw, 0, 1) for raw in ("Grüße".encode(), b"a\tb\nc")] == ["Grüße", "a\tb\nc"]

    @pytest.mark.parametrize(
        ("raw", "complaint"),
        [
            ([], "at least one text"),
            ([b"a"] * 4, "4 texts are too many"),
            ([b"x" * 101], "101 bytes; this server takes 100"),
            ([b"x" * 90] * 3, "the texts have 270 bytes; this server takes 250"),
        ],
    )
    def test_too_many_or_too_large_are_refused(self, raw: list[bytes], complaint: str) -> None:
        with pytest.raises(InvalidRequest, match=complaint):
            check_sizes(raw, LIMITS)

    @pytest.mark.parametrize(
        ("raw", "complaint"),
        [
            (b"", "the text is empty"),
            (b" \n\t", "the text is empty"),
            (b"\xff\xfe", "the text is not UTF-8"),
            ("ü".encode()[:1], "not UTF-8"),
            (b"\xed\xa0\x80", "not UTF-8"),  # a surrogate
            (b"a\x00b", r"control character U\+0000 at 1"),
            (b"a\x1b[31m", r"control character U\+001B"),
            ("a\x9bb".encode(), r"control character U\+009B"),
        ],
    )
    def test_unreadable_ones_are_refused_with_the_reason(self, raw: bytes, complaint: str) -> None:
        with pytest.raises(InvalidRequest, match=complaint):
            read_text(raw, 0, 1)

    def test_never_appear_in_the_refusal(self) -> None:
        with pytest.raises(InvalidRequest, match="text 1 has the control") as refused:
            read_text(b"secret\x00word", 1, 2)
        assert "secret" not in str(refused.value)


class TestOptions:
    def test_missing_options_are_the_models_own(self) -> None:
        assert READER.read(b"").decoding == DEFAULTS

    def test_only_what_was_named_differs_from_the_models_own(self) -> None:
        assert read({"beam_size": 2}).decoding == DecodingOptions(beam_size=2, length_penalty=0.6)

    def test_what_is_beside_the_search_is_read(self) -> None:
        options = read({"timeout_ms": 250, "priority": "batch", "prefix_text": "Wo", "split": "line", "cache": False})
        assert (options.timeout_s, options.priority, options.prefix_text) == (0.25, "batch", "Wo")
        assert (options.split, options.cache) == ("line", False)

    def test_null_is_as_good_as_nothing_where_there_is_no_default(self) -> None:
        options = read({"timeout_ms": None, "request_id": None, "source_language": None, "target_language": None})
        assert (options.timeout_s, options.target_language) == (None, None)

    def test_a_request_without_an_id_gets_a_unique_one(self) -> None:
        assert read({}).request_id == ""
        assert READER.new_request_id() != READER.new_request_id()

    def test_a_request_keeps_its_id(self) -> None:
        assert read({"request_id": "a-1"}).request_id == "a-1"

    @pytest.mark.parametrize(
        ("options", "complaint"),
        [
            ({"beam_size": 1_000_000}, r"beam_size=1000000 is more than this server allows \(16\)"),
            ({"beam_size": -1}, "beam_size=-1 must be a whole number between 1 and"),
            ({"beam_size": "4"}, "wrong type"),
            ({"beam_size": True}, "wrong type"),
            ({"beam_size": 4.0}, "wrong type"),
            ({"beem_size": 4}, "unknown option 'beem_size'; known are alignment, alternatives_at, bad_words, beam_size"),
            ({"model": "en-de"}, "unknown option 'model'"),
            ({"max_length": 129}, r"more than the model can generate \(128 tokens\)"),
            ({"prefix": [50]}, "token id 50 is outside the model's vocabulary of 50"),
            ({"bad_words": [[1, 99]]}, "token id 99 is outside"),
            ({"bad_words": [[]]}, "has an empty list"),
            ({"forced_bos": 50}, "token id 50"),
            ({"timeout_ms": 0}, "must be a number above 0"),
            ({"timeout_ms": -5}, "must be a number above 0"),
            ({"timeout_ms": 10**9}, "at most 600000"),
            ({"priority": "urgent"}, "must be one of interactive, batch"),
            ({"priority": ["batch"]}, "must be one of"),
            ({"split": "words"}, "must be one of sentence, line, none"),
            ({"cache": "no"}, "must be true or false"),
            ({"request_id": ""}, "printable"),
            ({"request_id": "a\nb"}, "printable"),
            ({"request_id": "x" * 129}, "1 to 128"),
            ({"prefix_text": 3}, "must be a text"),
            ({"prefix_text": "a\x00"}, "control character"),
            ({"sampling": True}, "sampling with beam_size=4"),
            ({"target_language": "fr"}, "'fr' is not a target language of this model; it has de"),
            ({"source_language": "x"}, "'x' is not a language code"),
            ([], "must be a JSON object"),
            (3, "must be a JSON object"),
        ],
    )
    def test_impossible_ones_are_refused_with_the_reason(self, options: object, complaint: str) -> None:
        with pytest.raises(InvalidRequest, match=complaint):
            read(options)

    @pytest.mark.parametrize(
        ("raw", "complaint"),
        [
            (b"{", "not JSON"),
            (b"\xff", "not UTF-8"),
            (b"[" * 4000, "not JSON"),
            (b'{"seed": ' + b"9" * 4000 + b"}", "4000 digits"),
            (b" " * 9000, "9000 bytes"),
            (b'{"seed": 1, "seed": 2}', "same name twice"),
            (b'{"temperature": NaN}', "NaN is not a number"),
            (b'{"temperature": -Infinity}', "-Infinity is not a number"),
            (b'{"temperature": 1e999}', "temperature=inf must be"),
        ],
    )
    def test_broken_json_is_refused_with_the_reason(self, raw: bytes, complaint: str) -> None:
        with pytest.raises(InvalidRequest, match=complaint):
            READER.read(raw)

    @pytest.mark.parametrize("name", sorted({*DECODING_OPTIONS, *OWN}))
    @pytest.mark.parametrize(
        "value",
        [
            pytest.param("1" + "0" * 310, id="310 digits"),
            pytest.param("-1" + "0" * 310, id="minus 310 digits"),
            pytest.param("NaN", id="NaN"),
            pytest.param("1e999", id="infinity"),
            pytest.param("[" * 600 + "]" * 600, id="600 lists deep"),
            pytest.param('{"a": [[[]]]}', id="an object"),
            pytest.param('"\\ud800"', id="a lone surrogate"),
            pytest.param(f'"{"x" * 9000}"', id="9000 characters"),
            pytest.param('[["\\udfff"]]', id="a surrogate in a list"),
            pytest.param("[1.5]", id="a fraction in a list"),
            pytest.param("[[true]]", id="a boolean in a list"),
            pytest.param(f"[{'1,' * 5000}1]", id="a list of 5001"),
        ],
    )
    def test_absurd_values_are_refused(self, name: str, value: str) -> None:
        with pytest.raises(InvalidRequest) as refused:
            READER.read(f'{{"{name}": {value}}}'.encode())
        assert len(str(refused.value)) < 1000
        assert str(refused.value).isprintable()
        if name in DECODING_OPTIONS:  # a caller of the library gets no further
            with pytest.raises(InvalidRequest):
                DecodingOptions(**{name: json.loads(value)})

    def test_every_option_of_the_search_is_in_the_schema(self) -> None:
        assert set(DECODING_OPTIONS) == set(DecodingOptions.__dataclass_fields__)


class TestLanguages:
    def reader(self, languages: LanguageResolver) -> OptionsReader:
        return OptionsReader(DIMENSIONS, DEFAULTS, LIMITS, languages)

    @pytest.mark.parametrize("code", ["de", "DE", "deu", "ger", "de-AT", "de_DE"])
    def test_a_pair_takes_its_own_languages_in_any_spelling(self, code: str) -> None:
        options = read({"target_language": code, "source_language": "eng"})
        assert len(options.language_tokens) == 0

    def test_a_multilingual_model_gets_the_token_of_the_language(self) -> None:
        languages = language_resolver(MANIFEST, TOKENS)
        options = read({"target_language": "nl"}, self.reader(languages))
        assert options.language_tokens.wrap([1, 0]) == (9, 1, 0)

    def test_languages_are_part_of_the_cache_key(self) -> None:
        languages = language_resolver(MANIFEST, TOKENS)
        keys = {read({"target_language": code}, self.reader(languages)).cache_key("x") for code in ("de", "deu", "nl")}
        assert len(keys) == 2


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=40)
    | st.sampled_from(["batch", "split", "never", "de", "en-US", ">>deu<<", "\ud800", "a\x00"]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
names = st.sampled_from(sorted({*DECODING_OPTIONS, *OWN})) | st.text(max_size=20)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(names, json_values, max_size=4))
@example({"request_id": "\ud800"})
def test_any_json_becomes_options_or_a_refusal(given_options: dict[str, object]) -> None:
    try:
        options = read(given_options)
    except InvalidRequest as error:
        str(error).encode()
        return
    assert isinstance(options, RequestOptions)
    assert math.isfinite(options.decoding.length_penalty)
    options.prefix_text.encode()
    hash(options.cache_key("x"))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
@example(b'{"a":' * 900)
@example(b'{"beam_size": ' + b"[" * 984 + b"]" * 984 + b"}")
@example(b'{"bad_words": ' + b"[" * 3000 + b"]" * 3000 + b"}")
def test_any_bytes_become_options_or_a_refusal(raw: bytes) -> None:
    try:
        assert isinstance(READER.read(raw), RequestOptions)
    except InvalidRequest as error:
        str(error).encode()
