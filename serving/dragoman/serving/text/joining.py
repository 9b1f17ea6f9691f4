"""Joins the translations of a text's parts with the source between them, and computes the text's score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dragoman.serving.text.attribute_texts import AttributeTexts
from dragoman.serving.text.links import Link

__all__ = ["JoinedHypothesis", "JoinedPart", "TextHypothesis"]


class TextHypothesis(NamedTuple):
    """One translation of a part or of a whole text; `tokens` is the sum over all parts."""

    text: str
    score: float
    tokens: int
    links: tuple[Link, ...] = ()
    alignment: str = ""
    """The links of a whole text, as ALIGNMENT_FIELD has them: JSON that was made part by part, as all of it takes long."""


class JoinedPart(NamedTuple):
    """Where a part stands in the joined text: it has `length` characters from `start` on, with the texts of attributes.

    `shifts`: behind these characters of the part others stand so much further on.
    """

    start: int
    length: int
    shifts: Sequence[tuple[int, int]] = ()

    def place(self, at: int) -> int:
        """Where the part's character `at` stands in the joined text."""
        return self.start + at + sum(more for behind, more in self.shifts if behind < at)


class JoinedHypothesis:
    """One hypothesis of a text while its parts are added."""

    __slots__ = ("_attributes", "_length", "_links", "_only_score", "_pieces", "_tokens", "_weighted")

    def __init__(self, gap: str) -> None:
        self._attributes = AttributeTexts()
        self._pieces = [self._attributes.placed(gap)]
        self._length = len(self._pieces[0])
        self._links: list[str] = []
        self._tokens, self._weighted = 0, 0.0
        self._only_score: float | None = None

    def add(self, part: TextHypothesis, gap: str, source_start: int = 0) -> JoinedPart | None:
        """Add the next part and the gap after it; links count characters of the source from `source_start`.

        None for the text of an attribute, whose place is not known yet.
        """
        is_attribute = self._attributes.is_open
        text = self._attributes.placed(part.text)
        placed = JoinedPart(self._length, len(text), self._attributes.shifts)
        if part.links and not is_attribute:
            self._links.append(", ".join(_placed(link, placed).moved(source_start, 0).json() for link in part.links))
        gap = self._attributes.placed(gap)
        self._length += len(text) + len(gap)
        self._only_score = part.score if len(self._pieces) == 1 else None
        self._pieces += (text, gap)
        self._tokens += part.tokens
        self._weighted += part.score * part.tokens
        return None if is_attribute else placed

    def whole(self) -> TextHypothesis:
        """A document's score is the mean over its tokens, as a sentence's is with the usual length penalty of 1."""
        score = self._weighted / max(self._tokens, 1) if self._only_score is None else self._only_score
        return TextHypothesis("".join(self._pieces), score, self._tokens, alignment=f"[{', '.join(self._links)}]")


def _placed(link: Link, part: JoinedPart) -> Link:
    """A link into the joined text."""
    return Link(link.source_start, link.source_end, part.place(link.target_start), part.place(link.target_end))
