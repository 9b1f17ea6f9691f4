from __future__ import annotations

import dataclasses
import json
import threading

import grpc
import pytest
from fake_triton import (
    INVALID,
    OVERLOADED,
    RESTARTING,
    Outputs,
    Refuse,
    ScriptedTriton,
    details,
    packed,
    translated,
)

from dragoman.client import RetryPolicy, Translation, Translator
from dragoman.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    RequestError,
    ServerError,
    SuspectRequest,
    Timeout,
    UsageError,
)
from dragoman.wire import MAX_MESSAGE_BYTES, WIRE_VERSION


def test_a_text_gives_a_translation(translator: Translator) -> None:
    assert translator.translate("Where is the station?").text == "WHERE IS THE STATION?"


def test_a_list_gives_translations_in_its_order(translator: Translator) -> None:
    texts = [f"text {number}" for number in range(100)]
    assert [one.text for one in translator.translate(texts)] == [text.upper() for text in texts]


def test_an_empty_list_makes_no_call(translator: Translator, triton: ScriptedTriton) -> None:
    assert translator.translate([]) == []
    assert triton.received == []


def test_a_blank_text_has_a_blank_translation(translator: Translator) -> None:
    assert [one.text for one in translator.translate(["one", "  ", "two"])] == ["ONE", "", "TWO"]


def test_a_translation_carries_everything_in_the_answer(translator: Translator) -> None:
    result = translator.translate("hello", num_hypotheses=3, beam_size=4)
    assert (result.score, result.tokens, result.source_tokens) == (-0.5, 4, 3)
    assert [(one.text, one.score) for one in result.alternatives] == [("HELLO!", -1.5), ("HELLO!!", -2.5)]
    assert (result.timings.queue_ms, result.timings.first_token_ms, result.timings.total_ms) == (1.5, 2.5, 4.0)
    assert result.timings.round_trip_ms > 0
    assert (result.model, result.version, result.finish, result.parts, result.cached) == ("en-de", "7", "eos", 1, False)


def test_a_translation_can_not_be_changed(translator: Translator) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        translator.translate("hello").text = "other"  # type: ignore[misc]


def test_options_travel_as_given_and_nothing_else_does(translator: Translator, triton: ScriptedTriton) -> None:
    translator.translate("hi", beam_size=4, length_penalty=0.6, prefix_text="Hallo", priority="batch", timeout_s=2.0)
    sent = triton.received[0].options
    assert 1900 < sent.pop("timeout_ms") <= 2000
    assert sent == {"beam_size": 4, "length_penalty": 0.6, "prefix_text": "Hallo", "priority": "batch"}


def test_the_model_is_named_in_every_request(triton: ScriptedTriton) -> None:
    with Translator(triton.url, model="en-fr") as translator:
        translator.translate("hi")
    assert triton.received[0].bundle == "en-fr"
    assert "model" not in triton.received[0].options


def test_languages_travel_as_options_and_the_text_stays_as_it_is(translator: Translator, triton: ScriptedTriton) -> None:
    translator.translate("hi", source_language="en", target_language="pt-BR")
    (request,) = triton.received
    assert (request.texts, request.options["source_language"], request.options["target_language"]) == (["hi"], "en", "pt-BR")


def test_text_of_any_script_arrives_unchanged(translator: Translator) -> None:
    text = "naïve — 你好 😀 \u202b שלום"
    assert translator.translate(text).text == text.upper()


def test_an_unknown_option_names_the_one_that_was_meant(translator: Translator) -> None:
    with pytest.raises(TypeError, match="beam_size"):
        translator.translate("hi", beamsize=4)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 0},
        {"beam_size": 2, "num_hypotheses": 3},
        {"beam_size": "four"},
        {"sampling": True, "beam_size": 4},
        {"temperature": 0.0},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"priority": "urgent"},
        {"target_language": 7},
        {"prefix_text": "\ud800"},
        {"min_length": 9, "max_length": 3},
    ],
)
def test_an_impossible_option_is_refused_before_anything_is_sent(
    translator: Translator, triton: ScriptedTriton, options: dict[str, object]
) -> None:
    with pytest.raises(InvalidRequest):
        translator.translate("hi", **options)  # type: ignore[call-overload]
    assert triton.received == []


@pytest.mark.parametrize("text", [b"bytes", 7, None, [b"bytes"], {"a": "b"}])
def test_what_is_not_text_is_a_type_error(translator: Translator, text: object) -> None:
    with pytest.raises(TypeError):
        translator.translate(text)  # type: ignore[call-overload]


def test_a_request_whose_connection_a_server_would_end_is_refused_before_it_is_sent(translator: Translator) -> None:
    with pytest.raises(InvalidRequest, match="servers take 16777216: send several requests"):
        translator.translate("x" * MAX_MESSAGE_BYTES)


def test_a_lone_surrogate_is_refused(translator: Translator) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        translator.translate("bad \ud800")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (INVALID, InvalidRequest),
        (Refuse(grpc.StatusCode.CANCELLED, "DEADLINE_EXCEEDED: 100 ms were not enough"), DeadlineExceeded),
        (Refuse(grpc.StatusCode.CANCELLED, "CANCELLED: the caller went away"), Cancelled),
        (Refuse(grpc.StatusCode.INTERNAL, "INTERNAL: request 17 failed"), ServerError),
        (Refuse(grpc.StatusCode.INTERNAL, "the stub died"), ServerError),
        (Refuse(grpc.StatusCode.INTERNAL, "SUSPECT: two engines died with this request in hand"), SuspectRequest),
        (Refuse(grpc.StatusCode.UNIMPLEMENTED, ""), ServerError),
        (Refuse(grpc.StatusCode.INVALID_ARGUMENT, "unexpected inference input 'OPTIONS'"), InvalidRequest),
    ],
)
def test_every_status_becomes_one_error_of_the_tree_and_is_not_retried(
    translator: Translator, triton: ScriptedTriton, answer: Refuse, error: type[RequestError]
) -> None:
    triton.answers.append(answer)
    with pytest.raises(RequestError) as caught:
        translator.translate("hi")
    assert type(caught.value) is error
    assert len(triton.received) == 1


