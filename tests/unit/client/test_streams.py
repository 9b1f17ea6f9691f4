from __future__ import annotations

import asyncio

import grpc
import pytest
from fake_triton import UNAVAILABLE, Refuse, ScriptedTriton, until_cancelled

from dragoman.client import AsyncTranslator, RetryPolicy, Translator
from dragoman.errors import InvalidRequest, ServerError, UsageError
from dragoman.wire import WIRE_VERSION


def test_pieces_come_one_by_one_and_are_the_translation(translator: Translator) -> None:
    stream = translator.stream("Where is the station?")
    assert list(stream) == ["Wo ist ", "der ", "Bahnhof?"]
    assert stream.text == "Wo ist der Bahnhof?"


def test_a_piece_is_there_before_the_rest_is_decided(translator: Translator, triton: ScriptedTriton) -> None:
    triton.answers.extend([lambda heard, context: {}, until_cancelled])
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


def test_leaving_a_stream_stops_the_work_in_the_server(translator: Translator, triton: ScriptedTriton) -> None:
    triton.answers.extend([lambda heard, context: {}, until_cancelled])
    with translator.stream("hi") as stream:
        next(stream)
    assert triton.heard[0].cancelled.wait(5)


def test_a_stream_that_fails_before_its_first_piece_is_tried_again(translator: Translator, triton: ScriptedTriton) -> None:
    triton.answers.append(UNAVAILABLE)
    assert "".join(translator.stream("hi")) == "Wo ist der Bahnhof?"
    assert len(triton.heard) == 2


def test_a_stream_that_breaks_after_a_piece_is_not_told_twice(translator: Translator, triton: ScriptedTriton) -> None:
    triton.answers.extend([lambda heard, context: {}, UNAVAILABLE])
    stream = translator.stream("hi")
    assert next(stream) == "Wo ist "
    with pytest.raises(ServerError):
        list(stream)
    assert len(triton.heard) == 1


def test_a_refused_stream_says_why(translator: Translator, triton: ScriptedTriton) -> None:
    triton.answers.append(Refuse(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST: no beams in a stream"))
    with pytest.raises(InvalidRequest, match="no beams"):
        list(translator.stream("hi", beam_size=4))


def test_a_stream_has_one_hypothesis(translator: Translator) -> None:
    with pytest.raises(InvalidRequest, match="one hypothesis"):
        translator.stream("hi", num_hypotheses=2, beam_size=4)


def test_a_stream_is_the_servers_business(triton: ScriptedTriton) -> None:
    with Translator(triton.url, decoding="client") as translator, pytest.raises(UsageError, match="stream"):
        translator.stream("hi")


def test_the_async_stream_gives_the_same(triton: ScriptedTriton, eager: RetryPolicy) -> None:
    triton.answers.append(UNAVAILABLE)

    async def main() -> tuple[list[str], str, bool]:
        async with AsyncTranslator(triton.url, retry=eager) as translator:
            stream = translator.stream("hi")
            return [piece async for piece in stream], stream.text, stream.timings is not None

    assert asyncio.run(main()) == (["Wo ist ", "der ", "Bahnhof?"], "Wo ist der Bahnhof?", True)


def test_leaving_an_async_stream_stops_the_work_in_the_server(triton: ScriptedTriton) -> None:
    triton.answers.extend([lambda heard, context: {}, until_cancelled])

    async def main() -> bool:
        async with AsyncTranslator(triton.url) as translator:
            async with translator.stream("hi") as stream:
                assert await anext(stream) == "Wo ist "
            return await asyncio.to_thread(triton.heard[0].cancelled.wait, 5)

    assert asyncio.run(main())


def test_a_failed_async_stream_raises_like_the_other(triton: ScriptedTriton) -> None:
    triton.answers.append(Refuse(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST: no beams in a stream"))

    async def main() -> None:
        async with AsyncTranslator(triton.url) as translator:
            _ = [piece async for piece in translator.stream("hi")]

    with pytest.raises(InvalidRequest, match="no beams"):
        asyncio.run(main())
