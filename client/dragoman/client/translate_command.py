"""`dragoman translate`: text in, text out."""

from __future__ import annotations

import argparse
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast, get_args

from dragoman.bundle.records import Segmentation
from dragoman.client.command_options import (
    above_zero,
    add_language_flags,
    add_server_flags,
    add_task_flags,
    add_text_flags,
    add_tls_flags,
    at_least_one,
    quiet_grpc,
    text_options,
    tls_of,
)
from dragoman.client.documents import DocumentKind, Piece, count_pieces, kind_of_file, pieces_of, read_document
from dragoman.client.files import count_lines, decode_lines, read_lines
from dragoman.client.options import RequestOptions, TextFormat, check_options
from dragoman.client.pharaoh import pharaoh
from dragoman.client.progress import line_progress
from dragoman.client.rendering import as_json, as_line
from dragoman.client.results import Translation
from dragoman.client.tables import print_alternatives, print_hypotheses
from dragoman.client.translator import Translator
from dragoman.client.windows import Window
from dragoman.errors import InvalidRequest, UsageError

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
_USUAL_BEAM = 4
_AT_ONCE = Window(batch_size=1, in_flight=1, held=0)


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "text", nargs="*", metavar="TEXT", help="text to translate; without it, the lines of standard input are translated"
    )
    add_server_flags(parser)
    parser.add_argument("--model", metavar="NAME", help="bundle to use, if the server has several")
    add_language_flags(parser)
    add_task_flags(parser)
    add_text_flags(parser)
    search = parser.add_argument_group("search (default: the model's own settings)")
    search.add_argument("--beam", type=at_least_one, metavar="N", help=f"beam size (with --n-best: at least {_USUAL_BEAM})")
    search.add_argument("--n-best", type=at_least_one, metavar="N", help="print the N best translations with their scores")
    search.add_argument(
        "--length-penalty",
        type=float,
        metavar="X",
        help="exponent of the length in scores; above 1 prefers long translations",
    )
    search.add_argument("--max-length", type=at_least_one, metavar="N", help="maximum number of target tokens")
    search.add_argument("--prefix", metavar="TEXT", help="text with which the translation must begin")
    search.add_argument(
        "--split",
        choices=get_args(Segmentation),
        help="unit of translation (default: the one that the model was trained on)",
    )
    search.add_argument(
        "--on-suspicion",
        choices=("ignore", "report", "retry"),
        help="for translations that are too short, too long or repetitive: ignore, report in --json, or translate again "
        "(default: ignore)",
    )
    search.add_argument(
        "--decoding", choices=("server", "client"), default="server", help="where the search runs (default: server)"
    )
    output = parser.add_argument_group("input and output")
    output.add_argument("--input", type=Path, metavar="FILE", help="translate a UTF-8 file, line by line or as a document")
    output.add_argument("--output", type=Path, metavar="FILE", help="write to this file; an interrupted run is resumed")
    output.add_argument(
        "--document",
        action=argparse.BooleanOptionalAction,
        help="translate --input by paragraphs instead of lines (default for .html, .xml, .md and .srt)",
    )
    output.add_argument("--restart", action="store_true", help="start over instead of resuming")
    output.add_argument("--stream", action="store_true", help="print the translation while it is generated")
    output.add_argument(
        "--align", action="store_true", help="append a tab and the word alignment in Pharaoh format: 0-0 1-2"
    )
    output.add_argument(
        "--alternatives-at",
        type=_places,
        metavar="N[,N…]",
        help="also print the tokens that could stand at these characters of the translation, counted from 0",
    )
    output.add_argument("--num-alternatives", type=at_least_one, metavar="N", help="tokens per position (default: 5)")
    output.add_argument("--json", action="store_true", help="print one JSON object per text, with scores and timings")
    output.add_argument(
        "--timeout",
        type=above_zero,
        metavar="SECONDS",
        help="time limit of each request (default: 30; 120 for files and pipes)",
    )
    add_tls_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Translate the texts, the lines of standard input or a file."""
    _check(arguments)
    quiet_grpc()
    with Translator(
        arguments.server, model=arguments.model, decoding=arguments.decoding, tls=tls_of(arguments)
    ) as translator:
        try:
            _translate(translator, arguments)
        except BrokenPipeError:  # the reader of the output ended, like head
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """UsageError for flags that make no sense together."""
    impossible = [
        (arguments.text and arguments.input, "give TEXT or --input, not both"),
        (arguments.output and not arguments.input, "--output needs --input; write a pipe's translation with > FILE"),
        (arguments.document and not arguments.output, "--document needs --input and --output"),
        (
            _kind(arguments) == "subtitles" and not arguments.output,
            "--input is a document: give --output, or --no-document",
        ),
        (
            _kind(arguments) and (arguments.n_best or arguments.align),
            "a whole document has one translation; add --no-document",
        ),
        (_kind(arguments) and arguments.json, "a whole document has no --json; add --no-document for lines"),
        (arguments.restart and not arguments.output, "--restart is for --output"),
        (arguments.stream and arguments.json, "--stream shows text as it comes; leave out --json"),
        (arguments.stream and arguments.n_best, "--stream has one hypothesis; leave out --n-best"),
        (arguments.stream and arguments.output, "--stream is for the terminal; leave out --output"),
        (arguments.stream and arguments.decoding == "client", "--stream decodes in the server; leave out --decoding client"),
        (arguments.align and arguments.stream, "--stream shows text as it comes; leave out --align"),
        (arguments.align and arguments.output and not arguments.json, "--align in a file needs --json"),
        (arguments.align and arguments.n_best and not arguments.json, "--align with --n-best needs --json"),
        (
            arguments.align and arguments.decoding == "client",
            "--align needs the server's search; leave out --decoding client",
        ),
        (arguments.n_best and arguments.output and not arguments.json, "--n-best in a file needs --json"),
        (arguments.num_alternatives and not arguments.alternatives_at, "--num-alternatives is for --alternatives-at"),
        (arguments.alternatives_at and arguments.stream, "--stream shows text as it comes; leave out --alternatives-at"),
        (
            arguments.alternatives_at and not arguments.json and (arguments.output or arguments.n_best or arguments.align),
            "--alternatives-at with --output, --n-best or --align needs --json",
        ),
        (
            arguments.alternatives_at and arguments.decoding == "client",
            "--alternatives-at needs the server's search; leave out --decoding client",
        ),
        (
            arguments.beam and arguments.n_best and arguments.n_best > arguments.beam,
            f"--n-best {arguments.n_best} needs --beam {arguments.n_best} or more",
        ),
    ]
    for holds, problem in impossible:
        if holds:
            raise UsageError(problem)
    try:
        check_options(_options(arguments), arguments.model, arguments.timeout or 1.0)
    except InvalidRequest as error:  # known without the server: the command is impossible as written
        raise UsageError(str(error)) from None


def _translate(translator: Translator, arguments: argparse.Namespace) -> None:
    options = _options(arguments)
    kind = _kind(arguments)
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
    kind = _kind(arguments)
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
    noun = "pieces" if kind in _MARKUP else "paragraphs" if is_document else "lines"
    print(f"{report.lines:,} {noun}{resumed} → {report.output}", file=sys.stderr)


def _print_document(translator: Translator, path: Path, kind: DocumentKind, options: RequestOptions) -> None:
    """Every piece as soon as it is translated."""
    pieces = list(pieces_of(read_document(path), kind))
    waiting: deque[Piece] = deque(pieces[:-1])
    for translation in translator.translate_lines((piece.sent for piece in pieces[:-1]), **options):
        print(waiting.popleft().written(translation.text), end="", flush=True)
    print(pieces[-1].before, end="", flush=True)


def _kind(arguments: argparse.Namespace) -> DocumentKind | None:
    """What --input is as a whole document; None for lines."""
    return kind_of_file(arguments.input, arguments.format, arguments.document) if arguments.input else None


def _options(arguments: argparse.Namespace) -> RequestOptions:
    beam = arguments.beam
    if arguments.n_best and beam is None:  # the model's own beam may be narrower than the hypotheses asked for
        beam = max(arguments.n_best, _USUAL_BEAM)
    return {
        "beam_size": beam,
        "num_hypotheses": arguments.n_best,
        "length_penalty": arguments.length_penalty,
        "max_length": arguments.max_length,
        "prefix_text": arguments.prefix,
        "source_language": arguments.source_language,
        "target_language": arguments.target_language,
        "task": arguments.task,
        "task_prefix": arguments.task_prefix,
        "split": arguments.split,
        "on_suspicion": arguments.on_suspicion,
        "alignment": arguments.align or None,
        "alternatives_at": arguments.alternatives_at,
        "num_alternatives": arguments.num_alternatives,
        **text_options(arguments),
        "timeout_s": arguments.timeout,
    }


def _places(text: str) -> list[int]:
    """Numbers between commas, for argparse."""
    places = text.split(",")
    if not all(place.isdecimal() for place in places):
        raise argparse.ArgumentTypeError(f"{text!r} must be whole numbers from 0, with commas between them")
    return [int(place) for place in places]


def _lines(arguments: argparse.Namespace) -> Iterable[str]:
    if arguments.text:
        return list(arguments.text)
    if arguments.format in _MARKUP and not arguments.input:  # a page is one text
        return [_page()]
    if arguments.stream and _kind(arguments):
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
