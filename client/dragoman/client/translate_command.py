"""`dragoman translate`: text in, text out."""

from __future__ import annotations

import argparse
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from dragoman.client.command_options import quiet_grpc, tls_of
from dragoman.client.documents import DocumentKind, Piece, count_pieces, pieces_of, read_document
from dragoman.client.files import count_lines, decode_lines, read_lines
from dragoman.client.options import RequestOptions, TextFormat
from dragoman.client.pharaoh import pharaoh
from dragoman.client.progress import line_progress
from dragoman.client.rendering import as_json, as_line
from dragoman.client.results import Translation
from dragoman.client.tables import print_alternatives, print_hypotheses
from dragoman.client.translate_flags import add_translate_flags, check_flags, document_kind, request_options
from dragoman.client.translator import Translator
from dragoman.client.windows import Window
from dragoman.counts import counted
from dragoman.errors import UsageError

__all__ = ["HELP", "configure", "run"]

HELP = "Translate text over gRPC: from arguments, from standard input, or a whole file."

_EXAMPLES = """
examples:
  dragoman translate "Where is the station?"
  dragoman translate "Where is the station?" --to de
  dragoman translate "Where is the station?" --beam 4 --n-best 3
  dragoman translate "Where is the station?" --align
  dragoman translate "Where is the station?" --alternatives-at 8   # what else could stand at character 8
  dragoman translate "My sister has been living in this house for ten years." --stream
  dragoman translate --input page.html --output page.de.html
  dragoman translate --input README.md > README.de.md
  dragoman translate "The station is closed." --glossary terms.tsv
  cat book.en | dragoman translate --server localhost:8001 > book.de
  dragoman translate --input book.en --output book.de      # resumes when it was interrupted
  dragoman translate --input film.en.srt --output film.de.srt

exit codes: 0 success, 1 the server or a text failed, 2 wrong usage or unreadable input, 130 interrupted
"""
_MARKUP = ("html", "xml", "markdown")
_AT_ONCE = Window(batch_size=1, in_flight=1, held=0)


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.epilog = _EXAMPLES
    add_translate_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Translate the texts, the lines of standard input or a file."""
    check_flags(arguments)
    quiet_grpc()
    with Translator(
        arguments.server, model=arguments.model, decoding=arguments.decoding, tls=tls_of(arguments)
    ) as translator:
        try:
            _translate(translator, arguments)
        except BrokenPipeError:  # the reader of the output ended, like head
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _translate(translator: Translator, arguments: argparse.Namespace) -> None:
    options = request_options(arguments)
    kind = document_kind(arguments)
    if kind in _MARKUP:
        options = {**options, "format": cast("TextFormat", kind)}
    if arguments.output:
        _translate_file(translator, arguments, options)
    elif kind is not None and not arguments.stream:
        _print_document(translator, arguments.input, kind, options)
    elif arguments.stream:
        for line in _lines(arguments):
            for piece in translator.stream(line, **options) if line.strip() else ():
                print(piece, end="", flush=True)
            print(flush=True)
    elif arguments.text:
        several = len(arguments.text) > 1  # an error about the only text need not name it
        found = translator.translate(arguments.text if several else arguments.text[0], **options)
        for number, (text, translation) in enumerate(
            zip(arguments.text, found if several else [found], strict=True), start=1
        ):
            _show(text, translation, arguments, number if several else None)
    else:
        translator.check()  # a pipe may be long: better to fail now when no server answers
        by_hand = not arguments.input and sys.stdin.isatty()
        if by_hand:
            print("one text per line; Ctrl-D ends", file=sys.stderr)
        window = _AT_ONCE if by_hand else Window()
        sent: deque[str] = deque()  # lines whose translations have not come
        translations = translator.translate_lines(_kept(_lines(arguments), sent), window=window, **options)
        for number, translation in enumerate(translations, start=1):
            _show(sent.popleft(), translation, arguments, number)


def _translate_file(translator: Translator, arguments: argparse.Namespace, options: RequestOptions) -> None:
    kind = document_kind(arguments)
    is_document = kind is not None
    total = count_lines(arguments.input) if kind is None else count_pieces(arguments.input, kind)
    with line_progress(arguments.input.name, total) as show:
        try:
            report = translator.translate_file(
                arguments.input,
                arguments.output,
                output_format="json" if arguments.json else "text",
                restart=arguments.restart,
                document=is_document,
                on_progress=show,
                **options,
            )
        except KeyboardInterrupt:
            if not is_document:
                print(f"{arguments.output} is not complete; the same command goes on where it stopped", file=sys.stderr)
            raise
    resumed = f" ({report.resumed_lines:,} of them earlier)" if report.resumed_lines else ""
    noun = "piece" if kind in _MARKUP else "paragraph" if is_document else "line"
    print(f"{counted(report.lines, noun)}{resumed} → {report.output}", file=sys.stderr)


def _print_document(translator: Translator, path: Path, kind: DocumentKind, options: RequestOptions) -> None:
    """Every piece as soon as it is translated."""
    pieces = list(pieces_of(read_document(path), kind))
    if pieces[0].is_marked:
        options = {**options, "format": "html"}
    waiting: deque[Piece] = deque(pieces[:-1])
    for translation in translator.translate_lines((piece.sent for piece in pieces[:-1]), **options):
        print(waiting.popleft().written(translation.text), end="", flush=True)
    print(pieces[-1].before, end="", flush=True)


def _lines(arguments: argparse.Namespace) -> Iterable[str]:
    if arguments.text:
        return list(arguments.text)
    if arguments.format in _MARKUP and not arguments.input:  # a page is one text
        return [_page()]
    if arguments.stream and document_kind(arguments):
        return [read_document(arguments.input)]
    return read_lines(arguments.input) if arguments.input else decode_lines(sys.stdin.buffer, "standard input")


def _page() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"standard input can't be read: {error}") from error


def _kept(lines: Iterable[str], sent: deque[str]) -> Iterator[str]:
    for line in lines:
        sent.append(line)
        yield line


def _show(source: str, translation: Translation, arguments: argparse.Namespace, number: int | None) -> None:
    if arguments.json:
        print(as_json(translation), flush=True)
    elif arguments.n_best:
        print_hypotheses(translation, number)
    elif arguments.alternatives_at:
        print(as_line(translation, "text"), flush=True)
        print_alternatives(translation)
    elif arguments.align:
        print(f"{as_line(translation, 'text')}\t{pharaoh(source, translation)}", flush=True)
    else:
        print(as_line(translation, "text"), flush=True)
