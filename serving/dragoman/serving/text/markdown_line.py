"""A line of a Markdown document while it is read: position in the source, and column."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CODE_INDENT", "Line"]

CODE_INDENT = 3
"""Columns. What is indented by more is code."""


@dataclass(slots=True)
class Line:
    """How far a line has been read: position in the source, and column."""

    source: str
    at: int
    end: int  # without the line break
    column: int = 0

    def indent(self) -> tuple[int, int]:
        """The columns of white space that follow, and the position after them."""
        column, at = self.column, self.at
        while at < self.end and self.source[at] in " \t":
            column += 4 - column % 4 if self.source[at] == "\t" else 1
            at += 1
        return column - self.column, at

    def skip(self, columns: int) -> None:
        """Past so many columns of white space; a tab is taken as a whole."""
        until = self.column + columns
        while self.column < until and self.at < self.end and self.source[self.at] in " \t":
            self.column += 4 - self.column % 4 if self.source[self.at] == "\t" else 1
            self.at += 1

    def advance(self, at: int) -> None:
        self.column += at - self.at
        self.at = at
