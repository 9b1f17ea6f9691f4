"""The plan of a text: blocks of running text, the parts of them to translate, and the source between them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dragoman.search import DecodingOptions
from dragoman.serving.text.capitals import Capitals
from dragoman.serving.text.links import Link
from dragoman.serving.text.places import Places, Run, Span, Stretch, moved_links
from dragoman.serving.text.term_places import PartTerms

__all__ = ["LETTER", "Block", "Blocks", "Document", "Part", "PlainBlock", "Restore", "Restored", "Written", "plain_text"]

LETTER = re.compile(r"[^\W\d_]")
"""Text without a letter, such as 42 or ***, is the same in every language; models would translate it with words."""


class Restored(NamedTuple):
    """The text that replaces a part in the joined text, and where in it the translation is.

    `kept`: from this character of the translation on it may have been replaced; None: nowhere.
    """

    text: str
    stretches: Sequence[Stretch]
    kept: int | None = None


class Written(NamedTuple):
    """A translation as it is joined. `links` are those between it and the request's text.

    `runs`: where the characters of the translation stand in it, up to the first that something else stands in the place of.
    None where that was not asked, or where words have changed their places.
    """

    text: str
    links: tuple[Link, ...] = ()
    runs: Sequence[Run] | None = None


Restore = Callable[[str, Sequence[Link]], Restored]
"""The translation of a part, and its alignment: what becomes of it."""


class Part(NamedTuple):
    """A stretch of text that is one source of the model.

    `decoding`: DecodingOptions of this part alone, which override those of the request. `restore` gets the translation;
    without it the translation itself is joined. It gets links only if `needs_links`, which costs forced decoding. `places`:
    where the part's characters are in the request's text; None if that is not needed. `terms`: words of the translation that
    may have to be moved. `marks`: how many tags and placeholders are put back. `capitals`: the rules by which it was
    put into normal spelling, if it is in capitals.
    """

    text: str
    decoding: Mapping[str, object] | None = None
    needs_links: bool = False
    restore: Restore | None = None
    places: Sequence[Run] = ()
    terms: PartTerms | None = None
    marks: int = 0
    capitals: Capitals | None = None

    def options(self, of_request: DecodingOptions) -> DecodingOptions:
        """The options of this part's search."""
        return dataclasses.replace(of_request, **self.decoding) if self.decoding else of_request  # type: ignore[arg-type]

    @property
    def is_edited(self) -> bool:
        """Whether the joined text may differ from the translation."""
        return self.restore is not None or self.terms is not None

    def restored(self, translation: str, links: Sequence[Link] = ()) -> str:
        """The text that replaces the part in the joined text."""
        return self.written(translation, links).text

    def written(self, translation: str, links: Sequence[Link], *, tells_runs: bool = False) -> Written:
        """The same, with its links and runs if the part's places are known."""
        decoded = translation
        if self.terms is not None:
            translation, links = self.terms.in_place(translation, links)
        restored = None if self.restore is None else self.restore(translation, links)
        text = translation if restored is None else restored.text
        if not self.places or not (links or tells_runs):
            return Written(text)
        runs: Sequence[Run] = (Run(0, len(translation), 0, len(translation)),)
        kept = None
        if restored is not None:
            runs, kept = Places(translation, restored.stretches).runs(0, len(translation)), restored.kept
        linked = moved_links(links, self.places, runs) if links else ()
        if not tells_runs or translation != decoded:
            return Written(text, linked)
        return Written(text, linked, runs if kept is None else [run for run in runs if run.at < kept])

    @property
    def source(self) -> Span:
        """The part's range in the request's text."""
        return (self.places[0].place, self.places[-1].place + self.places[-1].extent) if self.places else (0, 0)


class Block(Protocol):
    """A stretch of running text, which sentences do not cross, without what must not reach the model."""

    @property
    def text(self) -> str:
        """The text to split and translate."""

    def has_words(self, start: int, end: int) -> bool:
        """Whether text[start:end] has anything to translate: a letter that is also in the source."""

    def bare(self, start: int, end: int) -> Span:
        """text[start:end], which has words, without what stands at its ends and is no part of its sentence."""

    def part(self, start: int, end: int) -> Part:
        """The part text[start:end]; it knows how to restore what was taken out of it."""

    def unchanged(self, start: int, end: int) -> Iterable[str]:
        """The source of text[start:end], which is not translated; called in order with `part`. In pieces that take little
        time each.
        """


@dataclass(frozen=True, slots=True)
class Blocks:
    """A text as its format reads it: one gap more than blocks."""

    blocks: tuple[Block, ...]
    gaps: tuple[str, ...]


class PlainBlock(NamedTuple):
    """Text that consists of words only."""

    text: str

    def has_words(self, start: int, end: int) -> bool:
        return LETTER.search(self.text, start, end) is not None

    def bare(self, start: int, end: int) -> Span:
        """All of it."""
        return start, end

    def part(self, start: int, end: int) -> Part:
        """Nothing was taken out, so nothing is put back."""
        return Part(self.text[start:end], places=(Run(0, end - start, start, end - start),))

    def unchanged(self, start: int, end: int) -> Iterable[str]:
        """As it is."""
        return (self.text[start:end],)


def plain_text(text: str) -> Blocks:
    """Text without any format."""
    return Blocks((PlainBlock(text),), ("", ""))


class Document(NamedTuple):
    """Parts to translate, each within the model's limit, and the source around them: one gap more than parts.

    `lead` is what every part needs before it: a language token that the text began with (`>>deu<<`), and a task's prefix.
    `start`: the character of the text behind the language token, which places count from.
    """

    parts: tuple[Part, ...]
    gaps: tuple[str, ...]
    lead: str = ""
    start: int = 0

    @property
    def is_plain_part(self) -> bool:
        """Whether its translation is that of its only part."""
        return len(self.parts) == 1 and self.parts[0].restore is None and self.gaps == ("", "")
