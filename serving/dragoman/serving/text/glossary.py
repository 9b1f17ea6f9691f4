"""Glossaries: terms that a translation must or must not contain, read from TSV or from a request, and found in a text.

A term is found as whole words, the longest first; in scripts without spaces anywhere. A term in lower case also matches at
the beginning of a sentence and in capitals; a term with capitals matches as it is written. A translation is used as it is
written, or with any ending if it ends in ~. The search for terms is linear: terms form a tree of words, of bounded depth,
that is followed from each word of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dragoman.bundle.words import UNSPACED
from dragoman.errors import InvalidRequest, ServeError
from dragoman.search.option_types import shown

__all__ = ["MOST_CHARACTERS", "MOST_TERMS_OF_A_REQUEST", "Glossary", "Match", "glossary_of_pairs", "read_glossary"]

MOST_TERMS_OF_A_REQUEST = 256
MOST_CHARACTERS = 200
"""The limit of a term."""
_MOST_TERMS = 100_000
_MOST_BYTES = 16 << 20
_MOST_WORDS = 24
_FORBIDDEN = "!"
_INFLECTED = "~"
_EVERYWHERE = "*"
_WORD = re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])\w)+|[^\w\s]")

Pair = tuple[str, str]


@dataclass(slots=True)
class _Node:
    """A node of the tree after some words of a term: words that may follow, and terms that end here, by spelling."""

    following: dict[str, _Node] = field(default_factory=dict)
    terms: dict[str, _Term] = field(default_factory=dict)


@dataclass(slots=True)
class _Term:
    source: str
    target: str | None = None
    forbidden: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Match:
    """text[start:end] is a term: `target` must occur in the translation (None: nothing must), `forbidden` must not.

    `inflects`: an ending may follow the target.
    """

    start: int
    end: int
    target: str | None
    forbidden: tuple[str, ...]
    inflects: bool = False


class Glossary:
    """The terms of one direction of translation. Immutable."""

    def __init__(self, pairs: Iterable[tuple[str, Pair]]) -> None:
        """Pairs of source and target, each with the name of its place for messages; InvalidRequest names the place."""
        self._root = _Node()
        self.forbidden: tuple[str, ...] = ()
        """Never to be used."""
        places: dict[tuple[str, str], str] = {}
        for place, (source, target) in pairs:
            self._add(place, source.strip(), target.strip(), places)

    def _add(self, place: str, source: str, target: str, places: dict[tuple[str, str], str]) -> None:
        bans = target.startswith(_FORBIDDEN)
        target = target[len(_FORBIDDEN) :].strip().removesuffix(_INFLECTED) if bans else target
        if not source or not target.removesuffix(_INFLECTED):
            raise InvalidRequest(f"{place}: a term needs a source and a target; write !target for one that is forbidden")
        if max(len(source), len(target)) > MOST_CHARACTERS:
            raise InvalidRequest(f"{place}: a term has more than {MOST_CHARACTERS} characters")
        if source == _EVERYWHERE and bans:
            self.forbidden = (*self.forbidden, target)
            return
        words = _WORD.findall(source)
        if len(words) > _MOST_WORDS:
            raise InvalidRequest(f"{place}: the term {shown(source)} has {len(words)} words; it may have {_MOST_WORDS}")
        node = self._root
        for word in words:
            node = node.following.setdefault(word.casefold(), _Node())
        term = node.terms.setdefault(source, _Term(source))
        contradicts = target == term.target if bans else (term.target not in {None, target} or target in term.forbidden)
        if contradicts:
            before = places.get((source, "")) or places.get((source, target), "another line")
            raise InvalidRequest(f"{place}: the term {shown(source)} contradicts {before}")
        if bans:
            term.forbidden.append(target)
        else:
            term.target = target
        places.setdefault((source, target if bans else ""), place)

    def find(self, text: str) -> list[Match]:
        """The terms in `text`, from left to right, without overlaps."""
        words = [(match.group(), match.start(), match.end()) for match in _WORD.finditer(text)]
        found, at = [], 0
        while at < len(words):
            count, match = self._longest(text, words, at)
            if match is not None:
                found.append(match)
            at += max(count, 1)
        return found

    def _longest(self, text: str, words: list[tuple[str, int, int]], at: int) -> tuple[int, Match | None]:
        node, best, count = self._root, None, 0
        start = words[at][1]
        for number, (word, _, end) in enumerate(words[at : at + _MOST_WORDS], 1):
            following = node.following.get(word.casefold())
            if following is None:
                break
            node = following
            if node.terms and (term := _as_written(node.terms, text[start:end])) is not None:
                best, count = _match(term, text, start, end), number
        return count, best


def _as_written(terms: dict[str, _Term], found: str) -> _Term | None:
    """The term for these words in this spelling: as it is, or one in lower case."""
    exact = " ".join(found.split())
    return terms.get(exact) or next(
        (term for term in terms.values() if term.source == term.source.lower() and _is_capitalised(found, term.source)), None
    )


def _is_capitalised(found: str, source: str) -> bool:
    """Whether it is a term in lower case, written with an initial capital or in capitals; white space may differ."""
    words, own = "".join(found.split()), "".join(source.split())
    return words.lower() == own and (words == own or words.isupper() or words[1:] == own[1:] or found.istitle())


def _match(term: _Term, text: str, start: int, end: int) -> Match:
    """The match of a term; the target is in capitals if the term is."""
    target, found = term.target, text[start:end]
    if target is None:
        return Match(start, end, None, tuple(term.forbidden))
    if found != term.source and found.isupper() and len(found) > 1:
        target = target.upper()
    inflects = target.endswith(_INFLECTED)
    return Match(start, end, target.removesuffix(_INFLECTED).rstrip(), tuple(term.forbidden), inflects)


def read_glossary(path: Path) -> Glossary:
    """A glossary from a TSV file; ServeError says what is wrong with it and in which line."""
    try:
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise ServeError(f"the glossary {path} has {size} bytes; it may have {_MOST_BYTES}")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ServeError(f"can't read the glossary {path}: {error}") from error
    try:
        return Glossary(_lines(text))
    except InvalidRequest as error:
        raise ServeError(f"the glossary {path}: {error}") from None


def _lines(text: str) -> Iterator[tuple[str, Pair]]:
    count = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        columns = line.rstrip("\r").split("\t")
        if len(columns) != 2:
            raise InvalidRequest(f"line {number}: {len(columns)} columns; a line is a term, a tab and its translation")
        if (count := count + 1) > _MOST_TERMS:
            raise InvalidRequest(f"line {number}: more than {_MOST_TERMS} terms")
        yield f"line {number}", (columns[0], columns[1])


def glossary_of_pairs(pairs: Iterable[Pair]) -> Glossary:
    """The terms of a request."""
    return Glossary((f"option glossary, term {number}", pair) for number, pair in enumerate(pairs, 1))
