"""From attention to links between words, in characters of a text and of its translation."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dragoman.bundle.spans import Span
from dragoman.serving.text.links import Link

__all__ = ["SpannedText", "links_between"]

_SHARE = 0.35
"""A word is linked with the word that gets most of its attention, and with others that get at least this part of it."""


class SpannedText(NamedTuple):
    """A text and the span of each of its tokens."""

    text: str
    spans: Sequence[Span]


def links_between(source: SpannedText, target: SpannedText, alignment: npt.NDArray[np.float32]) -> tuple[Link, ...]:
    """The links for `alignment` (target tokens, source tokens), in the order of the target's words."""
    source_words, target_words = _words(source), _words(target)
    if not source_words or not target_words:
        return ()
    looks = _membership(target_words, len(alignment)).T @ alignment @ _membership(source_words, alignment.shape[1])
    chosen = looks >= np.minimum(looks.max(1), _SHARE * np.maximum(looks.sum(1), 1e-9))[:, None]  # (target, source words)
    return tuple(_link(source_words[at].span, target_words[word].span) for word, at in np.argwhere(chosen).tolist())


def _membership(words: Sequence[_Word], tokens: int) -> npt.NDArray[np.float32]:
    """(tokens, words): 1 where a token belongs to a word."""
    found = np.zeros((tokens, len(words)), np.float32)
    found[[token for word in words for token in word.tokens], [at for at, word in enumerate(words) for _ in word.tokens]] = (
        1.0
    )
    return found


def _link(source: Span, target: Span) -> Link:
    return Link(source[0], source[1], target[0], target[1])


class _Word(NamedTuple):
    span: Span
    tokens: list[int]


def _words(side: SpannedText) -> list[_Word]:
    """Groups of adjacent tokens that spell a word; in scripts without spaces, and of punctuation, each token alone."""
    words: list[_Word] = []
    for token, (first, last_end) in enumerate(side.spans):
        piece = side.text[first:last_end]
        begin, end = first + len(piece) - len(piece.lstrip()), first + len(piece.rstrip())
        if begin >= end:
            continue
        last = words[-1] if words else None
        if last is not None and begin < last.span[1]:  # several tokens of one character
            words[-1] = _Word((last.span[0], max(end, last.span[1])), [*last.tokens, token])
        elif last is not None and begin == last.span[1] and _go_together(side.text[begin - 1], side.text[begin]):
            words[-1] = _Word((last.span[0], end), [*last.tokens, token])
        else:
            words.append(_Word((begin, end), [token]))
    return words


def _go_together(left: str, right: str) -> bool:
    return _is_letter(left) and _is_letter(right)


def _is_letter(character: str) -> bool:
    """Whether it is a letter of a script that separates words by spaces."""
    if unicodedata.category(character)[0] not in "LMN":
        return character in "'’_"
    code = ord(character)
    return code < 0x0E00 or not any(first <= code <= last for first, last in _WITHOUT_SPACES)


_WITHOUT_SPACES = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF)),  # Thai and Lao, Burmese, Khmer
    *((0x2E80, 0x31FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x3FFFF)),  # Han, kana
)
