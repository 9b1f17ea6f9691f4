"""What both translators do, as coroutines over their transport."""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import cast, get_args

from dragoman.client.addresses import TLS
from dragoman.client.calls import Calls
from dragoman.client.channels import Connection
from dragoman.client.documents import DocumentKind, kind_of_file, pieces_of, read_document, write_document
from dragoman.client.driving import decode
from dragoman.client.files import FileJob, FileReport
from dragoman.client.messages import Reply
from dragoman.client.options import (
    CheckedOptions,
    FileOptions,
    LineOptions,
    RequestOptions,
    ScoreOptions,
    TextFormat,
    check_score_options,
    encode_text,
)
from dragoman.client.rendering import as_line
from dragoman.client.replies import read_scores, read_translations
from dragoman.client.requests import READY_REQUEST, check_texts, score_builder, stream_builder, translate_builder
from dragoman.client.results import Score, Translation
from dragoman.client.retry import RetryPolicy
from dragoman.client.scoring import Pair, is_blank, pairs_of, score_each
from dragoman.client.settings import CHECK_TIMEOUT_S, Decoding, settings_of
from dragoman.client.streams import StreamReader
from dragoman.client.transport import Transport
from dragoman.client.windows import Batch, Window, batches, in_order, one_after_another
from dragoman.errors import RequestError, UsageError

__all__ = ["TranslatorBase"]


