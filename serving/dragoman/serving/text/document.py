"""What a text is planned as: parts to translate, and the source between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dragoman.search import DecodingOptions
from dragoman.serving.text.links import Link

__all__ = ["Document", "Part", "Restore"]

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
