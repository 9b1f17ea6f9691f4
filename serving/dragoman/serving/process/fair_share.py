"""How much of the engine, and of the memory for split texts, one request may hold while others need it."""

from __future__ import annotations

from dragoman.serving.engine import EngineLimits, Sequence
from dragoman.serving.process.requests import TranslationRequest

__all__ = ["FairShare"]

_HELD_PER_FREE = 2
"""A request may hold twice what is free: alone two thirds of the engine, each of two 40%, each of n 2/(2n + 1) of it.

So there is room for the next one at any time, and a long document gives way by itself when others come."""

_WAITING_TOKENS = 256
"""Source tokens of one request that may wait in the engine's queue: the next request waits behind no more than these. It is
about what is encoded between two decoder steps, so that the queue does not run dry."""

_MOST_PLANNED_CHARACTERS = 1 << 19
"""The parts of a text, with their tags and gaps, take up to ninety times its own memory: of all texts together about
50 MB, where all that may be open would take more than a gigabyte."""
_SHORT_TEXT = 4096
"""Characters. A shorter text never waits."""
_PART_OF_FREE = 2
"""A text may have half of what is free, so that there is room for the next one if it is shorter."""


class FairShare:
    """The rows and KV slots of the sequences that each request has in the engine, waiting or running, and the characters of
    its texts that are split but not translated yet.
    """

    def __init__(self, limits: EngineLimits) -> None:
        self._max_rows = limits.max_rows
        self._max_slots = limits.max_rows * limits.target_tokens_per_row
        self.rows = 0
        self.slots = 0
        self.planned_characters = 0

    def may_plan(self, characters: int) -> bool:
        """Whether a text of this size may be split now; always true if no other one is."""
        if characters <= _SHORT_TEXT or not self.planned_characters:
            return True
        return characters <= (_MOST_PLANNED_CHARACTERS - self.planned_characters) // _PART_OF_FREE

    def note_planned(self, request: TranslationRequest, characters: int) -> None:
        """Count characters of the request as split, or, if negative, as translated."""
        request.planned_characters += characters
        self.planned_characters += characters

    def has_room_for(self, request: TranslationRequest) -> bool:
        """Whether the request may submit another sequence; always true for its first one."""
        if not request.sequences:
            return True
        request.waiting = [one for one in request.waiting if one.admitted_s is None and one in request.sequences]
        if sum(one.source_tokens for one in request.waiting) >= _WAITING_TOKENS:
            return False
        free_rows, free_slots = self._max_rows - self.rows, self._max_slots - self.slots
        return request.rows < _HELD_PER_FREE * free_rows and request.slots < _HELD_PER_FREE * free_slots

    def take(self, request: TranslationRequest, sequence: Sequence) -> None:
        """Count the sequence, which the engine has now."""
        request.sequences.add(sequence)
        request.waiting.append(sequence)
        self._change(request, sequence, 1)

    def release(self, request: TranslationRequest, sequence: Sequence) -> None:
        """The sequence has ended, or will at the next step; no effect if it was released before."""
        if sequence in request.sequences:
            request.sequences.remove(sequence)
            self._change(request, sequence, -1)

    def release_all(self, request: TranslationRequest) -> list[Sequence]:
        """The request has ended: stop counting it. Returns the sequences that the engine still has."""
        held = list(request.sequences)
        for sequence in held:
            self.release(request, sequence)
        if request.planned_characters:
            self.note_planned(request, -request.planned_characters)
        return held

    def _change(self, request: TranslationRequest, sequence: Sequence, sign: int) -> None:
        rows = sign * sequence.width
        slots = rows * (sequence.prompt_tokens + sequence.source_tokens)  # a translation is about as long as its source
        self.rows, self.slots = self.rows + rows, self.slots + slots
        request.rows, request.slots = request.rows + rows, request.slots + slots
