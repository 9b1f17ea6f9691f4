"""What a format leaves to translate: blocks of running text, which sentences do not cross, and the source around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dragoman.serving.text.document import Part

__all__ = ["Block", "Blocks", "PlainBlock", "plain_text"]


class Block(Protocol):
    """A stretch of running text, without what must not reach the model."""

    @property
    def text(self) -> str:
        """What is split and translated."""

    def part(self, start: int, end: int) -> Part:
        """The part that is text[start:end]; it knows how to restore what belongs there."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """A text as its format sees it: one gap more than blocks."""

    blocks: tuple[Block, ...]
    gaps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlainBlock:
    """Text with nothing in it but words."""

    text: str

    def part(self, start: int, end: int) -> Part:
        """Nothing was taken out, so nothing is put back."""
        return Part(self.text[start:end])


def plain_text(text: str) -> Blocks:
    """Text without any format."""
    return Blocks((PlainBlock(text),), ("", ""))
