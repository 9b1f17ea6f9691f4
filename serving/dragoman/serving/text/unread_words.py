"""Words that the model can't read: the vocabulary of sources has none of their letters, as with another script.

A model turns them into noise, so they are kept like placeholders. Models whose vocabulary has all characters or all bytes
have no such words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Set

__all__ = ["UnreadWords"]

_READ, _UNREAD, _NEUTRAL, _OTHER = "a", "x", "0", "."
"""Of characters: a letter that the vocabulary has, or has not; what may be a part of any word; and all else."""
_WORD = re.compile(f"[{_READ}{_UNREAD}{_NEUTRAL}]+")
_BETWEEN = frozenset(" -'’")
"""What two words with only one of it between are kept with, as one."""
_JOINERS = "\u200c\u200d"
_MOST_REMEMBERED = 1 << 14
_CHARACTERS_BETWEEN_PAUSES = 128
"""Each may be new, and is tokenised by itself then."""
_WORDS_BETWEEN_PAUSES = 50
_LONGEST_READ = 64
"""Characters. Of a longer word, its beginning decides."""


class UnreadWords:
    """Those of one model. `reads`: whether its vocabulary has any letter of a text."""

    def __init__(self, reads: Callable[[str], bool]) -> None:
        self._reads, self._kinds = reads, _Kinds(reads)

    def may_be_in(self, text: str) -> bool:
        """Whether a short text has a letter that may belong to such a word."""
        return not text.isascii() and _UNREAD in text.translate(self._kinds)

    def spans(self, text: str, tags: Set[int] = frozenset()) -> Iterator[tuple[int, int] | None]:
        """Where such words are in `text`, from left to right; neighbours are one. None is a pause.

        A word of letters of both kinds is none of them. No span crosses the positions `tags`.
        """
        if text.isascii():
            return
        pieces = list[str]()
        for start in range(0, len(text), _CHARACTERS_BETWEEN_PAUSES):
            if start and self._kinds.is_pause_due():
                yield None
            pieces.append(text[start : start + _CHARACTERS_BETWEEN_PAUSES].translate(self._kinds))
        kinds = "".join(pieces)
        if _UNREAD not in kinds:
            return
        begin = end = 0  # of the one that may go on
        for number, (first, last) in enumerate(_words(kinds, tags)):
            if number % _WORDS_BETWEEN_PAUSES == _WORDS_BETWEEN_PAUSES - 1:
                yield None
            if not self._is_unread(kinds[first:last], text[first : min(last, first + _LONGEST_READ)]):
                continue
            goes_on = end > begin and first == end + 1 and text[end] in _BETWEEN and tags.isdisjoint((end, first))
            if end > begin and not goes_on:
                yield begin, end
            begin, end = begin if goes_on else first, last
        if end > begin:
            yield begin, end

    def _is_unread(self, kinds: str, word: str) -> bool:
        """Letters that the vocabulary does not have alone may still be in longer pieces."""
        return _UNREAD in kinds and _READ not in kinds and not self._reads(word)


class _Kinds(dict[int, str]):
    """The kinds of characters, for `str.translate`; each is looked up once."""

    def __init__(self, reads: Callable[[str], bool]) -> None:
        super().__init__()
        self._reads, self._new = reads, 0

    def __missing__(self, code: int) -> str:
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        self._new += 1
        self[code] = kind = self._kind(chr(code))
        return kind

    def is_pause_due(self) -> bool:
        """Whether many were new since this last returned true."""
        if self._new < _CHARACTERS_BETWEEN_PAUSES:
            return False
        self._new = 0
        return True

    def _kind(self, character: str) -> str:
        if character.isalpha():
            return _READ if character.isascii() or self._reads(character) else _UNREAD
        is_neutral = character.isdigit() or character in _JOINERS or unicodedata.category(character).startswith("M")
        return _NEUTRAL if is_neutral else _OTHER


def _words(kinds: str, tags: Set[int]) -> Iterator[tuple[int, int]]:
    """Where words are, each cut at the tags in it."""
    for match in _WORD.finditer(kinds):
        first, last = match.span()
        if tags:
            for at in range(first + 1, last):
                if at in tags:
                    yield first, at
                    first = at
        yield first, last
