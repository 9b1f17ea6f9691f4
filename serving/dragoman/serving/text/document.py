"""What a text is planned as: blocks of running text, the parts of them to translate, and the source between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dragoman.search import DecodingOptions
from dragoman.serving.text.links import Link

__all__ = ["Block", "Blocks", "Document", "Part", "PlainBlock", "Restore", "plain_text"]

Restore = Callable[[str, Sequence[Link]], str]
"""The translation of a part, and its alignment: what stands for the part in the joined text."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of text that is one source of the model.

    `decoding`: DecodingOptions of this part alone, over those of the request. `restore` gets the translation; without it
    the translation is what is joined. It gets links only if `needs_links`, which costs a pass through the decoder.
    """

    text: str
    decoding: Mapping[str, object] | None = None
    needs_links: bool = False
    restore: Restore | None = None

    def options(self, of_request: DecodingOptions) -> DecodingOptions:
        """What the search of this part is asked for."""
        return dataclasses.replace(of_request, **self.decoding) if self.decoding else of_request  # type: ignore[arg-type]

    def restored(self, translation: str, links: Sequence[Link] = ()) -> str:
        """What stands for the part in the joined text."""
        return translation if self.restore is None else self.restore(translation, links)


class Block(Protocol):
    """A stretch of running text, which sentences do not cross, without what must not reach the model."""

    @property
    def text(self) -> str:
        """What is split and translated."""

    def part(self, start: int, end: int) -> Part:
        """The part that is text[start:end]; it knows how to restore what belongs there."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """A text as its format sees it: one gap more than blocks."""

    blocks: tuple[Block, ...]
    gaps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlainBlock:
    """Text with nothing in it but words."""

    text: str

    def part(self, start: int, end: int) -> Part:
        """Nothing was taken out, so nothing is put back."""
        return Part(self.text[start:end])


def plain_text(text: str) -> Blocks:
    """Text without any format."""
    return Blocks((PlainBlock(text),), ("", ""))


@dataclass(frozen=True, slots=True)
class Document:
    """Parts to translate, each within the model's limit, and the source around them: one gap more than parts.

    `lead` is what every part needs before it: a language token that the text began with (`>>deu<<`), and a task's prefix.
    `start`: the character of the text where the first gap begins, behind the language token. `added`: numbers of gaps that
    are a space which the text does not have: languages without spaces have none between sentences, either.
    """

    parts: tuple[Part, ...]
    gaps: tuple[str, ...]
    lead: str = ""
    start: int = 0
    added: frozenset[int] = frozenset()

    def source_gap(self, number: int) -> int:
        """How many characters of the text this gap is."""
        return 0 if number in self.added else len(self.gaps[number])
