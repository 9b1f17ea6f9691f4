import json
import math

import pytest

from dragoman.bundle.manifest import Dimensions
from dragoman.errors import InvalidRequest
from dragoman.search.options import DecodingOptions
from dragoman.serving.process.admission import Admission, Terms, read_texts
from dragoman.wire import Limits

LIMITS = Limits(max_texts=3, max_text_bytes=100, max_options_bytes=4096)
ADMISSION = Admission(
    model="en-de",
    dimensions=Dimensions(
        d_model=16,
        heads=2,
        head_dim=8,
        encoder_layers=1,
        decoder_layers=1,
        source_vocabulary=50,
        target_vocabulary=50,
        max_source_tokens=64,
        max_target_tokens=128,
    ),
    defaults=DecodingOptions(beam_size=4, length_penalty=0.6),
    limits=LIMITS,
)


def read(options: object) -> Terms:
    return ADMISSION.read_options(json.dumps(options).encode())


class TestTexts:
    def test_arrive_as_they_were_sent(self) -> None:
        assert read_texts(["Grüße".encode(), b"a\tb\nc"], LIMITS) == ["Grüße", "a\tb\nc"]

    @pytest.mark.parametrize(
        ("raw", "complaint"),
        [
            ([], "at least one text"),
            ([b"a"] * 4, "4 texts are too many"),
            ([b""], "the text is empty"),
            ([b" \n\t"], "the text is empty"),
            ([b"fine", b"\xff\xfe"], "text 1 is not UTF-8"),
            (["ü".encode()[:1]], "not UTF-8"),
            ([b"x" * 101], "101 bytes; this server takes 100"),
            ([b"a\x00b"], r"control character U\+0000 at 1"),
            ([b"a\x1b[31m"], r"control character U\+001B"),
            (["a\x9bb".encode()], r"control character U\+009B"),
        ],
    )
    def test_are_refused_with_the_reason(self, raw: list[bytes], complaint: str) -> None:
        with pytest.raises(InvalidRequest, match=complaint):
            read_texts(raw, LIMITS)

    def test_never_appear_in_the_refusal(self) -> None:
        with pytest.raises(InvalidRequest) as refused:
            read_texts([b"secret\x00word"], LIMITS)
        assert "secret" not in str(refused.value)


class TestOptions:
    def test_missing_options_are_the_models_own(self) -> None:
        assert ADMISSION.read_options(b"").decoding == ADMISSION.defaults

    def test_only_what_was_named_differs_from_the_models_own(self) -> None:
        assert read({"beam_size": 2}).decoding == DecodingOptions(beam_size=2, length_penalty=0.6)

    def test_what_is_beside_the_search_is_read(self) -> None:
        terms = read({"timeout_ms": 250, "priority": "batch", "prefix_text": "Wo", "long_input": "refuse", "cache": False})
        assert (terms.timeout_s, terms.priority, terms.prefix_text) == (0.25, "batch", "Wo")
        assert (terms.long_input, terms.cache) == ("refuse", False)

    def test_a_request_without_an_id_gets_one_of_its_own(self) -> None:
        assert read({}).request_id != read({}).request_id

    def test_a_request_keeps_its_id(self) -> None:
        assert read({"request_id": "a-1"}).request_id == "a-1"

    @pytest.mark.parametrize(
        ("options", "complaint"),
        [
            ({"beam_size": 1_000_000}, r"beam_size=1000000 is more than this server allows \(16\)"),
            ({"beam_size": -1}, "at least 1"),
            ({"beam_size": "4"}, "wrong type"),
            ({"beam_size": True}, "wrong type"),
            ({"beem_size": 4}, "unknown option 'beem_size'"),
            ({"max_length": 129}, r"more than the model can write \(128 tokens\)"),
            ({"length_penalty": math.inf}, "length_penalty=inf"),
            ({"temperature": math.nan}, "temperature=nan"),
            ({"prefix": [50]}, "token 50 is not in the vocabulary of 50"),
            ({"bad_words": [[1, 99]]}, "token 99 is not in the vocabulary"),
            ({"forced_bos": 50}, "token 50"),
            ({"model": "fr-de"}, "there is no model 'fr-de' here; this server has en-de"),
            ({"model": ["x"]}, "there is no model"),
            ({"timeout_ms": 0}, "must be above 0"),
            ({"timeout_ms": -5}, "must be above 0"),
            ({"timeout_ms": 10**9}, "at most 600000"),
            ({"timeout_ms": math.nan}, "must be above 0"),
            ({"priority": "urgent"}, "must be one of interactive, batch"),
            ({"priority": ["batch"]}, "must be one of"),
            ({"long_input": "cut"}, "must be one of split, refuse"),
            ({"cache": "no"}, "must be true or false"),
            ({"request_id": ""}, "printable"),
            ({"request_id": "a\nb"}, "printable"),
            ({"request_id": "x" * 129}, "1 to 128"),
            ({"prefix_text": 3}, "must be a text"),
            ({"prefix_text": "a\x00"}, "control character"),
            ({"sampling": True}, "sampling with beam_size=4"),
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
            (b'{"seed": ' + b"9" * 4000 + b"}", "seed="),
            (b" " * 5000, "5000 bytes"),
        ],
    )
    def test_rubbish_is_refused_with_the_reason(self, raw: bytes, complaint: str) -> None:
        with pytest.raises(InvalidRequest, match=complaint):
            ADMISSION.read_options(raw)
