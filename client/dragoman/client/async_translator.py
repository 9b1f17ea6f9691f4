"""AsyncTranslator: the same as Translator for asyncio."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from typing import TYPE_CHECKING, overload

from dragoman.client.asynchronous import AsyncCalls
from dragoman.client.channels import Connection
from dragoman.client.files import FileReport
from dragoman.client.options import FileOptions, LineOptions, RequestOptions, ScoreOptions, shows
from dragoman.client.results import Score, Translation
from dragoman.client.streams import AsyncTranslationStream
from dragoman.client.translator_base import TranslatorBase
from dragoman.client.windows import each

if TYPE_CHECKING:
    from typing import Unpack

__all__ = ["AsyncTranslator"]


class AsyncTranslator(TranslatorBase):
    """Translates over gRPC in an asyncio loop; its arguments, methods and options are Translator's.

    It belongs to the loop of its first call. Cancelling a call, or leaving a stream, stops the work in the server.
    """

    _is_single_threaded = True

    @overload
    async def translate(self, text: str, **options: Unpack[RequestOptions]) -> Translation: ...
    @overload
    async def translate(self, text: list[str] | tuple[str, ...], **options: Unpack[RequestOptions]) -> list[Translation]: ...
    @shows(RequestOptions)
    async def translate(
        self, text: str | list[str] | tuple[str, ...], **options: Unpack[RequestOptions]
    ) -> Translation | list[Translation]:
        """Translate a text, or several: a Translation, or a list of them in the order of the texts."""
        return await self._translate(text, options)

    @overload
    async def score(self, source: str, target: str, **options: Unpack[ScoreOptions]) -> Score: ...
    @overload
    async def score(
        self, source: list[str] | tuple[str, ...], target: list[str] | tuple[str, ...], **options: Unpack[ScoreOptions]
    ) -> list[Score]: ...
    @shows(ScoreOptions)
    async def score(
        self,
        source: str | list[str] | tuple[str, ...],
        target: str | list[str] | tuple[str, ...],
        **options: Unpack[ScoreOptions],
    ) -> Score | list[Score]:
        """How probable the model finds `target` as the translation of `source`: its total, and each token's part of it.

        Or several, in the order of the two lists. Each is scored whole; what is longer than the model takes is refused.
        """
        return await self._score(source, target, options)

    @shows(ScoreOptions)
    def score_lines(self, pairs: Iterable[tuple[str, str]], **options: Unpack[ScoreOptions]) -> AsyncGenerator[Score, None]:
        """Score any number of (source, target), in bounded memory, in order. `timeout_s` is for each request."""
        return each(self._score_lines(pairs, options))

    @shows(RequestOptions)
    def stream(self, text: str, **options: Unpack[RequestOptions]) -> AsyncTranslationStream:
        """Translate a text and give its pieces as they are decided, for `async for`."""
        return AsyncTranslationStream(*self._stream(text, options))

    @shows(LineOptions)
    def translate_lines(
        self, lines: Iterable[str] | AsyncIterable[str], **options: Unpack[LineOptions]
    ) -> AsyncGenerator[Translation, None]:
        """Translate any number of lines, from either kind of source, in bounded memory, many at a time, in order."""
        return each(self._translate_lines(lines, options))

    @shows(FileOptions)
    async def translate_file(
        self, source: str | os.PathLike[str], output: str | os.PathLike[str], **options: Unpack[FileOptions]
    ) -> FileReport:
        """Translate a UTF-8 file line by line, resuming what an interrupted call left."""
        return await self._translate_file(source, output, options)

    async def check(self) -> None:
        """Return when a server is there and can translate; raise what is wrong otherwise."""
        await self._check()

    async def aclose(self) -> None:
        """End the calls in flight and the connections."""
        await self._transport.calls.close()

    async def __aenter__(self) -> AsyncTranslator:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def _open(self, connection: Connection) -> AsyncCalls:
        return AsyncCalls(connection)
