"""Translator: what most programs need."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, overload

from dragoman.client.blocking import BlockingCalls, iterate_each, run
from dragoman.client.channels import Connection
from dragoman.client.files import FileReport
from dragoman.client.options import FileOptions, LineOptions, RequestOptions, ScoreOptions, shows
from dragoman.client.results import Score, Translation
from dragoman.client.streams import TranslationStream
from dragoman.client.translator_base import TranslatorBase

if TYPE_CHECKING:
    from typing import Unpack

__all__ = ["Translator"]


class Translator(TranslatorBase):
    """Translates over gRPC. Use it as a context manager; threads may share it, and all calls share its connections.

        with Translator("localhost:8001") as translator:
            print(translator.translate("Where is the station?").text)

    `url` is `host:port` (or several: round robin with failover), `grpcs://` for TLS. `model` chooses a bundle where a
    server has several. With `decoding="client"`, or a `ClientDecoding`, the search runs here and only the model's
    steps in the server. `timeout_s` is for calls that give none of their own.
    """

    _is_single_threaded = False

    @overload
    def translate(self, text: str, **options: Unpack[RequestOptions]) -> Translation: ...
    @overload
    def translate(self, text: list[str] | tuple[str, ...], **options: Unpack[RequestOptions]) -> list[Translation]: ...
    @shows(RequestOptions)
    def translate(
        self, text: str | list[str] | tuple[str, ...], **options: Unpack[RequestOptions]
    ) -> Translation | list[Translation]:
        """Translate one text, or several in one request; returns a Translation, or a list of them in the order of the texts.

        Options that are left out have the model's own values.

            print(translator.translate("Where is the station?", beam_size=4).text)
        """
        return run(self._translate(text, options))

    @overload
    def score(self, source: str, target: str, **options: Unpack[ScoreOptions]) -> Score: ...
    @overload
    def score(
        self, source: list[str] | tuple[str, ...], target: list[str] | tuple[str, ...], **options: Unpack[ScoreOptions]
    ) -> list[Score]: ...
    @shows(ScoreOptions)
    def score(
        self,
        source: str | list[str] | tuple[str, ...],
        target: str | list[str] | tuple[str, ...],
        **options: Unpack[ScoreOptions],
    ) -> Score | list[Score]:
        """Score `target` as a translation of `source`: the log-probability in total and of each token.

        Two lists return a list of scores. Nothing is split; what is too long for the model is refused.

            score = translator.score("It is raining.", "Es regnet.")
            print(score.total, [token.log_probability for token in score.tokens])
        """
        return run(self._score(source, target, options))

    @shows(ScoreOptions)
    def score_lines(self, pairs: Iterable[tuple[str, str]], **options: Unpack[ScoreOptions]) -> Iterator[Score]:
        """Score any number of (source, target) pairs in bounded memory, in order; `timeout_s` applies to each request."""
        return iterate_each(self._score_lines(pairs, options))

    @shows(RequestOptions)
    def stream(self, text: str, **options: Unpack[RequestOptions]) -> TranslationStream:
        """Translate a text and return its pieces as soon as they are final; stopping early stops the server's work.

        After the last piece, `result` of the stream has the whole Translation.

            for piece in translator.stream("It is raining."):
                print(piece, end="", flush=True)
        """
        return TranslationStream(*self._stream(text, options))

    @shows(LineOptions)
    def translate_lines(self, lines: Iterable[str], **options: Unpack[LineOptions]) -> Iterator[Translation]:
        """Translate any number of lines in bounded memory, many at a time, in order; blank lines stay blank.

        `timeout_s` applies to each request; a server that is busy or restarting is waited for until then.

            with open("book.en", encoding="utf-8") as lines:
                for translation in translator.translate_lines(lines, priority="batch"):
                    print(translation.text)
        """
        return iterate_each(self._translate_lines(lines, options))

    @shows(FileOptions)
    def translate_file(
        self, source: str | os.PathLike[str], output: str | os.PathLike[str], **options: Unpack[FileOptions]
    ) -> FileReport:
        """Translate a UTF-8 file line by line; after an interruption the same call resumes.

        `output` appears when it is complete. `restart` starts over. `on_progress` is called with the number of lines that
        are done. HTML, Markdown, XML and subtitles (.html, .md, .xml, .srt), and any file with `document=True`, are
        translated as documents: everything between their texts is kept, and an interrupted run starts over.

            report = translator.translate_file("book.en", "book.de")
            print(report.lines, "lines in", report.output)
        """
        return run(self._translate_file(source, output, options))

    def check(self) -> None:
        """Return if a server can be reached and translates; raise the error otherwise."""
        run(self._check())

    def close(self) -> None:
        """Cancel the calls in flight and close the connections."""
        run(self._transport.calls.close())

    def __enter__(self) -> Translator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self, connection: Connection) -> BlockingCalls:
        return BlockingCalls(connection)
