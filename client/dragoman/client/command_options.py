"""Flags that the client's commands share: where the server is and how to trust it."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import get_args

from dragoman.client.addresses import TLS
from dragoman.client.options import RequestOptions, TextFormat
from dragoman.errors import UsageError

__all__ = [
    "above_zero",
    "add_language_flags",
    "add_server_flags",
    "add_task_flags",
    "add_text_flags",
    "add_tls_flags",
    "at_least_one",
    "quiet_grpc",
    "text_options",
    "tls_of",
]


_NAME = re.compile(r"[A-Za-z0-9_-]+")
"""The name of a glossary in the server; whatever has another character is a file."""


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """--server."""
    parser.add_argument(
        "--server",
        metavar="HOST:PORT",
        default=os.environ.get("DRAGOMAN_SERVER", "localhost:8001"),
        help="gRPC address, grpcs://… for TLS; several with commas (default: $DRAGOMAN_SERVER or localhost:8001)",
    )


def add_language_flags(group: argparse._ActionsContainer) -> None:
    """--from and --to."""
    group.add_argument("--from", dest="source_language", metavar="LANGUAGE", help="language of the text, for example en")
    group.add_argument(
        "--to", dest="target_language", metavar="LANGUAGE", help="language to translate into, for example de or pt-BR"
    )


def add_task_flags(group: argparse._ActionsContainer) -> None:
    """--task and --task-prefix, for models of several tasks."""
    group.add_argument(
        "--task",
        metavar="NAME",
        help="task of a model that has several, for example summarization (dragoman inspect lists them)",
    )
    group.add_argument(
        "--task-prefix", metavar="TEXT", help='task as text that is put before each source, such as "summarize: "'
    )


def add_text_flags(group: argparse._ActionsContainer) -> None:
    """What a text is besides words."""
    group.add_argument(
        "--format",
        choices=get_args(TextFormat),
        help="format of the text, whose markup is kept (default: text; for a file, by its name)",
    )
    group.add_argument(
        "--glossary",
        metavar="FILE.tsv|NAME",
        help="terms to enforce: a file with a term, a tab and its translation per line, or a glossary of the server",
    )
    group.add_argument(
        "--no-placeholders",
        action="store_true",
        help="translate links, variables and quantities instead of keeping them",
    )
    group.add_argument("--no-capitals", action="store_true", help="pass sentences in capitals to the model as they are")
    group.add_argument(
        "--translate-attributes", action="store_true", help="translate attributes such as alt, title and placeholder, too"
    )


def text_options(arguments: argparse.Namespace) -> RequestOptions:
    """The options that these flags stand for."""
    return {
        "format": arguments.format,
        "glossary": arguments.glossary and _glossary(arguments.glossary),
        "placeholders": False if arguments.no_placeholders else None,
        "capitals": False if arguments.no_capitals else None,
        "translate_attributes": arguments.translate_attributes or None,
    }


def _glossary(given: str) -> str | list[tuple[str, str]]:
    """The terms of a file, or a name."""
    if _NAME.fullmatch(given):
        return given
    try:
        lines = Path(given).read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise UsageError(f"--glossary {given} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--glossary {given} is not UTF-8: {error}") from error
    terms = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            source, tab, target = line.rstrip("\r").partition("\t")
            if not tab or "\t" in target:
                raise UsageError(f"--glossary {given}, line {number}: write a term, a tab and its translation")
            terms.append((source, target))
    return terms


def add_tls_flags(parser: argparse.ArgumentParser) -> None:
    """The TLS files; call it last, for few need them and `--help` shows groups in this order."""
    tls = parser.add_argument_group("TLS")
    tls.add_argument("--tls-ca", metavar="PEM", help="certificate of the authority that signed the server's")
    tls.add_argument("--tls-cert", metavar="PEM", help="this client's certificate, if the server requires one")
    tls.add_argument("--tls-key", metavar="PEM", help="private key of --tls-cert")
    tls.add_argument("--tls-name", metavar="NAME", help="the name in the server's certificate, if it differs from the host")


def tls_of(arguments: argparse.Namespace) -> TLS | None:
    """The TLS settings that were given; None without any."""
    given = (arguments.tls_ca, arguments.tls_cert, arguments.tls_key, arguments.tls_name)
    return TLS(*given) if any(given) else None


def quiet_grpc() -> None:
    """Silence gRPC's own log lines about handshakes: the client's errors explain what happened."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def at_least_one(text: str) -> int:
    """A whole number for argparse."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, at least 1")
    return value


def above_zero(text: str) -> float:
    """A number for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0")
    return value
