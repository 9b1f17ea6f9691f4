"""Texts that are more than the model takes at once: parts that are translated one by one, and joined as they stood."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dragoman.errors import InvalidRequest
from dragoman.serving.sentences import sentence_spans, weak_spans

__all__ = ["Document", "LongInput", "split_document"]

LongInput = Literal["split", "refuse"]
"""What to do with a sentence longer than the model's limit: split it at punctuation, or refuse it."""

_LANGUAGE_TOKEN = re.compile(r">>[^<>\s]{1,20}<<\s*")
_LINE_BREAK = re.compile(r"[\r\n\u2028\u2029\x0b\x0c]")
_WEAKER_AND_WEAKER = (";:—–", ",", " ")
"""Where a sentence is split that is too long: between clauses, then at commas, then at any space."""


@dataclass(frozen=True, slots=True)
class Document:
    """Parts to translate, each within the model's limit, and the white space around them: one gap more than parts."""

    parts: tuple[str, ...]
    gaps: tuple[str, ...]

    def join(self, translations: Sequence[str]) -> str:
        """The translations of the parts with the original spacing and line breaks."""
        if len(translations) != len(self.parts):
            raise ValueError(f"{len(translations)} translations for {len(self.parts)} parts")
        pieces = [self.gaps[0]]
        for translation, gap in zip(translations, self.gaps[1:], strict=True):
            pieces += [translation, gap]
        return "".join(pieces)


def split_document(
    text: str,
    count_tokens: Callable[[str], int],
    max_tokens: int,
    *,
    language: str | None = None,
    long_input: LongInput = "split",
    sentences: bool = False,
) -> Document:
    """Split `text` if it is longer than `max_tokens` or has several lines; with `sentences`, at every sentence.

    A leading language token (`>>deu<<`) goes before every part. Nothing is ever left out: a part that can't be made
    short enough is an InvalidRequest.
    """
    token = _LANGUAGE_TOKEN.match(text)
    lead, body = (token.group(), text[token.end() :]) if token else ("", text)

    def fits(start: int, end: int) -> bool:
        return count_tokens(lead + body[start:end]) <= max_tokens

    lines = _LINE_BREAK.search(body.strip()) is not None
    if not (sentences or lines) and fits(0, len(body)):
        return Document((text,), ("", ""))
    spans: list[tuple[int, int]] = []
    for start, end in sentence_spans(body, language):
        if fits(start, end):
            spans.append((start, end))
        elif long_input == "refuse":
            count = count_tokens(lead + body[start:end])
            raise InvalidRequest(
                f"a sentence has {count} tokens, the model takes {max_tokens}; shorten it or ask for long_input='split'"
            )
        else:
            spans += _Splitter(body, fits, max_tokens).pieces(start, end)
    edges = [0, *(edge for span in spans for edge in span), len(body)]
    gaps = tuple(body[before:after] for before, after in zip(edges[::2], edges[1::2], strict=True))
    return Document(tuple(lead + body[start:end] for start, end in spans), gaps)


@dataclass(frozen=True, slots=True)
class _Splitter:
    """Makes pieces that fit of a sentence that does not."""

    text: str
    fits: Callable[[int, int], bool]
    max_tokens: int

    def pieces(self, start: int, end: int, level: int = 0) -> list[tuple[int, int]]:
        """Split at the strongest marks that do; neighbours stay together where they fit."""
        if level == len(_WEAKER_AND_WEAKER):
            raise InvalidRequest(
                f"a word of {end - start} characters is more than the {self.max_tokens} tokens that the model takes"
            )
        spans = weak_spans(self.text, start, end, _WEAKER_AND_WEAKER[level])
        pieces: list[tuple[int, int]] = []
        first = 0
        while first < len(spans):
            together = self._most_that_fit(spans, first)
            if together:
                pieces.append((spans[first][0], spans[first + together - 1][1]))
            else:
                pieces += self.pieces(*spans[first], level + 1)
            first += max(together, 1)
        return pieces

    def _most_that_fit(self, spans: Sequence[tuple[int, int]], first: int) -> int:
        """How many spans from `first` on make one piece: measured a few times, not once for every span."""
        fitting, too_many = 0, 1
        while first + too_many <= len(spans) and self.fits(spans[first][0], spans[first + too_many - 1][1]):
            fitting, too_many = too_many, 2 * too_many
        too_many = min(too_many, len(spans) - first + 1)
        while too_many - fitting > 1:
            middle = (fitting + too_many) // 2
            if self.fits(spans[first][0], spans[first + middle - 1][1]):
                fitting = middle
            else:
                too_many = middle
        return fitting
