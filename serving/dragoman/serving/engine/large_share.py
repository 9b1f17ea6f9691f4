"""How much large sequences (a wide beam, a long text) may use together, so that small ones never wait for them."""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.serving.engine.sequence import Sequence
from dragoman.serving.engine.slots import NO_SLOTS, KVSlots, Usage

__all__ = ["LargeShare"]

_SMALL_S = 1.0
"""After a small sequence others are expected for so long, and a part of everything is kept free for them."""


class LargeShare:
    """Three quarters of the rows and of the slots while small sequences are expected, otherwise all."""

    def __init__(self, max_rows: int, slots: KVSlots, *, padded: bool) -> None:
        self._max_rows, self._slots, self._padded = max_rows, slots, padded
        self._until_s, self.is_limited = float("-inf"), False

    def note(self, now: float, small_waits: bool) -> None:
        """Record the time, and whether a small sequence is waiting."""
        if small_waits:
            self._until_s = now + _SMALL_S
        self.is_limited = now < self._until_s

    def rows(self, large: Iterable[Sequence], width: int) -> int:
        """Rows left for another large sequence; one of `width` may run in any case."""
        most = max(self._max_rows * 3 // 4, width) if self.is_limited else self._max_rows
        return most - sum(sequence.width for sequence in large)

    def slots(self, large: Iterable[Sequence]) -> KVSlots:
        """Slots left for large sequences; negative when they have grown into the part that is kept for small ones."""
        own, cross = self._slots
        if self.is_limited:
            own, cross = own * 3 // 4, cross * 3 // 4
        taken = NO_SLOTS
        for sequence in large:
            tokens, reserved = sequence.source_tokens, sequence.reserved
            taken = taken.plus(Usage(1, tokens, tokens, reserved, reserved).slots(sequence.width, self._padded))
        return KVSlots(own - taken.own, cross - taken.cross)
