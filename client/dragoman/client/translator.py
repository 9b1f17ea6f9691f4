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
        """Translate a text, or several: a Translation, or a list of them in the order of the texts."""
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
        """How probable the model finds `target` as the translation of `source`: its total, and each token's part of it.

        Or several, in the order of the two lists. Each is scored whole; what is longer than the model takes is refused.
        """
        return run(self._score(source, target, options))

    @shows(ScoreOptions)
    def score_lines(self, pairs: Iterable[tuple[str, str]], **options: Unpack[ScoreOptions]) -> Iterator[Score]:
        """Score any number of (source, target), in bounded memory, in order. `timeout_s` is for each request."""
        return iterate_each(self._score_lines(pairs, options))

    @shows(RequestOptions)
    def stream(self, text: str, **options: Unpack[RequestOptions]) -> TranslationStream:
        """Translate a text and give its pieces as they are decided; stop early and the server stops too."""
        return TranslationStream(*self._stream(text, options))

    @shows(LineOptions)
    def translate_lines(self, lines: Iterable[str], **options: Unpack[LineOptions]) -> Iterator[Translation]:
        """Translate any number of lines in bounded memory, many at a time, in order; blank lines stay blank.

        `timeout_s` is for each request; a server that is busy or restarting is waited for until then.
        """
        return iterate_each(self._translate_lines(lines, options))

    @shows(FileOptions)
    def translate_file(
        self, source: str | os.PathLike[str], output: str | os.PathLike[str], **options: Unpack[FileOptions]
    ) -> FileReport:
        """Translate a UTF-8 file line by line; interrupted, it goes on where it stopped when called again.

        `output` appears when it is complete. `restart` drops what an earlier run left. `on_progress` is told how
        many lines are done. Pages, Markdown, XML and subtitles (.html, .md, .xml, .srt), and any file with `document=True`,
        are translated as a whole, in pieces, with everything between their texts as it was.
        """
        return run(self._translate_file(source, output, options))

    def check(self) -> None:
        """Return when a server is there and can translate; raise what is wrong otherwise."""
        run(self._check())

    def close(self) -> None:
        """End the calls in flight and the connections."""
        run(self._transport.calls.close())

    def __enter__(self) -> Translator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self, connection: Connection) -> BlockingCalls:
        return BlockingCalls(connection)
