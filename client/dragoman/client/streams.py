"""A streamed translation: reading its responses, and the iterators that callers hold."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator
from types import TracebackType

from dragoman.client.failures import Failure, read_message
from dragoman.client.messages import Message, Reply
from dragoman.client.replies import read_chunk, read_streamed
from dragoman.client.results import Timings, Translation
from dragoman.errors import ServerError, TransportError

__all__ = ["GRPC_ERRORS", "AsyncTranslationStream", "StreamReader", "TranslationStream"]

GRPC_ERRORS = (("triton_grpc_error", "true"),)
"""Asks Triton to end a failed stream with a gRPC status: without it the status code is lost."""


class StreamReader:
    """Puts a stream's responses together; both clients feed it."""

    def __init__(self) -> None:
        self._began_at = time.perf_counter()
        self.text = ""
        self.result: Translation | None = None

    @property
    def timings(self) -> Timings | None:
        """Where the time went; None until the last response has come."""
        return self.result.timings if self.result else None

    @property
    def ended(self) -> bool:
        """Whether the last response has come."""
        return self.result is not None

    def read(self, response: Message | None) -> str | Failure:
        """The text one response adds; None stands for a stream that ended."""
        if response is None:
            return Failure(TransportError("the stream broke off before its last piece"), retryable=True)
        if response.error_message:
            return read_message(response.error_message) or Failure(ServerError(response.error_message))
        if not response.infer_response.outputs:
            return ""  # Triton's empty last response
        chunk, final, details = read_chunk(Reply(response.infer_response))
        self.text += chunk
        if final:
            self.result = read_streamed(self.text, details, time.perf_counter() - self._began_at)
        return chunk


class TranslationStream:
    """Iterate over it for the pieces of a translation as they are decided; closing it cancels what is left."""

    def __init__(self, pieces: Generator[str, None, None], reader: StreamReader) -> None:
        self._pieces, self._reader = pieces, reader

    @property
    def text(self) -> str:
        """What has come so far: after the last piece, the whole translation."""
        return self._reader.text

    @property
    def timings(self) -> Timings | None:
        """Where the time went; None until the last piece has come."""
        return self._reader.timings

    @property
    def result(self) -> Translation | None:
        """The whole translation with its score, tokens and timings; None until the last piece has come."""
        return self._reader.result

    def __iter__(self) -> TranslationStream:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Stop here; the server is told."""
        self._pieces.close()

    def __enter__(self) -> TranslationStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncTranslationStream:
    """The same for `async for`."""

    def __init__(self, pieces: AsyncGenerator[str, None], reader: StreamReader) -> None:
        self._pieces, self._reader = pieces, reader

    @property
    def text(self) -> str:
        """What has come so far: after the last piece, the whole translation."""
        return self._reader.text

    @property
    def timings(self) -> Timings | None:
        """Where the time went; None until the last piece has come."""
        return self._reader.timings

    @property
    def result(self) -> Translation | None:
        """The whole translation with its score, tokens and timings; None until the last piece has come."""
        return self._reader.result

    def __aiter__(self) -> AsyncTranslationStream:
        return self

    async def __anext__(self) -> str:
        return await anext(self._pieces)

    async def aclose(self) -> None:
        """Stop here; the server is told."""
        await self._pieces.aclose()

    async def __aenter__(self) -> AsyncTranslationStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
