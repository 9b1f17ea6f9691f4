"""Joins the translations of a text's parts with the source between them, and computes the text's score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dragoman.serving.text.attribute_texts import AttributeTexts
from dragoman.serving.text.links import Link

__all__ = ["JoinedHypothesis", "TextHypothesis"]


class TextHypothesis(NamedTuple):
    """One translation of a part or of a whole text; `tokens` is the sum over all parts."""

    text: str
    score: float
    tokens: int
    links: tuple[Link, ...] = ()
    alignment: str = ""
    """The links of a whole text, as ALIGNMENT_FIELD has them: JSON that was made part by part, as all of it takes long."""


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

    def add(self, part: TextHypothesis, gap: str, source_start: int = 0) -> None:
        """Add the next part and the gap after it; links count characters of the source from `source_start`."""
        is_attribute = self._attributes.is_open
        text = self._attributes.placed(part.text)
        if part.links and not is_attribute:  # where an attribute will stand is not known yet
            links = _shifted(part.links, self._attributes.shifts)
            self._links.append(", ".join(link.moved(source_start, self._length).json() for link in links))
        gap = self._attributes.placed(gap)
        self._length += len(text) + len(gap)
        self._only_score = part.score if len(self._pieces) == 1 else None
        self._pieces += (text, gap)
        self._tokens += part.tokens
        self._weighted += part.score * part.tokens

    @property
    def length(self) -> int:
        """The number of characters so far."""
        return self._length

    def whole(self) -> TextHypothesis:
        """A document's score is the mean over its tokens, as a sentence's is with the usual length penalty of 1."""
        score = self._weighted / max(self._tokens, 1) if self._only_score is None else self._only_score
        return TextHypothesis("".join(self._pieces), score, self._tokens, alignment=f"[{', '.join(self._links)}]")


def _shifted(links: Sequence[Link], shifts: Sequence[tuple[int, int]]) -> Sequence[Link]:
    """Links adjusted to a text to which something was added."""
    if not shifts:
        return links

    def moved(at: int) -> int:
        return at + sum(more for behind, more in shifts if behind < at)

    return [Link(link.source_start, link.source_end, moved(link.target_start), moved(link.target_end)) for link in links]
