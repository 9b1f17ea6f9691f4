"""The translations of a text's parts, joined as the source stood, and what its score is."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.serving.text.attribute_texts import AttributeTexts
from dragoman.serving.text.links import Link

__all__ = ["JoinedHypothesis", "TextHypothesis"]


@dataclass(frozen=True, slots=True)
class TextHypothesis:
    """One translation of a part or of a whole text; `tokens` counts those of all its parts."""

    text: str
    score: float
    tokens: int
    links: tuple[Link, ...] = ()
    alignment: str = ""
    """The links of a whole text, as ALIGNMENT_FIELD has them: JSON that was made part by part, as all of it takes long."""


class JoinedHypothesis:
    """One hypothesis of a text, as it grows."""

    __slots__ = ("_length", "_links", "_only_score", "_pieces", "_tokens", "_weighted")

    def __init__(self, gap: str) -> None:
        self._pieces, self._length = [gap], len(gap)
        self._links: list[str] = []
        self._tokens, self._weighted = 0, 0.0
        self._only_score: float | None = None

    def add(self, part: TextHypothesis, gap: str, source_start: int = 0) -> None:
        """The next part, whose source begins at `source_start`, and what stands behind it."""
        if part.links:
            self._links.append(", ".join(link.moved(source_start, self._length).json() for link in part.links))
        self._length += len(part.text) + len(gap)
        self._only_score = part.score if len(self._pieces) == 1 else None
        self._pieces += (part.text, gap)
        self._tokens += part.tokens
        self._weighted += part.score * part.tokens

    @property
    def length(self) -> int:
        """Characters so far."""
        return self._length

    def whole(self) -> TextHypothesis:
        """A document's score is the mean over its tokens, as a sentence's is with the usual length penalty of 1."""
        score = self._weighted / max(self._tokens, 1) if self._only_score is None else self._only_score
        text = AttributeTexts().placed("".join(self._pieces))
        return TextHypothesis(text, score, self._tokens, alignment=f"[{', '.join(self._links)}]")
