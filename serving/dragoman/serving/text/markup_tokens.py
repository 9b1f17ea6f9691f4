"""What HTML and XML have in common once they are read: a row of tokens that are the source, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["Kind", "MarkupToken"]


class Kind(Enum):
    """What a piece of source is."""

    TEXT = auto()
    OPEN = auto()
    CLOSE = auto()
    ASIDE = auto()
    """A comment, a declaration, an element without content: it stays where it is."""


@dataclass(frozen=True, slots=True)
class MarkupToken:
    """`raw` is the source, byte for byte. `text`: what a text means, without entities.

    `is_block`: an element that text does not go on across. `is_kept`: an element whose content is not translated.
    """

    kind: Kind
    raw: str
    name: str = ""
    text: str = ""
    is_block: bool = False
    is_kept: bool = False
