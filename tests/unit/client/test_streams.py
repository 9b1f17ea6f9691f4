from __future__ import annotations

import asyncio

import pytest
from fake_triton import RESTARTING, Refuse, RefuseStream, ScriptedTriton, until_cancelled

from dragoman.client import AsyncTranslator, RetryPolicy, Translator
from dragoman.errors import (
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    RequestError,
    ServerError,
    SuspectRequest,
    UsageError,
)
from dragoman.wire import WIRE_VERSION


def test_pieces_come_one_by_one_and_are_the_translation(translator: Translator) -> None:
    stream = translator.stream("Where is the station?")
    assert list(stream) == ["Wo ist ", "der ", "Bahnhof?"]
    assert stream.text == "Wo ist der Bahnhof?"


def test_a_piece_is_there_before_the_rest_is_decided(translator: Translator, triton: ScriptedTriton) -> None:
    triton.answers.extend([lambda request, context: {}, until_cancelled])
    with translator.stream("hi") as stream:
        assert next(stream) == "Wo ist "


def test_timings_are_known_at_the_end_and_not_before(translator: Translator) -> None:
    stream = translator.stream("hi")
    next(stream)
    assert stream.timings is None
    list(stream)
    assert stream.timings is not None
    assert stream.timings.first_token_ms == 2.5


def test_the_result_is_known_at_the_end_and_as_complete_as_any(translator: Translator) -> None:
    stream = translator.stream("hi")
    next(stream)
    assert stream.result is None
    list(stream)
    assert stream.result is not None
    assert (stream.result.text, stream.result.score, stream.result.tokens) == ("Wo ist der Bahnhof?", -0.5, 4)
    assert (stream.result.source_tokens, stream.result.model, stream.result.version) == (3, "en-de", "7")
    assert stream.result.timings == stream.timings


@pytest.mark.parametrize("wire_version", [None, WIRE_VERSION + 1])
def test_a_stream_of_another_wire_version_is_not_guessed_at(
    translator: Translator, triton: ScriptedTriton, wire_version: int | None
) -> None:
    triton.wire_version = wire_version
    with pytest.raises(ServerError, match=f"not of wire version {WIRE_VERSION}: its DETAILS"):
        list(translator.stream("hi"))


def test_closing_a_stream_stops_the_work_in_the_server(translator: Translator, triton: ScriptedTriton) -> None:
    triton.answers.extend([lambda request, context: {}, until_cancelled])
    with translator.stream("hi") as stream:
        next(stream)
    assert triton.received[0].cancelled.wait(120)


AGAIN = RefuseStream("RESTARTING", "the engine died; send the request again")
INVALID = RefuseStream("INVALID_REQUEST", "no beams in a stream")


@pytest.mark.parametrize("failure", [AGAIN, RESTARTING, RefuseStream("OVERLOADED", "the queue is full", 1)])
def test_a_stream_that_fails_before_its_first_piece_is_tried_again(
    translator: Translator, triton: ScriptedTriton, failure: Refuse | RefuseStream
) -> None:
    triton.answers.append(failure)
    assert "".join(translator.stream("hi")) == "Wo ist der Bahnhof?"
    assert len(triton.received) == 2


@pytest.mark.parametrize("failure", [AGAIN, RESTARTING])
def test_a_stream_that_breaks_after_a_piece_is_not_repeated(
    translator: Translator, triton: ScriptedTriton, failure: Refuse | RefuseStream
) -> None:
    triton.answers.extend([lambda request, context: {}, failure])
    stream = translator.stream("hi")
    assert next(stream) == "Wo ist "
    with pytest.raises(ServerError):
        list(stream)
    assert len(triton.received) == 1


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (INVALID, InvalidRequest),
        (RefuseStream("SUSPECT", "two engines died with this request in hand"), SuspectRequest),
        (RefuseStream("DEADLINE_EXCEEDED", "100 ms were not enough"), DeadlineExceeded),
        (RefuseStream("INTERNAL", "request 17 failed"), ServerError),
    ],
)
def test_a_refused_stream_is_the_error_of_its_code_and_not_an_empty_translation(
    translator: Translator, triton: ScriptedTriton, refusal: RefuseStream, error: type[RequestError]
) -> None:
    triton.answers.append(refusal)
    with pytest.raises(RequestError, match=refusal.message) as caught:
        list(translator.stream("hi"))
    assert type(caught.value) is error
    assert len(triton.received) == 1


def test_the_refusal_of_a_stream_keeps_its_hint(triton: ScriptedTriton) -> None:
    triton.answers.append(RefuseStream("OVERLOADED", "the queue is full", 250))
    with Translator(triton.url, retry=RetryPolicy.never()) as translator, pytest.raises(Overloaded) as caught:
        list(translator.stream("hi"))
    assert caught.value.retry_after_s == 0.25


def test_a_refusal_of_another_wire_version_is_not_guessed_at(translator: Translator, triton: ScriptedTriton) -> None:
    triton.answers.append(RefuseStream("RESTARTING", "later", wire_version=WIRE_VERSION + 1))
    with pytest.raises(ServerError, match=f"its DETAILS is of version {WIRE_VERSION + 1}"):
        list(translator.stream("hi"))


def test_the_error_for_an_unknown_code_names_differing_releases(translator: Translator, triton: ScriptedTriton) -> None:
    triton.answers.append(RefuseStream("NEW_CODE", "of a later release"))
    with pytest.raises(ServerError, match="same dragoman release"):
        list(translator.stream("hi"))


def test_a_stream_does_not_request_strict_errors(translator: Translator, triton: ScriptedTriton) -> None:
    list(translator.stream("hi"))
    assert "triton_grpc_error" not in triton.received[0].metadata


def test_a_stream_has_one_hypothesis(translator: Translator) -> None:
    with pytest.raises(InvalidRequest, match="one hypothesis"):
        translator.stream("hi", num_hypotheses=2, beam_size=4)


def test_a_stream_is_the_servers_business(triton: ScriptedTriton) -> None:
    with Translator(triton.url, decoding="client") as translator, pytest.raises(UsageError, match="stream"):
        translator.stream("hi")


def test_the_async_stream_gives_the_same(triton: ScriptedTriton, eager: RetryPolicy) -> None:
    triton.answers.append(RESTARTING)

    async def main() -> tuple[list[str], str, bool]:
        async with AsyncTranslator(triton.url, retry=eager) as translator:
            stream = translator.stream("hi")
            return [piece async for piece in stream], stream.text, stream.timings is not None

    assert asyncio.run(main()) == (["Wo ist ", "der ", "Bahnhof?"], "Wo ist der Bahnhof?", True)


def test_closing_an_async_stream_stops_the_work_in_the_server(triton: ScriptedTriton) -> None:
    triton.answers.extend([lambda request, context: {}, until_cancelled])

    async def main() -> bool:
        async with AsyncTranslator(triton.url) as translator:
            async with translator.stream("hi") as stream:
                assert await anext(stream) == "Wo ist "
            return await asyncio.to_thread(triton.received[0].cancelled.wait, 5)

    assert asyncio.run(main())


def test_a_failed_async_stream_raises_like_the_other(triton: ScriptedTriton) -> None:
    triton.answers.append(INVALID)

    async def main() -> None:
        async with AsyncTranslator(triton.url) as translator:
            _ = [piece async for piece in translator.stream("hi")]

    with pytest.raises(InvalidRequest, match="no beams"):
        asyncio.run(main())
