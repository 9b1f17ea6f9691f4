"""Splits blocks of text into parts that the model accepts: sentences, lines, or whole blocks.

Planning is linear in the length of the text: each span is tokenised a bounded number of times, and nothing longer than a
model could accept is tokenised at all. It runs in slices, so that a long text does not delay other requests.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from dragoman.bundle.records import Segmentation
from dragoman.errors import InvalidRequest
from dragoman.serving.text.document import LETTER, Block, Blocks, Document, Part
from dragoman.serving.text.fitting import Measure, pieces
from dragoman.serving.text.sentence_rules import CLOSING
from dragoman.serving.text.sentences import is_one_sentence, line_spans, sentence_spans, stripped_span

__all__ = ["Splitting", "is_plain_sentence", "plan_document"]

_Span = tuple[int, int]
_LIST_MARK = re.compile(
    r"""
    (?: (?:>[ \t\u00a0]{0,8}){1,32} (?: [-*+•‣◦▪·–—][ \t\u00a0]+ )?  # quoted mail
      | (?:[-*+•‣◦▪·–—]|[#]{1,6})[ \t\u00a0]+ )
    (?: \[[ xX]?\][ \t]+ )?  # a task
    (?=[^\w\s]{0,20}\w)
    | (?: \d{1,3}(?:\.\d{1,3}){0,3}[.)] | \((?:\d{1,3}|[a-z]|[ivx]{2,5})\) | [a-z]\) | \[\d[\d:.,/ -]{0,20}\] )
      [ \t\u00a0]+ (?=[^\w\s]{0,20}[^\W\d])
    | ・(?=\w)
    """,
    re.VERBOSE,
)
"""Marks of list items, headings, quotations and chat messages. Models drop them, or turn them into words."""
_FEW = 8
_CLOSING = f"{CLOSING}…‥・"
"""Behind a sentence, or before the next: the mark of an item, which has no space behind it."""
_SHORT = 512
"""In characters: only a longer text is searched for sentences."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """How blocks are split. `language` is the source's, in BCP 47; `refuse_long`: what is too long is not split further.

    `spaced`: the translation's language has spaces between sentences, also where the source's has none. A text of more parts
    than `most_parts` is refused as soon as they are too many.
    """

    segmentation: Segmentation = "sentence"
    refuse_long: bool = False
    language: str | None = None
    spaced: bool = False
    most_parts: int | None = None


def plan_document(source: Blocks, measure: Measure, splitting: Splitting, lead: str = "") -> Generator[None, None, Document]:
    """Split each block into sentences or lines; what is still longer than the model accepts is split further, or refused.

    Nothing is left out: a text that can not be made short enough is an InvalidRequest. Yields so that the caller can do
    other work.
    """
    document = _Builder(lead, splitting.most_parts)
    for gap, block in zip(source.gaps, source.blocks, strict=False):
        document.skip(gap)
        yield from _plan_block(document, block, measure, splitting)
    return document.built(source.gaps[-1])


def is_plain_sentence(text: str, language: str | None) -> bool:
    """Whether the whole text is one short sentence, as most are: a quick check. False may be wrong."""
    return (
        0 < len(text) <= _SHORT
        and not text[0].isspace()
        and not text[-1].isspace()
        and _LIST_MARK.match(text) is None
        and LETTER.search(text) is not None
        and is_one_sentence(text, language)
    )


def _plan_block(document: _Builder, block: Block, measure: Measure, splitting: Splitting) -> Generator[None, None, None]:
    text, end = block.text, 0
    for found in _spans(text, splitting):
        if found is None or measure.is_pause_due():
            yield
        if found is None:
            continue
        span = found
        if (mark := _list_mark(text, end, found)) is not None:
            document.skip(text[end : found[0]])
            yield from document.keep(block, (found[0], mark))
            span, end = (mark, found[1]), mark
        if splitting.segmentation == "none":
            yield from _add_parts(document, block, (end, *span), measure, splitting)
        elif block.has_words(*span):
            bare = block.bare(*span)
            if span[0] < bare[0]:
                document.skip(_gap(text, end, span[0], splitting))
                yield from document.keep(block, (span[0], bare[0]))
                end = bare[0]
            yield from _add_parts(document, block, (end, *bare), measure, splitting)
            if bare[1] < span[1]:
                yield from document.keep(block, (bare[1], span[1]))
        else:
            document.skip(text[end : span[0]])
            yield from document.keep(block, span)
        end = span[1]
    document.skip(text[end:])


def _add_parts(
    document: _Builder, block: Block, place: tuple[int, int, int], measure: Measure, splitting: Splitting
) -> Generator[None, None, None]:
    """The parts of a span: one, if the model takes it. `place`: where what is planned ends, and the span."""
    text, (end, *span) = block.text, place
    if measure.fits(text[slice(*span)]):
        part = block.part(*span)
        measure.note_part(part.marks)
        document.add(_gap(text, end, span[0], splitting), part)
        return
    if splitting.refuse_long:
        raise InvalidRequest(
            f"a text of {span[1] - span[0]} characters has more tokens than the model takes ({measure.max_tokens}); "
            "shorten it or ask for split='sentence'"
        )
    is_sentence = splitting.segmentation == "sentence"
    for piece in pieces(measure, text, (span[0], span[1]), splitting.language, is_sentence=is_sentence):
        if piece is None or measure.is_pause_due():
            yield
        if piece is not None:
            part = block.part(*piece)
            measure.note_part(piece[1] - piece[0] + part.marks)
            document.add(_gap(text, end, piece[0], splitting), part)
            end = piece[1]


def _list_mark(text: str, end: int, span: _Span) -> int | None:
    """The end of a mark that makes the line a list item, a heading or a quotation, if the sentence begins the line."""
    begins_line = not end or "\n" in text[end : span[0]] or "\r" in text[end : span[0]]
    mark = _LIST_MARK.match(text, *span) if begins_line else None
    return None if mark is None else mark.end()


def _gap(text: str, end: int, start: int, splitting: Splitting) -> str:
    """The source between two parts."""
    if start > end or not splitting.spaced:
        return text[end:start]
    before = text[max(end - _FEW, 0) : end].rstrip(_CLOSING)  # nothing before the first part
    return " " if before and unicodedata.east_asian_width(before[-1]) in {"W", "F"} else ""


def _spans(text: str, splitting: Splitting) -> Iterator[_Span | None]:
    """The stretches of a block that are translated separately; None is a pause."""
    if splitting.segmentation == "sentence":
        yield from sentence_spans(text, splitting.language)
    elif splitting.segmentation == "line":
        yield from line_spans(text)
    else:
        yield from stripped_span(text, 0, len(text))


class _Builder:
    """Collects the parts of a document and the gaps between them."""

    def __init__(self, lead: str, most_parts: int | None = None) -> None:
        self._lead, self._most_parts = lead, most_parts
        self._parts: list[Part] = []
        self._gaps: list[str] = []
        self._gap: list[str] = []

    def skip(self, gap: str) -> None:
        """Add source that is copied unchanged."""
        self._gap.append(gap)

    def keep(self, block: Block, span: _Span) -> Generator[None, None, None]:
        """Add a stretch of a block that is not translated."""
        for at, piece in enumerate(block.unchanged(*span)):
            if at:
                yield
            self._gap.append(piece)

    def add(self, gap: str, part: Part) -> None:
        """Add the next part, and the gap before it."""
        if len(self._parts) == self._most_parts:
            raise InvalidRequest(
                f"a text has more than {self._most_parts} sentences, which is all that can be decoded together; "
                "send it in pieces"
            )
        self._gaps.append("".join((*self._gap, gap)))
        self._gap = []
        self._parts.append(part)

    def built(self, gap: str) -> Document:
        gaps = (*self._gaps, "".join((*self._gap, gap)))
        return Document(tuple(self._parts), gaps, self._lead)
