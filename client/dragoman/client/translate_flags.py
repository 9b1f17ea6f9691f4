"""The flags of `dragoman translate`, and what they ask for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from dragoman.bundle.records import Segmentation
from dragoman.client.command_options import (
    above_zero,
    add_language_flags,
    add_server_flags,
    add_task_flags,
    add_text_flags,
    add_tls_flags,
    at_least_one,
    text_options,
)
from dragoman.client.documents import DocumentKind, kind_of_file
from dragoman.client.options import RequestOptions, check_options
from dragoman.errors import InvalidRequest, UsageError

__all__ = ["add_translate_flags", "check_flags", "document_kind", "request_options"]

_USUAL_BEAM = 4


def add_translate_flags(parser: argparse.ArgumentParser) -> None:
    """What is translated, how, and where it goes."""
    parser.add_argument(
        "text", nargs="*", metavar="TEXT", help="text to translate; without it, the lines of standard input are translated"
    )
    add_server_flags(parser)
    parser.add_argument("--model", metavar="NAME", help="bundle to use, if the server has several")
    add_language_flags(parser)
    add_task_flags(parser)
    add_text_flags(parser)
    _add_search_flags(parser.add_argument_group("search (default: the model's own settings)"))
    _add_output_flags(parser.add_argument_group("input and output"))
    add_tls_flags(parser)


def _add_search_flags(group: argparse._ActionsContainer) -> None:
    group.add_argument("--beam", type=at_least_one, metavar="N", help=f"beam size (with --n-best: at least {_USUAL_BEAM})")
    group.add_argument("--n-best", type=at_least_one, metavar="N", help="print the N best translations with their scores")
    group.add_argument(
        "--length-penalty",
        type=float,
        metavar="X",
        help="exponent of the length in scores; above 1 prefers long translations",
    )
    group.add_argument("--max-length", type=at_least_one, metavar="N", help="maximum number of target tokens")
    group.add_argument("--prefix", metavar="TEXT", help="text with which the translation must begin")
    group.add_argument(
        "--split",
        choices=get_args(Segmentation),
        help="unit of translation (default: the one that the model was trained on)",
    )
    group.add_argument(
        "--on-suspicion",
        choices=("ignore", "report", "retry"),
        help="for translations that are too short, too long or repetitive: ignore, report in --json, or translate again "
        "(default: ignore)",
    )
    group.add_argument(
        "--decoding", choices=("server", "client"), default="server", help="where the search runs (default: server)"
    )


def _add_output_flags(group: argparse._ActionsContainer) -> None:
    group.add_argument("--input", type=Path, metavar="FILE", help="translate a UTF-8 file, line by line or as a document")
    group.add_argument("--output", type=Path, metavar="FILE", help="write to this file; an interrupted run is resumed")
    group.add_argument(
        "--document",
        action=argparse.BooleanOptionalAction,
        help="translate --input by paragraphs instead of lines (default for .html, .xml, .md, .srt and .vtt)",
    )
    group.add_argument("--restart", action="store_true", help="start over instead of resuming")
    group.add_argument("--stream", action="store_true", help="print the translation while it is generated")
    group.add_argument("--align", action="store_true", help="append a tab and the word alignment in Pharaoh format: 0-0 1-2")
    group.add_argument(
        "--alternatives-at",
        type=_places,
        metavar="N[,N…]",
        help="also print the tokens that could stand at these characters of the translation, counted from 0",
    )
    group.add_argument("--num-alternatives", type=at_least_one, metavar="N", help="tokens per position (default: 5)")
    group.add_argument("--json", action="store_true", help="print one JSON object per text, with scores and timings")
    group.add_argument(
        "--timeout",
        type=above_zero,
        metavar="SECONDS",
        help="time limit of each request (default: 30; 120 for files and pipes)",
    )


def check_flags(arguments: argparse.Namespace) -> None:
    """UsageError for flags that make no sense together."""
    impossible = [
        (arguments.text and arguments.input, "give TEXT or --input, not both"),
        (arguments.output and not arguments.input, "--output needs --input; write a pipe's translation with > FILE"),
        (arguments.document and not arguments.output, "--document needs --input and --output"),
        (
            document_kind(arguments) == "subtitles" and not arguments.output,
            "--input is a document: give --output, or --no-document",
        ),
        (
            document_kind(arguments) and (arguments.n_best or arguments.align),
            "a whole document has one translation; add --no-document",
        ),
        (document_kind(arguments) and arguments.json, "a whole document has no --json; add --no-document for lines"),
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
        check_options(request_options(arguments), arguments.model, arguments.timeout or 1.0)
    except InvalidRequest as error:  # known without the server: the command is impossible as written
        raise UsageError(str(error)) from None


def document_kind(arguments: argparse.Namespace) -> DocumentKind | None:
    """What --input is as a whole document; None for lines."""
    return kind_of_file(arguments.input, arguments.format, arguments.document) if arguments.input else None


def request_options(arguments: argparse.Namespace) -> RequestOptions:
    """The options of the requests."""
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
