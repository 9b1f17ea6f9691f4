"""Stand-ins: words that replace placeholders in the text, and that the model copies into its translation."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property

from dragoman.bundle.tokenizer import Tokenizer
from dragoman.serving.text.word_list import names

__all__ = ["StandIns", "TranslateProbes"]

_WANTED = 24
_NAMES = names("""
    Boston London Paris Hawaii Chicago Facebook Google Harvard Madrid Oslo Toyota Windows Microsoft Obama
    Einstein Mozart Berlin Tom John Peter David Daniel Martin Robert Anna Linda Laura Julia Maria Kyoto Osaka
    Tokyo Shakespeare Texas Florida Internet
""")
_NUMBERS = tuple(map(str, (*range(2013, 1989, -1), *range(1989, 1900, -1), *range(70, 10, -1), *range(1000, 10000, 1111))))
_PROBED_NUMBERS = 12
_PROBES = ("{0}.", "{0}, {0}, {0}.")

TranslateProbes = Callable[[Sequence[str]], Sequence[str]]
"""The model's translations of short texts."""


class StandIns:
    """Words that a model copies unchanged. They differ between models, so each model is tested once, with `translate`.

    Without it, and for models that copy no word, they are the numbers with the fewest tokens.
    """

    def __init__(self, tokenizer: Tokenizer, translate: TranslateProbes | None = None) -> None:
        self._tokenizer = tokenizer
        self._copied = [] if translate is None else self._found(translate)

    @cached_property
    def _words(self) -> list[str]:
        return (self._copied + [number for number in self._numbers if number not in self._copied])[:_WANTED]

    @cached_property
    def _numbers(self) -> list[str]:
        rated = []
        for order, number in enumerate(_NUMBERS):
            if (tokens := self._tokens(number)) > 0:
                rated.append((tokens, order, number))
        return [number for _, _, number in sorted(rated)[:_WANTED]]

    def _tokens(self, word: str) -> int:
        """How many tokens the tokenizer needs for it; 0 if it has no tokens for it."""
        ids = self._tokenizer.encode_target(word)
        return len(ids) if self._tokenizer.decode(ids).strip() == word else 0

    def _found(self, translate: TranslateProbes) -> list[str]:
        """Candidates that occur in the translations of all probes as often as in the probes come first."""
        candidates = [name for name in _NAMES if self._tokens(name)] + self._numbers[:_PROBED_NUMBERS]
        answers = iter(translate([probe.format(word) for word in candidates for probe in _PROBES]))
        rated = []
        for order, word in enumerate(candidates):
            counts = [len(re.findall(rf"(?<!\w){word}(?!\w)", next(answers))) for _ in _PROBES]
            if all(counts):
                rated.append((counts[0] != 1, self._tokens(word), order, word))
        return [word for *_, word in sorted(rated)]

    def has(self, text: str) -> bool:
        """Whether `text` is one of them."""
        return text in self._words

    @cached_property
    def tokens(self) -> frozenset[tuple[int, ...]]:
        """The token sequence of each, as the model writes it."""
        return frozenset(tuple(self._tokenizer.encode_target(word)) for word in self._words)

    def for_text(self, text: str) -> Sequence[str]:
        """Those that do not occur in `text`."""
        return [word for word in self._words if word not in text]
