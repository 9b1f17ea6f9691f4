"""Texts through the pipeline without a model: a translation is its source, or what a function makes of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from dragoman.search import DecodingOptions
from dragoman.serving.text.attribute_texts import AttributeTexts
from dragoman.serving.text.capitals import Capitals
from dragoman.serving.text.document import Document
from dragoman.serving.text.fitting import Measure
from dragoman.serving.text.formats import TextFormat, blocks_of
from dragoman.serving.text.glossary import Glossary
from dragoman.serving.text.links import Link
from dragoman.serving.text.planning import Splitting, plan_document
from dragoman.serving.text.protection import Protection
from dragoman.serving.text.stand_ins import StandIns
from dragoman.serving.text.unread_words import UnreadWords

T = TypeVar("T")


class Characters:
    """A tokenizer whose tokens are characters."""

    def encode(self, text: str, prefix: Sequence[int] | None = None, suffix: Sequence[int] | None = None) -> list[int]:
        return [ord(character) for character in text]

    def encode_target(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def reads(self, text: str) -> bool:
        return True


TOKENIZER = Characters()
STAND_INS = StandIns(TOKENIZER)


def run(generator: Generator[None, None, T]) -> T:
    """What it returns."""
    found: list[T] = []

    def returned() -> Generator[None, None, None]:
        found.append((yield from generator))

    for _ in returned():
        pass
    return found[0]


def planned(
    text: str,
    text_format: TextFormat = "html",
    *,
    placeholders: bool = True,
    glossary: Glossary | None = None,
    decoding: DecodingOptions | None = None,
    capitals: Capitals | None = None,
    attributes: bool = False,
    places: bool = False,
    stand_ins: StandIns = STAND_INS,
    unread: UnreadWords | None = None,
) -> Document:
    """The parts of a text."""
    protection = Protection(
        TOKENIZER,
        stand_ins,
        decoding or DecodingOptions(),
        keeps_placeholders=placeholders,
        keeps_places=places,
        glossary=glossary,
        capitals=capitals,
        unread=unread,
    )
    blocks = run(blocks_of(text, text_format, protection, translates_attributes=attributes))
    return run(plan_document(blocks, Measure(lambda piece: len(piece) // 4 + 1, 512, ""), Splitting()))


def translated(
    text: str,
    text_format: TextFormat = "html",
    translate: Callable[[str], str] = str,
    links: Callable[[str], Sequence[Link]] = lambda source: [Link(at, at + 1, at, at + 1) for at in range(len(source))],
    **options: Any,
) -> str:
    """The text, each part of it translated by `translate`."""
    document = planned(text, text_format, **options)
    pieces = [document.gaps[0]]
    for part, gap in zip(document.parts, document.gaps[1:], strict=True):
        pieces += (part.restored(translate(part.text), links(part.text)), gap)
    return AttributeTexts().placed("".join(pieces))
