"""Moves terms that the search has put at the wrong place to the right one: where the translation attends to their source.

A search that has to write a term which the model finds improbable may put it anywhere, and usually translates the source of
the term in the model's own way, too. That other word shows where the term belongs, and the term replaces it.
"""

from __future__ import annotations

import bisect
import itertools
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dragoman.bundle.words import UNSPACED
from dragoman.serving.text.links import Link
from dragoman.serving.text.placing import Placing

__all__ = ["PartTerms", "Term"]

_Span = tuple[int, int]
_LETTER = re.compile(r"\w")
_SPACED_LETTER = re.compile(rf"(?![{UNSPACED}])\w")
_BEFORE, _BEHIND = re.compile(r"[\s(\[\"'„“‘«»¿¡]"), re.compile(r"[\s)\]\"'“”’«».,;:!?…]")
"""What may stand beside a word that is taken away: not a hyphen, whose other half would be left."""


class Term(NamedTuple):
    """source[start:end] must be translated as `target`. `inflects`: with any ending."""

    start: int
    end: int
    target: str
    inflects: bool = False


class _Move(NamedTuple):
    term: Term
    away: _Span
    to: _Span


class _Edit(NamedTuple):
    """A term takes the place of text[start:end], or nothing does."""

    start: int
    end: int
    move: _Move | None = None


@dataclass(frozen=True, slots=True)
class PartTerms:
    """The terms of one part; `source` is its text, and no term takes the place of `fixed` words."""

    source: str
    terms: Sequence[Term]
    fixed: Sequence[str] = ()

    def in_place(self, translation: str, links: Sequence[Link]) -> tuple[str, Sequence[Link]]:
        """The translation and its links with the terms in their places.

        A term stays where it is if it is linked with its source, or if its source is linked with no other word.
        """
        moves = self._moves(translation, links) if links else ()
        return _moved(moves, translation, links) if moves else (translation, links)

    def _moves(self, translation: str, links: Sequence[Link]) -> Sequence[_Move]:
        found = [_occurrences(term, translation) for term in self.terms]
        taken = bytearray(len(translation))  # characters that no term may take the place of
        for start, end in itertools.chain(*found, *(_occurrences(Term(0, 0, word), translation) for word in self.fixed)):
            taken[start:end] = b"\1" * (end - start)
        free = [
            link
            for link in links
            if not any(taken[link.target_start : link.target_end])
            and _LETTER.search(translation, link.target_start, link.target_end)
        ]
        looks = [_looking_at(term, links) for term in self.terms]
        standing = {
            span for spans, places in zip(found, looks, strict=True) for span in spans if not places.isdisjoint(range(*span))
        }
        placing, moves = Placing(self.source, translation, free), list[_Move]()
        for term, spans in zip(self.terms, found, strict=True):
            away = next((span for span in spans if span not in standing), None)
            if (
                away is None
                or not free
                or not standing.isdisjoint(spans)
                or not _stands_alone(term.target, translation, away)
            ):
                continue
            to = placing.range(term.start, term.end)
            if to is not None and not any(taken[slice(*to)]):
                taken[slice(*to)] = b"\1" * (to[1] - to[0])
                standing.add(away)
                moves.append(_Move(term, away, to))
        return moves


def _occurrences(term: Term, text: str) -> list[_Span]:
    """Where it is in a text as a whole word, with its ending; as it is written, or with a capital."""
    target, found = term.target, list[_Span]()
    begins, ends = _is_spaced(target[0]), _is_spaced(target[-1])
    for spelling in dict.fromkeys((target, target[0].upper() + target[1:])):
        start = text.find(spelling)
        while start >= 0:
            end = start + len(spelling)
            while ends and term.inflects and end < len(text) and _LETTER.match(text, end):
                end += 1
            if not (begins and start and _LETTER.match(text, start - 1)) and not (ends and _LETTER.match(text, end)):
                found.append((start, end))
            start = text.find(spelling, end)
    return found


def _is_spaced(letter: str) -> bool:
    """Whether it is one of a word that has spaces, or signs, beside it."""
    return _SPACED_LETTER.match(letter) is not None


def _looking_at(term: Term, links: Sequence[Link]) -> set[int]:
    """The characters of the translation that are linked with the term's source."""
    own = (link for link in links if link.source_start < term.end and link.source_end > term.start)
    return {at for link in own for at in range(link.target_start, link.target_end)}


def _stands_alone(target: str, text: str, span: _Span) -> bool:
    """Whether it can be taken away without leaving a part of a word."""
    start, end = span
    is_free_before = not start or not _is_spaced(target[0]) or _BEFORE.match(text, start - 1) is not None
    return is_free_before and (end == len(text) or not _is_spaced(target[-1]) or _BEHIND.match(text, end) is not None)


def _moved(moves: Sequence[_Move], text: str, links: Sequence[Link]) -> tuple[str, Sequence[Link]]:
    """Text and links with each term at its new place, and not at its old one."""
    gone = [_Edit(*span) for span in _with_spaces(text, sorted(one.away for one in moves))]
    edits = sorted([*(_Edit(*one.to, one) for one in moves), *gone], key=operator.itemgetter(0))
    pieces, places, done, length = list[str](), list[_Span](), 0, 0  # `places`: of what stands for each edit
    for start, end, move in edits:
        kept, word = text[done:start], "" if move is None else move.term.target[0] + text[slice(*move.away)][1:]
        pieces += (kept, word)
        places.append((length + len(kept), length + len(kept) + len(word)))
        done, length = max(done, end), places[-1][1]
    joined = "".join((*pieces, text[done:]))
    if text[0].isupper() and len(joined[0].upper()) == 1:
        joined = joined[0].upper() + joined[1:]
    starts, moved = [edit.start for edit in edits], list[Link]()
    for link in links:
        at = bisect.bisect_right(starts, link.target_end - 1) - 1  # the last edit that it may touch
        if at < 0:
            moved.append(link)
        elif link.target_start >= edits[at].end:
            moved.append(link.moved(0, places[at][1] - edits[at].end))
        elif (
            (move := edits[at].move) is not None and link.source_start < move.term.end and link.source_end > move.term.start
        ):
            moved.append(Link(link.source_start, link.source_end, *places[at]))
    return joined, moved


def _with_spaces(text: str, spans: Sequence[_Span]) -> list[_Span]:
    """Words that are taken away, those side by side as one, each with one space beside it."""
    joined = list[_Span]()
    for start, end in spans:
        if joined and text[joined[-1][1] : start].isspace():
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return [
        (start - 1, end) if text[:start].endswith(" ") else (start, end + text.startswith(" ", end)) for start, end in joined
    ]
