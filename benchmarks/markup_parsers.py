"""How long parsers hold their caller up with a text of the largest size that a request may have (CPU time).

python -m benchmarks.markup_parsers                        (HTML and Markdown; --seconds: when a parser is given up)

Our readers pause, so that other requests go on meanwhile: of them the longest stretch between two pauses is shown, too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Generator
from html.parser import HTMLParser
from pathlib import Path

import lxml.html
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from dragoman.serving.text.html_tokens import html_tokens
from dragoman.serving.text.markdown_tokens import markdown_tokens

_MOST = 100_000
_ROOT = Path(__file__).resolve().parents[1]


def _long(unit: str) -> str:
    return unit * (_MOST // len(unit))


HTML = {
    "a page": _long(
        '<p>The <b>old</b> house is <a href="x?a=1&amp;b">here</a>, &lt;you&gt; know.</p>\n<ul><li>One</li></ul>\n'
    ),
    "nested tags": "<b>" * (_MOST // 7) + "word" + "</b>" * (_MOST // 7),
    "nested blocks": _long("<div>"),
    "crossing pairs": _long("<b><i>x</b></i> "),
    "formatting in tables": _long("<table><b>"),
    "unclosed tags": _long("<a '"),
    "unclosed comments": _long("<!--"),
    "attributes": "<a" + " b=1" * (_MOST // 4) + ">word",
    "signs": _long("<"),
    "an unclosed script": "<script>" + _long("</scrip"),
}
MARKDOWN = {
    "a document": _long((_ROOT / "README.md").read_text(encoding="utf-8")),
    "quotes": _long("> "),
    "quotes in lines": _long("> " * 100 + "a\n"),
    "lists": _long("- "),
    "open brackets": _long("["),
    "images": _long("!["),
    "link titles": _long("[a](b 'c"),
    "stars": _long("*a "),
    "stars that open": "a**b" + "c* " * (_MOST // 3),
    "backticks": "".join("`" * count + "a" for count in range(446)),
    "tags": _long("<a b='"),
    "definitions": "[a]: b\n" * (_MOST // 14) + "[a]" * (_MOST // 6),
    "cells": _long("|a") + "\n" + "|-" * 50_000 + "\n|a",
}
LIBRARIES: dict[str, Callable[[str], object]] = {
    "lexbor": LexborHTMLParser,
    "lxml.html": lambda text: lxml.html.fromstring(text, parser=lxml.html.HTMLParser(huge_tree=True)),
    "html.parser": lambda text: HTMLParser().feed(text),
    "markdown-it-py": lambda text: MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text),
}


def _library(name: str, text: str, sender: object) -> None:
    began_s = time.process_time()
    try:
        LIBRARIES[name](text)
        outcome: float | str = time.process_time() - began_s
    except Exception as error:
        outcome = type(error).__name__
    sender.send(outcome)  # type: ignore[attr-defined]


def _of_library(name: str, text: str, seconds: float) -> str:
    """In a process of its own, as some do not come back and some end with their process."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_library, args=(name, text, sender))
    process.start()
    sender.close()
    try:
        outcome = receiver.recv() if receiver.poll(seconds) else f"more than {seconds:.0f} s"
    except EOFError:
        outcome = "the process ends"
    process.kill()
    process.join()
    return outcome if isinstance(outcome, str) else f"{1000 * outcome:.0f} ms"


def _of_ours(slices: Generator[None, None, object]) -> str:
    began_s = before_s = time.process_time()
    longest_s = 0.0
    while True:
        try:
            next(slices)
        except StopIteration:
            now_s = time.process_time()
            return f"{1000 * (now_s - began_s):.0f} ms, at most {1000 * max(longest_s, now_s - before_s):.1f} at a time"
        now_s = time.process_time()
        longest_s, before_s = max(longest_s, now_s - before_s), now_s


def _table(
    texts: dict[str, str], read: Callable[[str], Generator[None, None, object]], names: list[str], seconds: float
) -> None:
    print(f"\n| {_MOST // 1000} kB of | ours | {' | '.join(names)} |\n|{'---|' * (len(names) + 2)}")
    for name, text in texts.items():
        others = [_of_library(library, text, seconds) for library in names]
        print(f"| {name} | {_of_ours(read(text))} | {' | '.join(others)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="a parser that takes longer is given up")
    seconds = parser.parse_args().seconds
    _table(HTML, html_tokens, ["lexbor", "lxml.html", "html.parser"], seconds)
    _table(MARKDOWN, markdown_tokens, ["markdown-it-py"], seconds)


if __name__ == "__main__":
    main()
