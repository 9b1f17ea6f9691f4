"""Finds sentence ends: rules over Unicode text that keep every character's position.

A mark ends a sentence if what follows can begin one, and if the word before it is not an abbreviation, an initial or an
ordinal. In doubt it does not: two joined sentences are translated well enough, a torn one is not.

Everything is linear in the length of the text: each pattern begins with a set of marks and matches a whole run of them; the
context of a run is looked up, not searched for.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from dragoman.serving.text.sentence_rules import CLOSING, OPENING, WIDE_MARKS, SentenceRules, rules_for

__all__ = ["is_one_sentence", "line_spans", "sentence_spans", "stripped_span", "weak_spans"]

_CELL_END = re.compile(r"[\t\r\n\u2028\u2029\x0b\x0c]")
_WIDE_WEAK_MARKS = "、，；："
_WIDE_SET, _WIDE_WEAK_SET = frozenset(WIDE_MARKS), frozenset(_WIDE_WEAK_MARKS)
_LINE = re.compile(r"[^\r\n\u2028\u2029\x0b\x0c]+")
_CELL = re.compile(r"[^\t\r\n\u2028\u2029\x0b\x0c]+")
"""Of a table: a tab is no space between two words."""
_LIST_MARKER = re.compile(r"[•‣⁃*·–—-]?\s*\(?(?:[^\W\d_]|\d{1,3}(?:\.\d{1,3}){0,3})")
_NEXT_LIST_MARKER = re.compile(r"\(?(?:[a-z]|[ivx]{1,4}|\d{1,3})[.)]+\s")
_QUOTED_ON = ("と", "って", "、", "，")
"""「…。」と言った: after a quotation the sentence goes on."""
_SPACED_DOTS_THAT_END = 4
_IN_SIGHT = 60
"""Characters around a mark that can matter: no word that does is longer. Looking further would cost a long text dearly."""
_MARKS_BETWEEN_PAUSES = 100
_CLAUSES = 60
"""Characters. A language without full stops is split at a space after so many: about a sentence."""

_Span = tuple[int, int]


def line_spans(text: str, start: int = 0, end: int | None = None) -> Iterator[_Span | None]:
    """Start and end of each line of text[start:end], without the white space around it. None is a pause."""
    for seen, line in enumerate(_LINE.finditer(text, start, len(text) if end is None else end), 1):
        if seen % _MARKS_BETWEEN_PAUSES == 0:
            yield None
        yield from stripped_span(text, *line.span())


def sentence_spans(text: str, language: str | None = None, start: int = 0, end: int | None = None) -> Iterator[_Span | None]:
    """Start and end of each sentence of text[start:end]; between them is only white space.

    A line break and a tab always end one. None is a pause: a caller with other things to do gets a turn at least once in a
    hundred marks, lines and cells.
    """
    rules, seen = rules_for(language), 0
    for cell in _CELL.finditer(text, start, len(text) if end is None else end):
        seen += 1
        if seen % _MARKS_BETWEEN_PAUSES == 0:
            yield None
        begin, line_end = cell.span()
        for match in rules.ending.finditer(text, begin, line_end):
            seen += 1
            if seen % _MARKS_BETWEEN_PAUSES == 0:
                yield None
            if _ends(text, begin, line_end, match, rules):
                yield from _sentence(text, begin, match.end(), rules)
                begin = match.end()
        yield from _sentence(text, begin, line_end, rules)


def is_one_sentence(text: str, language: str | None = None) -> bool:
    """Whether the first mark is the last one, as in most short texts: a quick check. False may be wrong."""
    if _CELL_END.search(text):
        return False
    rules = rules_for(language)
    first = rules.ending.search(text)
    return not rules.without_stops and (first is None or first.end() == len(text))


def weak_spans(text: str, start: int, end: int, marks: str) -> Iterator[_Span | None]:
    """Pieces of text[start:end] that end after one of `marks` and the white space that follows; with " ", its words.

    None is a pause, as in `sentence_spans`.
    """
    begin, anywhere = start, not marks.strip()
    for seen, match in enumerate(_weak_pattern(marks).finditer(text, start, end), 1):
        if seen % _MARKS_BETWEEN_PAUSES == 0:
            yield None
        after = match.end()
        if anywhere or (after < end and text[after].isspace()) or not _WIDE_WEAK_SET.isdisjoint(match.group()):
            yield from stripped_span(text, begin, after)
            begin = after
    yield from stripped_span(text, begin, end)


def stripped_span(text: str, start: int, end: int) -> Iterator[_Span]:
    """Where text[start:end] is without the white space around it; nothing when there is nothing else."""
    piece = text[start:end]
    if (left := len(piece.lstrip())) > 0:
        yield start + len(piece) - left, start + len(piece.rstrip())


@functools.cache
def _weak_pattern(marks: str) -> re.Pattern[str]:
    return re.compile(rf"[{marks}{_WIDE_WEAK_MARKS}]+[{re.escape(CLOSING)}]*" if marks.strip() else r"\s+")


def _sentence(text: str, start: int, end: int, rules: SentenceRules) -> Iterator[_Span | None]:
    """text[start:end], or its clauses where the language has no stops."""
    if not rules.without_stops:
        yield from stripped_span(text, start, end)
        return
    begin: int | None = None
    for span in weak_spans(text, start, end, " "):
        if span is None:
            yield None
            continue
        begin = span[0] if begin is None else begin
        if span[1] - begin >= _CLAUSES:
            yield begin, span[1]
            begin = None
    if begin is not None:
        yield from stripped_span(text, begin, end)


def _ends(text: str, start: int, line_end: int, match: re.Match[str], rules: SentenceRules) -> bool:
    """Does the sentence that began at `start` end at this run of marks, within a line that ends at `line_end`?"""
    mark, closing, end = match.group("mark"), match.group("closing"), match.end()
    if not _WIDE_SET.isdisjoint(mark):
        return not (closing and text.startswith(_QUOTED_ON, end)) and not _is_decimal(text, mark, match)
    if end < line_end and not text[end].isspace():
        return mark[-1] in "?!" and _is_wide(text[end])
    following = text[end : min(end + _IN_SIGHT, line_end)].lstrip()
    if not following:
        return True
    if _NEXT_LIST_MARKER.match(following) is None and _goes_on(following):
        return False
    if " " in mark or "\xa0" in mark:
        return mark.count(".") >= _SPACED_DOTS_THAT_END  # three are a pause, the fourth is the full stop
    if mark == "." and match.start() - start < _IN_SIGHT and _LIST_MARKER.fullmatch(text[start : match.start()].lstrip()):
        return False  # 1. A. (a.)
    if mark != "." or closing:
        return True
    *before, word = text[max(start, match.start() - _IN_SIGHT) : match.start()].rsplit(None, 2)[-2:] or ("",)
    word = word.lstrip(OPENING).rpartition("-")[2]
    return not word or rules.dot_ends(word, before[0] if before else "", following.lstrip(OPENING))


def _goes_on(following: str) -> bool:
    """Whether what follows begins in lower case, behind what may open a sentence; iPads and eBay do not count."""
    opened = following.lstrip(OPENING + " \xa0") or following
    return opened[0].islower() and not opened[1:2].isupper()


def _is_decimal(text: str, mark: str, match: re.Match[str]) -> bool:
    """３．５: a wide dot between digits."""
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    return mark == "．" and before.isdigit() and after.isdigit()


def _is_wide(character: str) -> bool:
    """Ideographs and kana, which are written without spaces."""
    return "\u3040" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff"
