"""Word boundaries for the search, which sees only tokens: derived from what the tokenizer writes for a token next to a
letter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from dragoman.bundle.tokenizer import Tokenizer

__all__ = ["UNSPACED", "VocabularyWords"]

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
"""Of a character class: scripts without spaces, and Korean, where particles follow a word without one."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_SIGNS = (".", ",", "?", "!")


class VocabularyWords:
    """Caches the tokenizer's answer for each token. Threads may share it; at worst an answer is computed twice."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decode = tokenizer.decode
        self._letter = tuple(tokenizer.encode_target("a"))
        self._written = self._decode(self._letter)
        self._going_on: dict[int, bool] = {}
        self._open: dict[int, bool] = {}
        signs = (tuple(tokenizer.encode_target(f"a{sign}")) for sign in _SIGNS)
        self.signs = tuple(ids[-1] for ids in signs if ids[:-1] == self._letter and not self.goes_on(ids[-1]))
        """Tokens that may follow any word."""

    def goes_on(self, token: int) -> bool:
        """Whether this token, directly after a letter, belongs to the same word. A part of a character does."""
        found = self._going_on.get(token)
        if found is None:
            added = self._decode([*self._letter, token])[len(self._written) :]
            found = self._going_on[token] = added[:1] in {"", "\ufffd"} or _is_letter(added[0])
        return found

    def is_open(self, token: int) -> bool:
        """Whether a term directly after this token would belong to the same word."""
        found = self._open.get(token)
        if found is None:
            before = self._decode([token, *self._letter]).removesuffix(self._written)
            found = self._open[token] = before != "" and _is_letter(before[-1])
        return found

    def edges(self, tokens: Sequence[int]) -> tuple[bool, bool]:
        """Whether the text of these tokens begins with a letter, and whether it ends with one."""
        text = self._decode(tokens)
        return text != "" and _is_letter(text[0]), text != "" and _is_letter(text[-1])


def _is_letter(character: str) -> bool:
    """A letter, a digit, or a mark: vowel signs of Indian scripts are marks."""
    is_part = character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")
    return is_part and _UNSPACED.match(character) is None
