"""A streamed translation: reading its responses, and the iterators that callers hold."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

import grpc

from dragoman.client.blocking import iterate
from dragoman.client.failures import Failure, Retry, read_status
from dragoman.client.messages import Message, Reply
from dragoman.client.replies import read_chunk, read_refusal, read_streamed
from dragoman.client.results import Timings, Translation
from dragoman.errors import TransportError

__all__ = ["AsyncTranslationStream", "StreamReader", "TranslationStream"]


class StreamReader:
    """Puts a stream's responses together. `piece` is the text that the last one added."""

    def __init__(self) -> None:
        self._began_at = time.perf_counter()
        self.text = ""
        self.piece = ""
        self.result: Translation | None = None

    @property
    def timings(self) -> Timings | None:
        """Where the time went; None until the last response has come."""
        return self.result.timings if self.result else None

    @property
    def ended(self) -> bool:
        """Whether the last response has come."""
        return self.result is not None

    def read(self, response: Message | None, address: str) -> Failure | None:
        """Take one response of the server at `address`, None for the end; a Failure when it refuses or breaks off."""
        self.piece = ""
        if response is None:
            return Failure(TransportError(f"the stream from {address} broke off before its last piece"), Retry.WAIT)
        if response.error_message:  # Triton itself refuses: an unknown model, a wrong shape
            return read_status(grpc.StatusCode.UNKNOWN, response.error_message, address)
        if not response.infer_response.outputs:
            return None  # Triton's empty last response
        chunk, final, details = read_chunk(Reply(response.infer_response))
        if "error" in details:
            return read_refusal(details["error"])
        self.piece = chunk
        self.text += chunk
        if final:
            self.result = read_streamed(self.text, details, time.perf_counter() - self._began_at)
        return None


class _Stream:
    """What is known of a translation while it comes."""

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


class TranslationStream(_Stream):
    """Iterate over it for the pieces of a translation as they are decided; closing it cancels what is left."""

    def __init__(self, pieces: AsyncGenerator[str, None], reader: StreamReader) -> None:
        super().__init__(pieces, reader)
        self._iterator = iterate(pieces)

    def __iter__(self) -> TranslationStream:
        return self

    def __next__(self) -> str:
        return next(self._iterator)

    def close(self) -> None:
        """Stop here; the call is cancelled at the server."""
        self._iterator.close()

    def __enter__(self) -> TranslationStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class AsyncTranslationStream(_Stream):
    """The same for `async for`."""

    def __aiter__(self) -> AsyncTranslationStream:
        return self

    async def __anext__(self) -> str:
        return await anext(self._pieces)

    async def aclose(self) -> None:
        """Stop here; the call is cancelled at the server."""
        await self._pieces.aclose()

    async def __aenter__(self) -> AsyncTranslationStream:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()
