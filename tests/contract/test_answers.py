"""What a real server says about its answers is what `dragoman.wire` lists, and `docs/wire.md` explains all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.bundle.languages import LanguageResolver
from dragoman.bundle.manifest import Dimensions
from dragoman.search.option_types import Integer
from dragoman.search.options import DECODING_OPTIONS, DecodingOptions
from dragoman.serving.process.options import OptionsReader
from dragoman.wire import (
    BUNDLE_FIELDS,
    CHECK_FIELDS,
    DETAILS_FIELDS,
    ERROR_FIELDS,
    MODEL_INFO_FIELDS,
    SCORED_FIELDS,
    STATUS_FIELDS,
    TEXT_FIELDS,
    WIRE_VERSION,
    Limits,
)
from served import Caller

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "wire.md"
SENTENCE = "The old man and his dog walked slowly along the river."


def test_translate_returns_what_the_contract_lists(caller: Caller) -> None:
    details = caller.translate([SENTENCE, "It is raining."], cache=False).details
    assert tuple(details) == DETAILS_FIELDS
    assert [tuple(text) for text in details["texts"]] == [TEXT_FIELDS] * 2
    assert details["wire_version"] == WIRE_VERSION


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_stream_returns_as_much_as_translate(caller: Caller, beam_size: int) -> None:
    """Everything but the times is equal, and the counts are those of the tensors that a stream does not have."""
    unary = caller.translate([SENTENCE], beam_size=beam_size, cache=False, request_id="same")
    *_, last = caller.stream(SENTENCE, beam_size=beam_size, cache=False, request_id="same")
    (said,), (expected,) = last["details"].pop("texts"), unary.details.pop("texts")
    assert last["details"] == unary.details
    times = {"queue_ms", "first_token_ms", "total_ms"}
    assert tuple(said) == TEXT_FIELDS
    assert said.pop("score") == pytest.approx(unary.scores[0][0], abs=1e-4)
    assert said["target_tokens"] == unary.token_counts[0][0]
    assert {name: said[name] for name in said if name not in times} == {name: expected[name] for name in said.keys() - times}
    assert 0 < said["queue_ms"] <= said["first_token_ms"] < said["total_ms"]


def test_a_stream_from_the_response_cache_returns_as_much(caller: Caller) -> None:
    unary = caller.translate(["A sentence for the cache of streams."])
    *_, last = caller.stream("A sentence for the cache of streams.")
    (said,) = last["details"]["texts"]
    assert tuple(said) == TEXT_FIELDS
    assert (said["cached"], said["target_tokens"]) == (True, unary.token_counts[0][0])


@pytest.mark.parametrize("on_suspicion", ["report", "retry"])
def test_reports_of_sentences_have_the_fields_of_the_contract(caller: Caller, on_suspicion: str) -> None:
    answer = caller.translate([f"{SENTENCE} {SENTENCE}"], on_suspicion=on_suspicion)
    (told,) = answer.details["texts"]
    assert tuple(told) == (*TEXT_FIELDS, *CHECK_FIELDS)
    assert [tuple(sentence) for sentence in told["sentences"]] == [("length_ratio", "coverage", "suspicions", "second")] * 2


def test_the_encoder_returns_what_the_contract_lists_and_which_version_answers(caller: Caller) -> None:
    session, info = caller.encode([SENTENCE])
    caller.decode(session, {"do": "close"})
    assert tuple(info) == MODEL_INFO_FIELDS
    assert info["wire_version"] == WIRE_VERSION
    assert info["version"] == caller.translate([SENTENCE]).details["version"] != ""


FIELDS = {
    *DETAILS_FIELDS,
    *CHECK_FIELDS,
    *TEXT_FIELDS,
    *SCORED_FIELDS,
    *MODEL_INFO_FIELDS,
    *STATUS_FIELDS,
    *BUNDLE_FIELDS,
    *ERROR_FIELDS,
}


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_the_document_explains(field: str) -> None:
    assert f"`{field}`" in DOCUMENT.read_text(encoding="utf-8")


def test_the_document_names_the_version_it_describes() -> None:
    assert f"This page describes **wire version {WIRE_VERSION}**" in DOCUMENT.read_text(encoding="utf-8").replace("\n", " ")


def rows_of_options() -> dict[str, str]:
    rows = [line.split(" | ") for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return {row[0].strip("| `"): row[1] for row in rows}


def test_the_document_lists_every_option_with_what_it_may_be() -> None:
    reader = OptionsReader(Dimensions(8, 1, 8, 1, 1, 9, 9, 9, 9), DecodingOptions(), Limits(), LanguageResolver())
    rows = rows_of_options()
    for name, kind in reader.schema.items():
        wanted = "a whole number from" if isinstance(kind, Integer) and kind.most == 2**31 else str(kind)
        assert rows[name].startswith(wanted), name
    assert set(DECODING_OPTIONS) < set(reader.schema)
