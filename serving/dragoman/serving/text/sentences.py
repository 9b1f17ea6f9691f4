"""Where sentences end: rules over Unicode text that keep every character's place.

A mark that ends sentences ends one here if what follows begins one, and if the word before it is not an abbreviation,
an initial or an ordinal. When in doubt the sentence goes on: a joined pair is translated well enough, a torn one is not.

Everything is linear in the length of the text: each pattern begins with a set of marks and always matches a whole run of
them; what must stand around the run is looked up, not searched for.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

__all__ = ["line_spans", "sentence_spans", "stripped_span", "weak_spans"]

_CLOSING = "\"'”’»›)]}）】」』〉》"
_OPENING = "\"'“‘„‚«‹([{（【「『〈《¿¡–—-"
_MARKS = ".!?…‽؟۔։।።"
_WIDE_MARKS = "。！？｡"
"""They need no space after them."""
_ENDING = re.compile(rf"(?P<mark>[{_MARKS}{_WIDE_MARKS}]+)(?P<closing>[{re.escape(_CLOSING)}]*)")
_WIDE_WEAK_MARKS = "、，；："
_WIDE_SET, _WIDE_WEAK_SET = frozenset(_WIDE_MARKS), frozenset(_WIDE_WEAK_MARKS)
_LINE = re.compile(r"[^\r\n\u2028\u2029\x0b\x0c]+")
_WORD_CHARACTER = rf"[^\s{re.escape(_OPENING)}]"
_LAST_WORD = re.compile(rf"(?<!{_WORD_CHARACTER}){_WORD_CHARACTER}+$")
_NEXT_WORD = re.compile(r"[\w'’]+")


_IN_SIGHT = 60
"""Characters around a mark that can matter: no word that does is longer. Looking further would cost a long text dearly."""

_MARKS_BETWEEN_PAUSES = 100


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# Without their last dot, lower case. Those that are also words (no, art) count only before a number.
_ABBREVIATIONS = _words("""
    mr mrs ms dr prof st sr jr rev gen col capt lt sgt hon gov pres messrs mt ft vs etc al ca cf vol fig figs ed eds
    dept univ inc ltd co corp bros approx est min max tel ext jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues
    wed thu thur fri sat sun ave blvd rd
    bzw usw ggf evtl inkl exkl zzgl abs bd hr fr frl nr str tl bspw sog vgl ung geb gest jh dipl ing hbf mio mrd tsd std
    mm mme mmes mlle mlles chap av env
    sra srta dn dña ud uds dto pág págs núm
    sig sigg dott prof.ssa ecc avv
    mevr dhr enz bijv
    ул стр рис им тыс млн млрд др пр
""")
_ONLY_BEFORE_NUMBERS = _words("no nos art pp nº núm cap sec seite bl kap")
_ORDINAL_DOT = _words("de da nb nn no fi et hu cs sk pl hr sr sl bs lv tr is")
"""Languages that write 3. for "third"."""

_STARTERS = _words("""
    The A An He She It They We You I This That These Those There But And In On At When If After Before However My His Her Its
    Der Die Das Ein Eine Er Sie Es Wir Ihr Ich Dies Diese Aber Und Im Wenn Nach Le La Les Un Une Il Elle Ils Elles Nous Vous
    Je Ce Cette Mais Et El Los Las Ella Ellos Yo Pero Y En
""")
"""Words that begin a sentence rather than go on after U.S. or p.m."""


def line_spans(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int] | None]:
    """Start and end of each line of text[start:end], without the white space around it. None is a pause."""
    for seen, line in enumerate(_LINE.finditer(text, start, len(text) if end is None else end), 1):
        if seen % _MARKS_BETWEEN_PAUSES == 0:
            yield None
        yield from stripped_span(text, *line.span())


def sentence_spans(
    text: str, language: str | None = None, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, int] | None]:
    """Start and end of each sentence of text[start:end]; between them is only white space. A line break always ends one.

    None is a pause: a caller with other things to do gets a turn at least once in a hundred marks.
    """
    seen = 0
    for line in _LINE.finditer(text, start, len(text) if end is None else end):
        start = line.start()
        for match in _ENDING.finditer(text, line.start(), line.end()):
            seen += 1
            if seen % _MARKS_BETWEEN_PAUSES == 0:
                yield None
            if _ends(text, line.end(), match, language):
                yield from stripped_span(text, start, match.end())
                start = match.end()
        yield from stripped_span(text, start, line.end())


def weak_spans(text: str, start: int, end: int, marks: str) -> Iterator[tuple[int, int] | None]:
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


@functools.cache
def _weak_pattern(marks: str) -> re.Pattern[str]:
    return re.compile(rf"[{marks}{_WIDE_WEAK_MARKS}]+[{re.escape(_CLOSING)}]*" if marks.strip() else r"\s+")


def _ends(text: str, line_end: int, match: re.Match[str], language: str | None) -> bool:
    """Does a sentence end at this run of marks, within a line that ends at `line_end`?"""
    if not _WIDE_SET.isdisjoint(match.group("mark")):
        return True
    if match.end() < line_end and not text[match.end()].isspace():
        return False
    following = text[match.end() : min(match.end() + _IN_SIGHT, line_end)].lstrip()
    if not following:
        return True
    opened = following.lstrip(_OPENING)
    first = opened[:1] or following[:1]
    if first.islower():
        return False
    if match.group("mark") != "." or match.group("closing"):
        return True
    word = _LAST_WORD.search(text, max(0, match.start() - _IN_SIGHT), match.start())
    return word is None or _dot_ends(word.group(), opened, language)


def _dot_ends(word: str, following: str, language: str | None) -> bool:
    """A single dot after `word`: the end of the sentence, or part of the word?"""
    next_word = _NEXT_WORD.match(following)
    starter = next_word is not None and next_word.group() in _STARTERS
    if len(word) == 1 and word.isalpha():
        return word in "IX" and starter  # an initial, unless it is the pronoun or a numeral
    if "." in word and all(len(part) <= 2 for part in word.split(".")) and not word[0].isdigit():
        return starter  # U.S., e.g., z.B., p.m.
    if word.isdigit() and len(word) <= 2 and language in _ORDINAL_DOT:
        return starter
    lowered = word.lower().lstrip("(")
    if lowered in _ONLY_BEFORE_NUMBERS:
        return not following[:1].isdigit()
    return lowered not in _ABBREVIATIONS


def stripped_span(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where text[start:end] is without the white space around it; nothing when there is nothing else."""
    piece = text[start:end]
    if (left := len(piece.lstrip())) > 0:
        yield start + len(piece) - left, start + len(piece.rstrip())
