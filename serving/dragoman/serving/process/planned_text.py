"""How much text may be split into parts at once."""

from __future__ import annotations

from dragoman.serving.process.requests import TranslationRequest

__all__ = ["PlannedText"]

_MOST_CHARACTERS = 1 << 19
"""The parts of a text, with their tags and gaps, take up to ninety times its own memory: of all texts together about
50 MB, where all that may be open would take more than a gigabyte."""
_SHORT = 4096
"""Characters. A shorter text never waits."""
_PART_OF_FREE = 2
"""A text may have half of what is free, so that there is room for the next one if it is shorter."""


class PlannedText:
    """Characters of the texts that are split and not translated yet, of all requests."""

    def __init__(self) -> None:
        self.characters = 0

    def has_room_for(self, characters: int) -> bool:
        """Whether a text of this size may be split now; when no other one is, it always may."""
        free = _MOST_CHARACTERS - self.characters
        return characters <= _SHORT or not self.characters or characters <= free // _PART_OF_FREE

    def take(self, request: TranslationRequest, characters: int) -> None:
        """A text is being split."""
        self._change(request, characters)

    def release(self, request: TranslationRequest, characters: int) -> None:
        """Nothing of the text's parts is left."""
        self._change(request, -characters)

    def release_all(self, request: TranslationRequest) -> None:
        """The request has ended."""
        self._change(request, -request.planned_characters)

    def _change(self, request: TranslationRequest, characters: int) -> None:
        request.planned_characters += characters
        self.characters += characters
