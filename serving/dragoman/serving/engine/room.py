"""The room for new sequences in one batch."""

from __future__ import annotations

from dragoman.serving.engine.batch import DecodingBatch
from dragoman.serving.engine.sequence import Sequence
from dragoman.serving.engine.slots import KVSlots

__all__ = ["Room"]


class Room:
    """The rows, slots and candidates that a batch has left, counting the sequences that `take` has accepted."""

    def __init__(
        self, batch: DecodingBatch, rows: int, slots: KVSlots, *, padded: bool, alone: bool, step_candidates: int
    ) -> None:
        """`alone`: nothing else runs. `step_candidates`: the limit of a batch that takes turns."""
        self._rows, self._slots, self._padded, self._alone = rows, slots, padded, alone
        self._usage, self._width = batch.usage, batch.width
        self._takes_turns = batch.takes_turns
        self._candidates = step_candidates - batch.candidates if batch.takes_turns else 0

    def take(self, sequence: Sequence) -> bool:
        """Whether there is room for this sequence, too; if so, it is counted."""
        usage = self._usage.plus(sequence.source_tokens, sequence.reserved)
        fits = usage.slots(self._width, self._padded).fit(self._slots) and self._width <= self._rows
        if not (fits or self._alone):
            return False
        if self._takes_turns and self._usage.sequences and sequence.candidates > self._candidates:
            return False
        self._alone = False  # a sequence that is alone fits: it was checked when it was submitted
        self._usage = usage
        self._rows -= self._width
        self._candidates -= sequence.candidates
        return True