def test_no_grpc_type_hangs_on_an_error(translator: Translator, triton: ScriptedTriton) -> None:
    triton.answers.append(INVALID)
    with pytest.raises(InvalidRequest) as caught:
        translator.translate("hi")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_the_message_of_the_server_reaches_the_caller_without_the_code(
    translator: Translator, triton: ScriptedTriton
) -> None:
    triton.answers.append(INVALID)
    with pytest.raises(InvalidRequest) as caught:
        translator.translate("hi")
    assert str(caught.value) == "beam_size=99 is more than this server allows (16)"


def test_a_silent_server_ends_in_a_timeout(translator: Translator, triton: ScriptedTriton) -> None:
    triton.gate.clear()
    with pytest.raises(Timeout):
        translator.translate("hi", timeout_s=0.2)


@pytest.mark.parametrize(
    "answer",
    [
        RESTARTING,
        Refuse(grpc.StatusCode.UNAVAILABLE, "DRAINING: the server is shutting down"),
        Refuse(grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'translate' has no available versions"),
        Refuse(grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'translate' is not found"),
        Refuse(grpc.StatusCode.UNAVAILABLE, "Request for unknown model: 'translate' is not ready"),
        Refuse(grpc.StatusCode.UNAVAILABLE, "Socket closed"),
        Refuse(grpc.StatusCode.UNKNOWN, "Stream removed"),
        Refuse(grpc.StatusCode.CANCELLED, ""),
    ],
)
def test_a_server_that_is_restarting_is_waited_for_beyond_max_attempts(
    triton: ScriptedTriton, eager: RetryPolicy, answer: Refuse
) -> None:
    with Translator(triton.url, retry=eager) as translator:
        translator.translate("hi")
        triton.answers.extend([answer] * 30)
        assert translator.translate("hi").text == "HI"
    assert len(triton.received) == 32


def test_a_triton_without_dragoman_is_not_waited_for_until_the_deadline(
    translator: Translator, triton: ScriptedTriton
) -> None:
    triton.answers.extend([Refuse(grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'translate' is not found")] * 1000)
    with pytest.raises(ServerError, match="does not serve dragoman"):
        translator.translate("hi", timeout_s=60)


def test_retries_of_an_overloaded_server_end_with_its_own_error(translator: Translator, triton: ScriptedTriton) -> None:
    triton.answers.extend([OVERLOADED] * 9)
    with pytest.raises(Overloaded, match="queue"):
        translator.translate("hi")
    assert len(triton.received) == 4


def test_an_overloaded_error_has_the_retry_time(triton: ScriptedTriton) -> None:
    triton.answers.append(Refuse(grpc.StatusCode.UNAVAILABLE, "OVERLOADED retry_after_ms=250: the queue is full"))
    with Translator(triton.url, retry=RetryPolicy.never()) as translator, pytest.raises(Overloaded) as caught:
        translator.translate("hi")
    assert caught.value.retry_after_s == 0.25


@pytest.mark.parametrize(
    "broken",
    [
        {name: value for name, value in translated(["hi"]).items() if name != "SCORE"},
        translated(["hi", "there"]),
        translated(["hi"]) | {"DETAILS": ("BYTES", (1,), packed("no json"))},
        translated(["hi"]) | {"TRANSLATION": ("BYTES", (1, 1), packed(b"\xff\xfe"))},
        translated(["hi"]) | {"TRANSLATION": ("BYTES", (1, 1), b"\xff\x00\x00\x00short")},
        translated(["hi"]) | {"SCORE": ("FP32", (1, 7), b"\0\0\0\0")},
        translated(["hi"]) | {"SCORE": ("FP8", (1, 1), b"\0")},
        translated(["hi"]) | {"DETAILS": ("BYTES", (1,), packed(json.dumps(details(["hi"], wire_version=None))))},
        {},
    ],
)
def test_an_answer_of_another_wire_version_is_a_clear_error(
    translator: Translator, triton: ScriptedTriton, broken: Outputs
) -> None:
    triton.answers.append(broken)
    with pytest.raises(ServerError, match=f"not of wire version {WIRE_VERSION}: .* of the same dragoman release"):
        translator.translate("hi")


def test_the_version_of_a_newer_server_is_named_whatever_else_it_changed(
    translator: Translator, triton: ScriptedTriton
) -> None:
    about = json.dumps({"wire_version": WIRE_VERSION + 1, "answers": []})
    triton.answers.append({"DETAILS": ("BYTES", (1,), packed(about))})
    with pytest.raises(ServerError, match=f"its DETAILS is of version {WIRE_VERSION + 1}"):
        translator.translate("hi")


def test_a_closed_translator_refuses(triton: ScriptedTriton) -> None:
    translator = Translator(triton.url)
    translator.close()
    with pytest.raises(UsageError, match="closed"):
        translator.translate("hi")


def test_threads_share_a_translator(translator: Translator) -> None:
    found: dict[int, Translation] = {}

    def work(number: int) -> None:
        found[number] = translator.translate(f"text {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: one.text for number, one in found.items()} == {number: f"TEXT {number}" for number in range(16)}
