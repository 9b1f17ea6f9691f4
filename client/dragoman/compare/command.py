"""`dragoman compare`: the same text through a bundle and through CTranslate2."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from dragoman.bundle.manifest import Manifest, read_manifest
from dragoman.counts import counted
from dragoman.drafts import draft_of
from dragoman.errors import UsageError

__all__ = ["HELP", "configure", "run"]

HELP = "Translate a text with a bundle and with CTranslate2, and compare agreement, quality, speed and memory."

_EPILOG = """\
examples:
  dragoman compare --bundle bundles/zh-en --ctranslate2 translate-zh_en-1_9 --text news.zh --references news.en
  dragoman compare --bundle bundles/en-de --ctranslate2 en-de-ct2 --text news.en --peer-python ct2/bin/python

The bundle is served by `dragoman serve` and called by `dragoman translate`. CTranslate2 translates in batches, in a process
of the Python that --peer-python names, which needs ctranslate2 and sentencepiece. The two alternate. The memory of the
bundle's side is that of the whole server, including Triton."""

MAX_TEXT_BYTES = 256 << 20
PRECISIONS = {"fp32": "float32", "int8": "int8_float32", "fp16": "float32", "bf16": "float32"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--bundle", type=Path, required=True, metavar="BUNDLE", help="a directory written by `dragoman export`")
    add("--ctranslate2", type=Path, required=True, metavar="DIR", help="a CTranslate2 model, or an unpacked Argos package")
    add("--text", type=Path, required=True, metavar="FILE", help="texts to translate, one per line")
    add("--references", type=Path, metavar="FILE", help="their translations, for BLEU and chrF")
    add(
        "--peer-python",
        type=Path,
        metavar="PYTHON",
        help="a Python that has ctranslate2 (default: the one that runs this command)",
    )
    add(
        "--compute-type",
        metavar="TYPE",
        help="compute type of CTranslate2 (default: int8_float32 for an int8 bundle, else float32)",
    )
    add("--spm", type=Path, action="append", default=[], metavar="FILE", help="sentencepiece model of CTranslate2")
    add(
        "--source-prefix",
        action="append",
        default=[],
        metavar="TOKEN",
        help="token that CTranslate2 gets before each source",
    )
    add(
        "--target-prefix",
        action="append",
        default=[],
        metavar="TOKEN",
        help="token that CTranslate2 begins each target with",
    )
    add("--from", dest="source_language", metavar="LANGUAGE", help="source language, if the bundle has several")
    add("--to", dest="target_language", metavar="LANGUAGE", help="target language, if the bundle has several")
    add("--beam", type=int, metavar="N", help="beam size of both (default: the bundle's)")
    add("--threads", type=int, metavar="N", help="compute threads of each (default: all cores)")
    add("--batch", type=int, default=32, metavar="N", help="lines in a batch of CTranslate2 (default: 32)")
    add("--rounds", type=int, default=3, metavar="N", help="how often each translates the text (default: 3)")
    add("--json", action="store_true", help="print the figures as JSON instead of a table")
    add("--html", type=Path, metavar="FILE", help="write a page with the lines that differ")


def run(arguments: argparse.Namespace) -> int:
    """Compare and print."""
    from rich.console import Console

    from dragoman.compare.figures import compared
    from dragoman.compare.page import as_page
    from dragoman.compare.report import as_table
    from dragoman.compare.sides import BundleSide, PeerSide, Run

    manifest = read_manifest(arguments.bundle)
    texts = _lines(arguments.text, "--text")
    references = None if arguments.references is None else _lines(arguments.references, "--references", blank=True)
    _check(arguments, texts, references)
    settings = _peer_settings(arguments, manifest)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: both sides are ended
    languages = {"--from": arguments.source_language, "--to": arguments.target_language}
    flags = [part for flag, value in languages.items() if value for part in (flag, value)]
    with ExitStack() as ends:
        peer = PeerSide(settings)
        ends.callback(peer.close)
        dragoman = BundleSide(arguments.bundle, settings.threads, arguments.beam, flags=flags)
        ends.callback(dragoman.close)
        peer.translate(texts[:1])
        rounds: list[tuple[Run, Run]] = []
        for at in range(arguments.rounds):  # by turns, and who is first changes
            if at % 2:
                ctranslate2 = peer.translate(texts)
                rounds.append((dragoman.translate(texts), ctranslate2))
            else:
                rounds.append((dragoman.translate(texts), peer.translate(texts)))
        names = (f"{dragoman.name} {manifest.precision}", peer.name)
    described = {
        "beam": str(settings.beam_size),
        "length penalty": f"{settings.length_penalty:g}",
        "threads": str(settings.threads),
        "batch of CTranslate2": str(settings.batch),
        "text": str(arguments.text),
    }
    found = compared(names, rounds, texts, references, described)
    if arguments.html is not None:
        with draft_of(arguments.html) as draft:
            draft.write_text(as_page(found), encoding="utf-8")
    if arguments.json:
        print(found.to_json())
    else:
        Console().print(as_table(found))
    return 0


def _peer_settings(arguments: argparse.Namespace, manifest: Manifest):  # type: ignore[no-untyped-def]  # noqa: ANN202
    from dragoman.compare.sides import PeerSettings, default_threads

    if not arguments.ctranslate2.is_dir():
        raise UsageError(f"--ctranslate2 {arguments.ctranslate2} must be a directory; unpack an .argosmodel with unzip")
    if not any((arguments.ctranslate2 / part / "model.bin").is_file() for part in (".", "model")):
        raise UsageError(f"--ctranslate2 {arguments.ctranslate2} has no model.bin, so it is no model of CTranslate2")
    return PeerSettings(
        model=arguments.ctranslate2,
        python=arguments.peer_python or Path(sys.executable),
        compute_type=arguments.compute_type or PRECISIONS[manifest.precision],
        threads=arguments.threads or default_threads(),
        beam_size=arguments.beam or manifest.generation.beam_size,
        length_penalty=manifest.generation.length_penalty,
        max_length=manifest.generation.max_length,
        batch=arguments.batch,
        sentencepiece=tuple(arguments.spm),
        source_prefix=tuple(arguments.source_prefix),
        target_prefix=tuple(arguments.target_prefix),
    )


def _check(arguments: argparse.Namespace, texts: list[str], references: list[str] | None) -> None:
    for name in ("rounds", "batch", "beam", "threads"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} {value} must be at least 1")
    page: Path | None = arguments.html
    if page is not None and (page.is_dir() or not os.access(page.parent, os.W_OK)):
        raise UsageError(f"--html {page} can't be written: it must be a file in a folder that can be written to")
    if references is not None and len(references) != len(texts):
        raise UsageError(
            f"--references has {counted(len(references), 'line')}, --text has {len(texts)}; they must be parallel"
        )


def _lines(path: Path, flag: str, *, blank: bool = False) -> list[str]:
    """The lines that are not blank; references may be."""
    try:
        if path.stat().st_size > MAX_TEXT_BYTES:
            raise UsageError(f"{flag} {path} has more than {MAX_TEXT_BYTES} bytes")
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except OSError as error:
        raise UsageError(f"{flag} {path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{flag} {path} is not UTF-8 (byte {error.start})") from error
    if not blank and (empty := [number for number, line in enumerate(lines, 1) if not line.strip()]):
        raise UsageError(f"{flag} {path} has blank lines ({', '.join(map(str, empty[:5]))}); leave them out")
    return lines
