"""The parts that a text is translated in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Document"]


@dataclass(frozen=True, slots=True)
class Document:
    """A text as parts and what stands around them."""

    parts: tuple[str, ...]
    lead: str = ""

    def gap_after(self, part: int) -> str:
        return " " if part + 1 < len(self.parts) else ""

    def join(self, texts: Sequence[str]) -> str:
        return " ".join(texts)
