"""Where sentences end: rules over Unicode text that keep every character's place.

A mark that ends sentences ends one here if what follows begins one, and if the word before it is not an abbreviation,
an initial or an ordinal. When in doubt the sentence goes on: a joined pair is translated well enough, a torn one is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["sentence_spans", "weak_spans"]

_CLOSING = "\"'”’»›)]}）】」』〉》"
_OPENING = "\"'“‘„‚«‹([{（【「『〈《¿¡–—-"
_ENDING = re.compile(
    rf"(?P<wide>[。！？｡]+[{re.escape(_CLOSING)}]*)"  # needs no space after it
    rf"|(?P<mark>[.!?…‽؟۔։।።]+)(?P<closing>[{re.escape(_CLOSING)}]*)(?=\s|$)"
)
_LINE = re.compile(r"[^\r\n\u2028\u2029\x0b\x0c]+")
_LAST_WORD = re.compile(r"[^\s" + re.escape(_OPENING) + r"]+$")
_NEXT_WORD = re.compile(r"[\w'’]+")


_IN_SIGHT = 60
"""Characters around a mark that can matter: no word that does is longer. Looking further would cost a long text dearly."""


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


def sentence_spans(text: str, language: str | None = None) -> list[tuple[int, int]]:
    """Start and end of each sentence; between them is only white space. A line break always ends a sentence."""
    spans = []
    for line in _LINE.finditer(text):
        for start, end in _in_line(line.group(), language):
            if line.group()[start:end].strip():
                spans.append(_stripped(text, line.start() + start, line.start() + end))
    return spans


def weak_spans(text: str, start: int, end: int, marks: str) -> list[tuple[int, int]]:
    """Pieces of text[start:end] that end after one of `marks` and the white space that follows."""
    pattern = re.compile(rf"(?:[{marks}]+[{re.escape(_CLOSING)}]*)(?=\s)|[、，；：]" if marks.strip() else r"\s+")
    spans, begin = [], start
    for match in pattern.finditer(text, start, end):
        if text[begin : match.end()].strip():
            spans.append(_stripped(text, begin, match.end()))
            begin = match.end()
    if text[begin:end].strip():
        spans.append(_stripped(text, begin, end))
    return spans


def _in_line(line: str, language: str | None) -> Iterator[tuple[int, int]]:
    start = 0
    for match in _ENDING.finditer(line):
        if match.group("wide") or _ends(line, match, language):
            yield start, match.end()
            start = match.end()
    yield start, len(line)


def _ends(line: str, match: re.Match[str], language: str | None) -> bool:
    """Does a sentence end at this mark?"""
    following = line[match.end() : match.end() + _IN_SIGHT].lstrip()
    if not following:
        return True
    opened = following.lstrip(_OPENING)
    first = opened[:1] or following[:1]
    if first.islower():
        return False
    if match.group("mark") != "." or match.group("closing"):
        return True
    word = _LAST_WORD.search(line, max(0, match.start() - _IN_SIGHT), match.start())
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


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