class TranslatorBase(ABC):
    """Holds the settings and the transport; the base of Translator and AsyncTranslator."""

    _is_single_threaded: bool
    """Whether requests in flight share one thread, so that a processor of the caller is not called twice at once."""

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
        self._transport = Transport(self._settings.connection, self._open(self._settings.connection))

    @abstractmethod
    def _open(self, connection: Connection) -> Calls:
        """The kind of calls that this translator waits for."""

    async def _translate(self, text: str | Sequence[str], given: RequestOptions) -> Translation | list[Translation]:
        options = self._settings.check(given)
        if isinstance(text, str):
            return (await self._request([text], options))[0] if text.strip() else Translation.of_nothing()
        texts, window = check_texts(text), Window()
        source = batches(texts, window.batch_size)
        if len(texts) <= window.batch_size:
            window = Window(in_flight=1)
        lists = [translations async for translations in self._in_order(source, window, options, "text")]
        return [translation for translations in lists for translation in translations]

    async def _score(
        self, source: str | Sequence[str], target: str | Sequence[str], given: ScoreOptions
    ) -> Score | list[Score]:
        options = self._score_options(given)
        if isinstance(source, str) and isinstance(target, str):
            if is_blank((source, target)):
                return Score.of_nothing()
            return (await self._request_scores([(source, target)], options))[0]
        if isinstance(source, str) or isinstance(target, str):
            raise TypeError("score() takes a source and a target, or a list of each")
        found: list[Score] = []
        async for scores in self._scores(pairs_of(source, target), options, "pair"):
            found += scores
        return found

    def _score_lines(self, pairs: Iterable[Pair], given: ScoreOptions) -> AsyncGenerator[list[Score], None]:
        self._score_options(given)
        options = self._settings.check_for_many(check_score_options(given))
        return self._scores(pairs, options, "line", RetryPolicy.patient())

    def _score_options(self, given: ScoreOptions) -> CheckedOptions:
        if self._settings.plan is not None:
            raise UsageError("score() needs the server's decoder; use a translator without decoding='client' for it")
        return self._settings.check(check_score_options(given))

    async def _scores(
        self, pairs: Iterable[Pair], options: CheckedOptions, noun: str, policy: RetryPolicy | None = None
    ) -> AsyncGenerator[list[Score], None]:
        async def send(some: Sequence[Pair]) -> list[Score]:
            return await self._request_scores(some, options, policy)

        async for scores in score_each(pairs, send, noun):
            yield scores

    async def _request_scores(
        self, pairs: Sequence[Pair], options: CheckedOptions, policy: RetryPolicy | None = None
    ) -> list[Score]:
        began_at = time.perf_counter()
        response = await self._transport.infer(score_builder(pairs, options), options.timeout_s, policy)
        return read_scores(Reply(response), len(pairs), time.perf_counter() - began_at)

    def _stream(self, text: str, given: RequestOptions) -> tuple[AsyncGenerator[str, None], StreamReader]:
        if self._settings.plan is not None:
            raise UsageError("stream() decodes in the server; use a translator without decoding='client' for it")
        options = self._settings.check(given)
        reader = StreamReader()
        return self._transport.stream(stream_builder(text, options), options.timeout_s, reader), reader

    def _translate_lines(
        self, lines: Iterable[str] | AsyncIterable[str], given: LineOptions
    ) -> AsyncGenerator[list[Translation], None]:
        options = self._settings.check_for_many(_of_request(given))
        window = given.get("window") or Window()
        source = batches(lines, window.batch_size)
        return self._in_order(source, window, options, "line", RetryPolicy.patient())

    async def _translate_file(
        self, source: str | os.PathLike[str], output: str | os.PathLike[str], given: FileOptions
    ) -> FileReport:
        is_document = None if (given.get("output_format") or "text") == "text" else False
        wanted = given.get("document")
        kind = kind_of_file(Path(source), given.get("format"), is_document if wanted is None else wanted)
        if kind in get_args(TextFormat):
            given = {**given, "format": cast("TextFormat", kind)}
        options = self._settings.check_for_many(_of_request(given))
        output_format, on_progress = given.get("output_format") or "text", given.get("on_progress")
        if kind is not None:
            return await self._translate_document(Path(source), Path(output), kind, options, given)
        window = given.get("window") or Window()
        await self._check()
        job_settings = self._settings.job(options, output_format)
        with FileJob(Path(source), Path(output), job_settings, bool(given.get("restart"))) as job:
            lines = batches(job.remaining(), window.batch_size, first=job.resumed_lines + 1)
            async with contextlib.aclosing(
                self._in_order(lines, window, options, f"{source} line", RetryPolicy.patient())
            ) as lists:
                async for translations in lists:
                    for translation in translations:
                        job.write(as_line(translation, output_format))
                        if on_progress is not None:
                            on_progress(job.lines)
            return job.finish()

    async def _translate_document(
        self, source: Path, output: Path, kind: DocumentKind, options: CheckedOptions, given: FileOptions
    ) -> FileReport:
        if given.get("output_format") == "json":
            raise UsageError("a whole document has no JSON lines; leave out output_format, or ask for document=False")
        if output.exists() and source.exists() and source.samefile(output):
            raise UsageError(f"{output} is the input; write the translation to another file")
        pieces = list(pieces_of(read_document(source), kind))
        if pieces[0].is_marked:
            given = {**given, "format": "html"}
            options = self._settings.check_for_many(_of_request(given))
        await self._check()
        window, on_progress = given.get("window") or Window(), given.get("on_progress")
        texts = batches([piece.sent for piece in pieces[:-1]], window.batch_size)
        written: list[str] = []
        async with contextlib.aclosing(
            self._in_order(texts, window, options, f"{source} paragraph", RetryPolicy.patient())
        ) as lists:
            async for translations in lists:
                for translation in translations:
                    written.append(pieces[len(written)].written(translation.text))
                    if on_progress is not None:
                        on_progress(len(written))
        write_document(output, [*written, pieces[-1].before])
        return FileReport(output, len(written), 0)

    async def _check(self) -> None:
        problems = [await self._problem(server) for server in range(len(self._transport.servers))]
        if None not in problems and problems[0] is not None:
            raise problems[0]

    async def _problem(self, server: int) -> RequestError | None:
        try:
            ready = (await self._transport.ask("ModelReady", READY_REQUEST, server, CHECK_TIMEOUT_S)).ready
        except RequestError as error:
            return error
        return None if ready else self._settings.not_ready(server)

    async def _request(
        self, texts: list[str], options: CheckedOptions, policy: RetryPolicy | None = None
    ) -> list[Translation]:
        """One request, or one decoding in the client."""
        if self._settings.plan is not None:
            return await decode(self._transport, [encode_text(text) for text in texts], options, self._settings.plan)
        began_at = time.perf_counter()
        response = await self._transport.infer(translate_builder(texts, options), options.timeout_s, policy)
        return read_translations(Reply(response), len(texts), time.perf_counter() - began_at)

    def _in_order(
        self,
        source: AsyncIterator[Batch],
        window: Window,
        options: CheckedOptions,
        noun: str,
        policy: RetryPolicy | None = None,
    ) -> AsyncGenerator[list[Translation], None]:
        async def send(texts: list[str]) -> list[Translation]:
            return await self._request(texts, options, policy)

        if window.in_flight == 1 or (self._settings.plan is not None and not self._is_single_threaded):
            return one_after_another(source, send, noun)
        return in_order(source, window, send, noun, self._transport.calls)


def _of_request(given: LineOptions) -> RequestOptions:
    """Without what is for the job as a whole."""
    of_job = ("window", "output_format", "restart", "on_progress", "document")
    return cast("RequestOptions", {name: value for name, value in given.items() if name not in of_job})
