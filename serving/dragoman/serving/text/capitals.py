"""Sentences in capitals: translated in normal spelling, and put back into capitals.

Most models have seen few of them and translate them badly. Single words in capitals are not changed, nor are acronyms.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dragoman.serving.text.word_list import names

__all__ = ["Capitals", "without"]

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_TWO_CAPITALS = re.compile(r"[^\W\d_a-z]{2}")
_VOWELS = frozenset("AEIOUYÄÖÜÀÁÂÃÅÆÈÉÊËÌÍÎÏÒÓÔÕØÙÚÛÝĄĘŁÓАЕЁИОУЫЭЮЯІЇЄΑΕΗΙΟΥΩΆΈΉΊΌΎΏİIÖÜ")
_ACRONYMS = names("""
    AI AIDS API CEO CIA EU FAQ FBI GPU IBM NASA NATO OECD SUV UFO UK UN UNESCO UNICEF URL USA USB
""")
_FEWEST_LETTERS = 4
_DOTTED = frozenset({"tr", "az"})
"""Languages in which i and ı are letters of their own."""


class Capitals:
    """Rules for one pair of languages, in BCP 47; None for an unknown language."""

    def __init__(self, source_language: str | None = None, target_language: str | None = None) -> None:
        source, target = _primary(source_language), _primary(target_language)
        self._is_english, self._writes_english = source == "en", target == "en"
        self._reads_dotted, self._writes_dotted = source in _DOTTED, target in _DOTTED

    @staticmethod
    def may_be_in(text: str) -> bool:
        """Whether a text may contain such a sentence: a quick check that excludes most texts."""
        return _TWO_CAPITALS.search(text) is not None

    def lowered(self, text: str, spared: Sequence[tuple[int, int]] = ()) -> str | None:
        """A sentence in capitals in normal spelling, with the same number of characters; None for any other. `spared` is not
        changed.
        """
        own = without(text, spared) if spared else text
        if not own.isupper():
            return None
        words = [match for match in _WORD.finditer(own) if match.group().isupper()]
        if len(words) < 2 or sum(len(match.group()) for match in words) < _FEWEST_LETTERS:
            return None
        characters = list(text)
        plain = [match for match in words if not self._stays(match.group())]
        if not plain:
            return None
        for match in plain:
            for at in range(*match.span()):
                characters[at] = self._lower(text[at])
            if self._is_english and _is_english_i(match.group()):
                characters[match.start()] = "I"
        if plain[0] is words[0]:
            characters[words[0].start()] = text[words[0].start()]
        return "".join(characters)

    def lowered_prefix(self, prefix: str) -> str:
        """The given beginning of a translation that will be put into capitals: in normal spelling, if it is in capitals.

        Put into capitals again it is the same.
        """
        if not prefix.isupper():
            return prefix
        first = _WORD.search(prefix)
        begin = 0 if first is None else first.start() + 1  # the translation begins with a capital
        return prefix[:begin] + _WORD.sub(lambda match: self._lowered_word(match.group()), prefix[begin:])

    def _lowered_word(self, word: str) -> str:
        """Of a translation."""
        if self._stays(word):
            return word
        lowered = (word.replace("I", "ı").replace("İ", "i") if self._writes_dotted else word).lower()
        if self._writes_english and _is_english_i(word):
            lowered = f"I{lowered[1:]}"
        return lowered if self.raised(lowered) == word else word

    def raised(self, text: str) -> str:
        """The translation in capitals."""
        return (text.replace("i", "İ") if self._writes_dotted else text).upper()

    @staticmethod
    def _stays(word: str) -> bool:
        """Acronyms: known ones, and what nobody can say (HTML, MP3)."""
        return word in _ACRONYMS or (len(word) > 1 and (_VOWELS.isdisjoint(word) or any(map(str.isdigit, word))))

    def _lower(self, character: str) -> str:
        if self._reads_dotted and character in "Iİ":
            return "ı" if character == "I" else "i"
        lower = character.lower()
        return lower if len(lower) == 1 else character


def _is_english_i(word: str) -> bool:
    """I, I'm, I've."""
    return word[0] == "I" and word[1:2] in {"", "'", "’"}


def without(text: str, spared: Sequence[tuple[int, int]]) -> str:
    """The text with the spared characters replaced by spaces."""
    pieces, done = list[str](), 0
    for start, end in spared:
        pieces += (text[done:start], " " * (end - start))
        done = end
    return "".join((*pieces, text[done:]))


def _primary(language: str | None) -> str:
    return (language or "").replace("_", "-").partition("-")[0].lower()
