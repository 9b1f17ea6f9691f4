"""AsyncTranslator: the same as Translator for asyncio."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, overload

from dragoman.client.addresses import TLS
from dragoman.client.async_transport import AsyncTransport
from dragoman.client.async_windows import batches_async, in_order_async
from dragoman.client.driving import decode_async
from dragoman.client.files import FileJob, FileReport
from dragoman.client.options import Asked, RequestOptions, shows_options
from dragoman.client.rendering import OutputFormat, as_line
from dragoman.client.replies import read_translations
from dragoman.client.requests import READY_REQUEST, check_texts, stream_builder, translate_builder
from dragoman.client.results import Translation
from dragoman.client.retry import RetryPolicy
from dragoman.client.settings import CHECK_TIMEOUT_S, Decoding, settings_of
from dragoman.client.streams import AsyncTranslationStream, StreamReader
from dragoman.client.windows import Batch, Window
from dragoman.errors import RequestError, UsageError

if TYPE_CHECKING:
    from typing import Unpack

__all__ = ["AsyncTranslator"]


class AsyncTranslator:
    """Translates over gRPC in an asyncio loop; its arguments and options are Translator's.

    It belongs to the loop of its first call. Cancelling a call, or leaving a stream, stops the work in the server.
    """

    def __init__(
        self,
        url: str | Sequence[str] = "localhost:8001",
        *,
        model: str | None = None,
        decoding: Decoding = "server",
        timeout_s: float = 30.0,
        tls: TLS | None = None,
        retry: RetryPolicy | None = None,
        keepalive_s: float = 20.0,
    ) -> None:
        self._settings = settings_of(
            url, model=model, decoding=decoding, timeout_s=timeout_s, tls=tls, retry=retry, keepalive_s=keepalive_s
        )
        self._transport = AsyncTransport(self._settings.connection)

    @overload
    async def translate(self, text: str, **options: Unpack[RequestOptions]) -> Translation: ...
    @overload
    async def translate(self, text: list[str] | tuple[str, ...], **options: Unpack[RequestOptions]) -> list[Translation]: ...
    @shows_options
    async def translate(
        self, text: str | list[str] | tuple[str, ...], **options: Unpack[RequestOptions]
    ) -> Translation | list[Translation]:
        """Translate a text, or several: a Translation, or a list of them in the order of the texts."""
        asked = self._settings.ask(options)
        if isinstance(text, str):
            return (await self._translate_together([text], asked))[0] if text.strip() else Translation.of_nothing()
        window = Window()
        source = batches_async(check_texts(text), window.batch_size)
        return [translation async for translation in self._in_order(source, window, asked, "text")]

    @shows_options
    def stream(self, text: str, **options: Unpack[RequestOptions]) -> AsyncTranslationStream:
        """Translate a text and give its pieces as they are decided; stop early and the server stops too."""
        if self._settings.plan is not None:
            raise UsageError("stream() decodes in the server; use a translator without decoding='client' for it")
        asked = self._settings.ask(options)
        reader = StreamReader()
        pieces = self._transport.stream(stream_builder(text, asked), asked.timeout_s, reader)
        return AsyncTranslationStream(pieces, reader)

    @shows_options
    def translate_lines(
        self,
        lines: Iterable[str] | AsyncIterable[str],
        *,
        window: Window | None = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncGenerator[Translation, None]:
        """Translate any number of lines in bounded memory, many at a time, in order; blank lines stay blank.

        `timeout_s` is for each request; a server that is busy or restarting is waited for until then.
        """
        asked = self._settings.ask_for_many(options)
        window = window or Window()
        return self._in_order(batches_async(lines, window.batch_size), window, asked, "line", RetryPolicy.patient())

    @shows_options
    async def translate_file(
        self,
        source: str | os.PathLike[str],
        output: str | os.PathLike[str],
        *,
        output_format: OutputFormat = "text",
        restart: bool = False,
        on_progress: Callable[[int], None] | None = None,
        window: Window | None = None,
        **options: Unpack[RequestOptions],
    ) -> FileReport:
        """Translate a UTF-8 file line by line; interrupted, it goes on where it stopped when called again.

        `output` appears when it is complete. `restart` throws away what an earlier run left. `on_progress` is
        told how many lines are done.
        """
        asked = self._settings.ask_for_many(options)
        window = window or Window()
        await self.check()
        with FileJob(Path(source), Path(output), self._settings.job(asked, output_format), restart) as job:
            lines = batches_async(job.remaining(), window.batch_size, first=job.resumed_lines + 1)
            async for translation in self._in_order(lines, window, asked, f"{source} line", RetryPolicy.patient()):
                job.write(as_line(translation, output_format))
                if on_progress is not None:
                    on_progress(job.lines)
            return job.finish()

    async def check(self) -> None:
        """Return when a server is there and can translate; raise what is wrong otherwise."""
        problems = [await self._problem(server) for server in range(len(self._transport.servers))]
        if None not in problems and problems[0] is not None:
            raise problems[0]

    async def aclose(self) -> None:
        """End the calls in flight and the connections."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncTranslator:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _problem(self, server: int) -> RequestError | None:
        try:
            ready = (await self._transport.ask("ModelReady", READY_REQUEST, server, CHECK_TIMEOUT_S)).ready
        except RequestError as error:
            return error
        return None if ready else self._settings.not_ready(server)

    async def _translate_together(
        self, texts: list[str], asked: Asked, policy: RetryPolicy | None = None
    ) -> list[Translation]:
        """One request."""
        if self._settings.plan is not None:
            return await decode_async(self._transport, [asked.source(text) for text in texts], asked, self._settings.plan)
        began_at = time.perf_counter()
        reply = await self._transport.call(translate_builder(texts, asked), asked.timeout_s, policy)
        return read_translations(reply, len(texts), time.perf_counter() - began_at)

    def _in_order(
        self, source: AsyncIterator[Batch], window: Window, asked: Asked, noun: str, policy: RetryPolicy | None = None
    ) -> AsyncGenerator[Translation, None]:
        return in_order_async(source, window, lambda texts: self._translate_together(texts, asked, policy), noun)
