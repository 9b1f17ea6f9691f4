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
    """Translator for asyncio, with the same arguments, methods and options.

        async with AsyncTranslator("localhost:8001") as translator:
            print((await translator.translate("Where is the station?")).text)

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
        """Translate one text, or several in one request; returns a Translation, or a list in the order of the texts."""
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
        """Score `target` as a translation of `source`: the log-probability in total and of each token.

        Two lists return a list of scores. Nothing is split; what is too long for the model is refused.
        """
        return await self._score(source, target, options)

    @shows(ScoreOptions)
    def score_lines(self, pairs: Iterable[tuple[str, str]], **options: Unpack[ScoreOptions]) -> AsyncGenerator[Score, None]:
        """Score any number of (source, target) pairs in bounded memory, in order; `timeout_s` applies to each request."""
        return each(self._score_lines(pairs, options))

    @shows(RequestOptions)
    def stream(self, text: str, **options: Unpack[RequestOptions]) -> AsyncTranslationStream:
        """Translate a text and return its pieces for `async for`, as soon as they are final."""
        return AsyncTranslationStream(*self._stream(text, options))

    @shows(LineOptions)
    def translate_lines(
        self, lines: Iterable[str] | AsyncIterable[str], **options: Unpack[LineOptions]
    ) -> AsyncGenerator[Translation, None]:
        """Translate any number of lines in order, many at a time, in bounded memory; `lines` may be an async iterable."""
        return each(self._translate_lines(lines, options))

    @shows(FileOptions)
    async def translate_file(
        self, source: str | os.PathLike[str], output: str | os.PathLike[str], **options: Unpack[FileOptions]
    ) -> FileReport:
        """Translate a UTF-8 file as Translator.translate_file does."""
        return await self._translate_file(source, output, options)

    async def check(self) -> None:
        """Return if a server can be reached and translates; raise the error otherwise."""
        await self._check()

    async def aclose(self) -> None:
        """Cancel the calls in flight and close the connections."""
        await self._transport.calls.close()

    async def __aenter__(self) -> AsyncTranslator:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def _open(self, connection: Connection) -> AsyncCalls:
        return AsyncCalls(connection)
