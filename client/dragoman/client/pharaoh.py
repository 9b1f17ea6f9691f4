"""Alignments in the Pharaoh format: `0-0 1-2`, numbers of words of the source and of the translation."""

from __future__ import annotations

import re
from bisect import bisect_right

from dragoman.client.results import Translation

__all__ = ["pharaoh"]

_WORD = re.compile(r"\S+")


def pharaoh(source: str, translation: Translation) -> str:
    """Words are what stands between spaces; numbers begin at 0, each pair is named once."""
    source_starts = [match.start() for match in _WORD.finditer(source)]
    target_starts = [match.start() for match in _WORD.finditer(translation.text)]
    pairs = {
        (_word(source_starts, link.source_start), _word(target_starts, link.target_start)) for link in translation.alignment
    }
    return " ".join(f"{source}-{target}" for source, target in sorted(pairs))


def _word(starts: list[int], character: int) -> int:
    return max(bisect_right(starts, character) - 1, 0)
