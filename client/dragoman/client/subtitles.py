"""Cues of subtitles (.srt, .vtt): what is translated of each, and how its translation is laid out in lines again.

The lines of a cue are one text, unless they begin with a dash: then each is what another person says. Cues with tags
(<i>, <font color="…">) are sent as HTML, in which their texts are escaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

__all__ = ["are_marked", "cue_text", "cues", "laid_out", "speeches"]

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_TIMES = re.compile(r"[ \t]*(?:\d{1,9}:)?\d{1,2}:\d\d[,.:]\d{1,3}[ \t]*--?>")
_NUMBER = re.compile(r"[ \t]*\d{1,9}\s*$")
_PLACED = re.compile(r"[ \t]*(?:\{\\[^{}\n]{1,200}\}[ \t]*)+")  # {\an8}: where the cue is shown
_WEBVTT = re.compile(r"WEBVTT(?=\s|$)")
_TAG = re.compile(r"</?(?:[biuscv]|font|ruby|rt|lang)(?:[\s.][^<>\n]{0,200})?>", re.IGNORECASE)
_SIGNIFICANT = re.compile(rf"{_TAG.pattern}|[&<]", re.IGNORECASE)
_DASH = re.compile(r"(?:<[^<>\n]{1,200}>)*[-–—]\s*\w")
_WORD = re.compile(r"(?:<[^<>]*>|[^\s<]|<)+")
_BREAK = "<br>"


def cues(document: str) -> Iterator[tuple[int, int]]:
    """Where the texts of the cues begin and end, between blank lines and lines of times with the numbers before them.

    What stands before the first times of WebVTT, and its paragraphs without times (notes, styles), are no cues.
    """
    needs_times, has_times = _WEBVTT.match(document) is not None, False
    start = stop = before = -1  # of the text that goes on, and where it ends without its last line
    at = 0
    while at < len(document) and (line := _LINE.match(document, at)) is not None:
        text, begin, at = line.group(), at, line.end()
        is_times = _TIMES.match(text) is not None
        if text.isspace() or is_times:
            if start >= 0:
                yield from _cue(start, before if is_times and before >= 0 else stop)
            start = before = -1
            has_times = is_times
            continue
        if needs_times and not has_times:
            continue
        if start < 0:
            placed = _PLACED.match(text)
            start = stop = begin + (placed.end() if placed else 0)
        before = stop if _NUMBER.match(text) else -1
        stop = begin + len(text.rstrip())
    if start >= 0:
        yield from _cue(start, stop)


def _cue(start: int, stop: int) -> Iterator[tuple[int, int]]:
    if start < stop:
        yield start, stop


def are_marked(document: str) -> bool:
    """Whether there are tags in a document, which is then sent as HTML."""
    return _TAG.search(document) is not None


def speeches(lines: Sequence[str]) -> list[list[str]]:
    """The lines of a cue by who says them."""
    found: list[list[str]] = []
    for line in lines:
        if not found or _DASH.match(line):
            found.append([])
        found[-1].append(line)
    return found


def cue_text(said: Sequence[Sequence[str]], *, is_marked: bool) -> str:
    """What is sent of a cue."""
    texts = [" ".join(lines) for lines in said]
    return _BREAK.join(map(_escaped, texts)) if is_marked else "\n".join(texts)


def laid_out(translation: str, lines: Sequence[int], *, is_marked: bool) -> list[str]:
    """The lines of the translation of a cue; `lines`: how many each of its speeches had."""
    said = translation.split(_BREAK if is_marked else "\n")
    counts = lines if len(said) == len(lines) else [1] * len(said)
    texts = [html.unescape(text) for text in said] if is_marked else said
    return [line for text, count in zip(texts, counts, strict=True) for line in _in_lines(text, count)]


def _escaped(text: str) -> str:
    return _SIGNIFICANT.sub(lambda sign: html.escape(sign.group()) if len(sign.group()) == 1 else sign.group(), text)


def _in_lines(text: str, count: int) -> Iterator[str]:
    """The words of a text in so many lines of about the same length; fewer where there are too few words."""
    words = [word.group() for word in _WORD.finditer(text)]
    while words and count > 1:
        share = sum(map(len, words)) + len(words) - 1
        taken = 1
        length = len(words[0])
        while taken < len(words) - (count - 1) and length + 1 + len(words[taken]) / 2 <= share / count:
            length += 1 + len(words[taken])
            taken += 1
        yield " ".join(words[:taken])
        words, count = words[taken:], count - 1
    if words:
        yield " ".join(words)
