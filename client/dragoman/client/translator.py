"""Translator: what most programs need."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, overload

from dragoman.client.addresses import TLS
from dragoman.client.driving import decode
from dragoman.client.files import FileJob, FileReport
from dragoman.client.options import Asked, RequestOptions, shows_options
from dragoman.client.rendering import OutputFormat, as_line
from dragoman.client.replies import read_translations
from dragoman.client.requests import READY_REQUEST, check_texts, stream_builder, translate_builder
from dragoman.client.results import Translation
from dragoman.client.retry import RetryPolicy
from dragoman.client.settings import CHECK_TIMEOUT_S, Decoding, settings_of
from dragoman.client.streams import StreamReader, TranslationStream
from dragoman.client.transport import Pending, Transport
from dragoman.client.windows import Batch, Deferred, Waiting, Window, batches, in_order
from dragoman.errors import RequestError, UsageError

if TYPE_CHECKING:
    from typing import Unpack

__all__ = ["Translator"]


class Translator:
    """Translates over gRPC. Use it as a context manager; threads may share it, and all calls share its connections.

    `url` is `host:port` (or several: round robin with failover), `grpcs://` for TLS. `model` chooses a bundle where a
    server has several. With `decoding="client"`, or a `ClientDecoding`, the search runs here and only the model's
    steps in the server. `timeout_s` is for calls that give none of their own.
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
        self._transport = Transport(self._settings.connection)

    @overload
    def translate(self, text: str, **options: Unpack[RequestOptions]) -> Translation: ...
    @overload
    def translate(self, text: list[str] | tuple[str, ...], **options: Unpack[RequestOptions]) -> list[Translation]: ...
    @shows_options
    def translate(
        self, text: str | list[str] | tuple[str, ...], **options: Unpack[RequestOptions]
    ) -> Translation | list[Translation]:
        """Translate a text, or several: a Translation, or a list of them in the order of the texts."""
        asked = self._settings.ask(options)
        if isinstance(text, str):
            return self._translate_together([text], asked)[0] if text.strip() else Translation.of_nothing()
        texts, window = check_texts(text), Window()
        return list(
            self._in_order(batches(texts, window.batch_size), window, asked, "text", ahead=len(texts) > window.batch_size)
        )

    @shows_options
    def stream(self, text: str, **options: Unpack[RequestOptions]) -> TranslationStream:
        """Translate a text and give its pieces as they are decided; stop early and the server stops too."""
        if self._settings.plan is not None:
            raise UsageError("stream() decodes in the server; use a Translator without decoding='client' for it")
        asked = self._settings.ask(options)
        reader = StreamReader()
        pieces = self._transport.stream(stream_builder(text, asked), asked.timeout_s, reader)
        return TranslationStream(pieces, reader)

    @shows_options
    def translate_lines(
        self, lines: Iterable[str], *, window: Window | None = None, **options: Unpack[RequestOptions]
    ) -> Iterator[Translation]:
        """Translate any number of lines in bounded memory, many at a time, in order; blank lines stay blank.

        `timeout_s` is for each request; a server that is busy or restarting is waited for until then.
        """
        asked = self._settings.ask_for_many(options)
        window = window or Window()
        return self._in_order(batches(lines, window.batch_size), window, asked, "line", policy=RetryPolicy.patient())

    @shows_options
    def translate_file(
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
        self.check()
        with FileJob(Path(source), Path(output), self._settings.job(asked, output_format), restart) as job:
            lines = batches(job.remaining(), window.batch_size, first=job.resumed_lines + 1)
            for translation in self._in_order(lines, window, asked, f"{source} line", policy=RetryPolicy.patient()):
                job.write(as_line(translation, output_format))
                if on_progress is not None:
                    on_progress(job.lines)
            return job.finish()

    def check(self) -> None:
        """Return when a server is there and can translate; raise what is wrong otherwise."""
        problems = [self._problem(server) for server in range(len(self._transport.servers))]
        if None not in problems and problems[0] is not None:
            raise problems[0]

    def close(self) -> None:
        """End the calls in flight and the connections."""
        self._transport.close()

    def __enter__(self) -> Translator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _problem(self, server: int) -> RequestError | None:
        try:
            ready = self._transport.ask("ModelReady", READY_REQUEST, server, CHECK_TIMEOUT_S).ready
        except RequestError as error:
            return error
        return None if ready else self._settings.not_ready(server)

    def _translate_together(self, texts: list[str], asked: Asked, policy: RetryPolicy | None = None) -> list[Translation]:
        """One request, waited for."""
        if self._settings.plan is not None:
            return decode(self._transport, [asked.source(text) for text in texts], asked, self._settings.plan)
        began_at = time.perf_counter()
        reply = self._transport.call(translate_builder(texts, asked), asked.timeout_s, policy)
        return read_translations(reply, len(texts), time.perf_counter() - began_at)

    def _in_order(
        self,
        source: Iterator[Batch],
        window: Window,
        asked: Asked,
        noun: str,
        *,
        ahead: bool = True,
        policy: RetryPolicy | None = None,
    ) -> Iterator[Translation]:
        """Translate batches; `ahead`: several requests on their way at once."""

        def send(texts: list[str]) -> Waiting:
            if self._settings.plan is not None or not ahead:
                return Deferred(lambda: self._translate_together(texts, asked, policy))
            return _Sent(self._transport.start(translate_builder(texts, asked), asked.timeout_s, policy), len(texts))

        return in_order(source, window, send, lambda text: self._translate_together([text], asked, policy)[0], noun)


class _Sent:
    """A `translate` request on its way."""

    def __init__(self, pending: Pending, texts: int) -> None:
        self._pending, self._texts = pending, texts
        self._began_at = time.perf_counter()
        self.cancel, self.answered = pending.cancel, pending.answered
        self.on_answer, self.give_up_if_hung = pending.on_answer, pending.give_up_if_hung

    def result(self) -> list[Translation]:
        """Its translations."""
        return read_translations(self._pending.result(), self._texts, time.perf_counter() - self._began_at)
