"""`dragoman score`: pairs of a text and a translation in, log-probabilities out."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from dragoman.client.command_options import (
    above_zero,
    add_language_flags,
    add_server_flags,
    add_task_flags,
    add_tls_flags,
    quiet_grpc,
    tls_of,
)
from dragoman.client.files import check_output, decode_lines, read_lines
from dragoman.client.options import ScoreOptions, check_options, check_score_options
from dragoman.client.results import Score
from dragoman.client.scoring import Pair, is_blank
from dragoman.client.translator import Translator
from dragoman.drafts import draft_of
from dragoman.errors import InvalidRequest, UsageError

__all__ = ["HELP", "configure", "run"]

HELP = "Score translations: how probable the model finds each, in total and token by token."

_EXAMPLES = r"""
Each input line has a text, a tab and its translation. Each output line has the total log-probability, a tab and the
log-probabilities of the tokens, with the end token last; --json adds the texts of the tokens. The total is a plain sum
without a length penalty; the closer to 0, the more probable. Nothing is split: send sentences. A line without text
on both sides has a blank line as its score; one without text on one side is an error.

examples:
  printf 'Where is the station?\tWo ist der Bahnhof?\n' | dragoman score
  dragoman score --input pairs.tsv --output scores.tsv
  dragoman score --input pairs.tsv --json > scores.jsonl
  paste book.en book.de | dragoman score --server localhost:8001 | cut -f 1

exit codes: 0 success, 1 the server or a line failed, 2 wrong usage or unreadable input, 130 interrupted
"""
_TAB = "\t"


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.epilog = _EXAMPLES
    add_server_flags(parser)
    parser.add_argument("--model", metavar="NAME", help="bundle to use, if the server has several")
    add_language_flags(parser)
    add_task_flags(parser)
    output = parser.add_argument_group("input and output")
    output.add_argument("--input", type=Path, metavar="FILE.tsv", help="pairs to score (default: standard input)")
    output.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="file for the scores, written when it is complete (default: standard output)",
    )
    output.add_argument("--json", action="store_true", help="print one JSON object per line, with the texts of the tokens")
    output.add_argument("--timeout", type=above_zero, metavar="SECONDS", help="time limit of each request (default: 120)")
    add_tls_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Score the pairs of a file or of standard input."""
    options = _options(arguments)
    try:
        check_options(check_score_options(options), arguments.model, arguments.timeout or 1.0)
    except InvalidRequest as error:  # known without the server: the command is impossible as written
        raise UsageError(str(error)) from None
    quiet_grpc()
    with Translator(arguments.server, model=arguments.model, tls=tls_of(arguments)) as translator:
        translator.check()  # a pipe may be long: better to fail now when no server answers
        try:
            with _opened(arguments.output) as stream:
                _score(translator, arguments, options, stream)
        except BrokenPipeError:  # the reader of the output ended, like head
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _score(translator: Translator, arguments: argparse.Namespace, options: ScoreOptions, stream: TextIO) -> None:
    name = str(arguments.input or "standard input")
    lines = read_lines(arguments.input) if arguments.input else decode_lines(sys.stdin.buffer, name)
    try:
        for score in translator.score_lines(_pairs(lines, name), **options):
            print(_as_json(score) if arguments.json else _as_line(score), file=stream, flush=True)
    except InvalidRequest as error:  # it begins with the line
        raise InvalidRequest(f"{name} {error}") from None


def _options(arguments: argparse.Namespace) -> ScoreOptions:
    return {
        "source_language": arguments.source_language,
        "target_language": arguments.target_language,
        "task": arguments.task,
        "task_prefix": arguments.task_prefix,
        "timeout_s": arguments.timeout,
    }


def _pairs(lines: Iterable[str], name: str) -> Iterator[Pair]:
    for number, line in enumerate(lines, start=1):
        source, tab, target = line.partition(_TAB)
        if is_blank((source, target)) and _TAB not in target:
            yield "", ""
            continue
        if not tab or _TAB in target:
            found = "more than one tab" if tab else "no tab"
            raise UsageError(f"{name} line {number} has {found}; it must be a text, a tab and its translation")
        if not source.strip() or not target.strip():
            raise UsageError(f"{name} line {number} has no {'translation' if source.strip() else 'text'}")
        yield source, target


def _as_line(score: Score) -> str:
    if not score.tokens:  # the end token is always one, but for blank lines
        return ""
    return f"{score.total:.6f}{_TAB}{' '.join(f'{token.log_probability:.6f}' for token in score.tokens)}"


def _as_json(score: Score) -> str:
    return json.dumps(dataclasses.asdict(score), ensure_ascii=False)


@contextmanager
def _opened(output: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that has its old content until the new one is complete."""
    if output is None:
        yield sys.stdout
        return
    check_output(output)
    with draft_of(output) as draft, draft.open("w", encoding="utf-8") as stream:
        yield stream
