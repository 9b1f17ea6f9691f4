"""Links: which characters of a translation correspond to which characters of its source."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Link"]


@dataclass(frozen=True, slots=True)
class Link:
    """source[source_start:source_end] became target[target_start:target_end]: usually a word and its translation."""

    source_start: int
    source_end: int
    target_start: int
    target_end: int

    def json(self) -> str:
        """As ALIGNMENT_FIELD has it."""
        return f"[{self.source_start}, {self.source_end}, {self.target_start}, {self.target_end}]"

    def moved(self, source: int, target: int) -> Link:
        """The same link for texts that begin this many characters earlier."""
        return Link(
            self.source_start + source, self.source_end + source, self.target_start + target, self.target_end + target
        )
