"""A sender over the client's own transport, without its retries: a load test must see every failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dragoman import wire
from dragoman.client.async_transport import AsyncTransport
from dragoman.client.channels import Connection
from dragoman.client.failures import Failure
from dragoman.client.messages import Reply, infer_request
from dragoman.client.replies import read_translations
from dragoman.client.retry import RetryPolicy
from dragoman.client.streams import StreamReader
from dragoman.errors import RequestError
from dragoman.loadtest.sender import Outcome, RequestSettings, Target

__all__ = ["TransportSender", "open_sender"]

_KEEPALIVE_S = 30.0


async def open_sender(target: Target, settings: RequestSettings) -> TransportSender:
    """A sender for the target; the first request finds out whether anybody answers there."""
    connection = Connection(target.addresses, target.tls, _KEEPALIVE_S, RetryPolicy.never())
    return TransportSender(AsyncTransport(connection), settings)


class TransportSender:
    """One text a request, to `translate` or `translate_stream`."""

    def __init__(self, transport: AsyncTransport, settings: RequestSettings) -> None:
        self._transport = transport
        self._model = wire.TRANSLATE_STREAM if settings.stream else wire.TRANSLATE
        self._exchange = self._stream if settings.stream else self._call
        self._asked = settings.asked()
        self._options = self._asked.to_json(self._asked.timeout_s)

    async def send(self, text: str) -> Outcome:
        source = self._asked.source(text)
        try:
            return await self._exchange(lambda _: self._request(source))
        except RequestError as error:
            return Outcome(time.monotonic(), type(error).__name__, str(error))

    async def close(self) -> None:
        await self._transport.close()

    def _request(self, source: bytes) -> object:
        return infer_request(self._model, {wire.TEXT.name: [source], wire.OPTIONS.name: [self._options]})

    async def _call(self, build: Callable[[float], object]) -> Outcome:
        sent_at = time.monotonic()
        reply = await self._transport.call(build, self._asked.timeout_s)
        finished_at = time.monotonic()
        (translation,) = read_translations(reply, 1, finished_at - sent_at)
        return Outcome(
            finished_at,
            text=translation.text,
            source_tokens=translation.source_tokens,
            target_tokens=translation.tokens,
            queue_s=translation.timings.queue_ms / 1000,
        )

    async def _stream(self, build: Callable[[float], object]) -> Outcome:
        reader, first_token_at = _DetailedReader(), None
        async for _ in self._transport.stream(build, self._asked.timeout_s, reader):
            if first_token_at is None:
                first_token_at = time.monotonic()
        return Outcome(
            reader.ended_at,
            text=reader.text,
            source_tokens=int(reader.about.get("source_tokens", 0)),
            target_tokens=int(reader.about.get("target_tokens", reader.about.get("steps", 0))),
            first_token_at=first_token_at,
            queue_s=float(reader.about.get("queue_ms", 0.0)) / 1000,
        )


class _DetailedReader(StreamReader):
    """Keeps the counts and the moment of the last response, which callers of a translation do not need."""

    def __init__(self) -> None:
        super().__init__()
        self.about: dict[str, Any] = {}
        self.ended_at = 0.0

    def read(self, response: Any | None) -> str | Failure:  # noqa: ANN401 - the signature is the base's
        now = time.monotonic()
        piece = super().read(response)
        if self.ended and response is not None:
            self.ended_at = now
            self.about = (Reply(response.infer_response).json(wire.DETAILS.name).get("texts") or [{}])[0]
        return piece
