"""Lists of words in the source code."""

from __future__ import annotations

__all__ = ["names"]


def names(listed: str) -> dict[str, None]:
    """The words of a list that is separated by spaces: in order, with fast lookup."""
    return dict.fromkeys(listed.split())
