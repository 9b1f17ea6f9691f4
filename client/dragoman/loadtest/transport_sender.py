"""A sender over the client's own transport, without its retries: a load test must see every failure."""

from __future__ import annotations

import functools
import time
from typing import Any

from dragoman import wire
from dragoman.client.asynchronous import AsyncCalls
from dragoman.client.channels import Connection
from dragoman.client.failures import Failure
from dragoman.client.messages import Message, Reply, foreign_answer, infer_request
from dragoman.client.options import encode_text
from dragoman.client.requests import Build
from dragoman.client.retry import RetryPolicy
from dragoman.client.streams import StreamReader
from dragoman.client.transport import Transport
from dragoman.errors import RequestError
from dragoman.loadtest.sender import Outcome, RequestSettings, Target, Unread

__all__ = ["TransportSender", "open_sender"]

_KEEPALIVE_S = 30.0


async def open_sender(target: Target, settings: RequestSettings) -> TransportSender:
    """A sender for the target; the first request finds out whether a server answers there."""
    connection = Connection(target.addresses, target.tls, _KEEPALIVE_S, RetryPolicy.never())
    return TransportSender(Transport(connection, AsyncCalls(connection)), settings)


class TransportSender:
    """One text a request, to `translate` or `translate_stream`."""

    def __init__(self, transport: Transport, settings: RequestSettings) -> None:
        self._transport = transport
        self._model = wire.TRANSLATE_STREAM if settings.stream else wire.TRANSLATE
        self._exchange = self._stream if settings.stream else self._call
        self._options = settings.checked()
        self._messages: dict[str, Message] = {}  # built once: a workload comes round again and again

    async def send(self, text: str) -> Outcome | Unread:
        message = self._messages.get(text) or self._first_message(text)
        try:
            return await self._exchange(lambda _: message)
        except RequestError as error:
            return _failed(error, time.monotonic())

    async def close(self) -> None:
        await self._transport.calls.close()

    def _first_message(self, text: str) -> Message:
        inputs = self._options.inputs([encode_text(text)], self._options.timeout_s)
        message = self._messages[text] = infer_request(self._model, inputs)
        return message

    async def _call(self, build: Build) -> Unread:
        response = await self._transport.infer(build, self._options.timeout_s)
        return Unread(functools.partial(_outcome, response, time.monotonic()))

    async def _stream(self, build: Build) -> Outcome:
        reader, first_token_at = _TimedReader(), None
        async for _ in self._transport.stream(build, self._options.timeout_s, reader):
            if first_token_at is None:
                first_token_at = time.monotonic()
        translation = reader.result
        if translation is None:
            raise AssertionError("a stream ends with its last response, or with an error")
        return Outcome(
            reader.ended_at,
            text=translation.text,
            source_tokens=translation.source_tokens,
            target_tokens=translation.tokens,
            first_token_at=first_token_at,
            queue_s=translation.timings.queue_ms / 1000,
        )


def _outcome(response: Message, finished_at: float) -> Outcome:
    """Only what is counted: a whole Translation would cost more than all the rest of a request's bookkeeping."""
    try:
        reply = Reply(response)
        details, texts = reply.about(wire.DETAILS.name), reply.strings(wire.TRANSLATION.name)
        return _counted(details, texts, finished_at)
    except RequestError as error:
        return _failed(error, finished_at)


def _counted(details: dict[str, Any], texts: list[str], finished_at: float) -> Outcome:
    try:
        (about,) = details["texts"]
        return Outcome(
            finished_at,
            text=texts[0],
            source_tokens=int(about["source_tokens"]),
            target_tokens=int(about["target_tokens"]),
            queue_s=float(about["queue_ms"]) / 1000,
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise foreign_answer(f"its answer to one text can't be read ({error!r})") from None


def _failed(error: RequestError, finished_at: float) -> Outcome:
    return Outcome(finished_at, type(error).__name__, str(error))


class _TimedReader(StreamReader):
    """Keeps the moment of the last response on the clock of the load test."""

    def __init__(self) -> None:
        super().__init__()
        self.ended_at = 0.0

    def read(self, response: Message | None, address: str) -> Failure | None:
        now = time.monotonic()
        failure = super().read(response, address)
        if self.ended and response is not None:
            self.ended_at = now
        return failure
