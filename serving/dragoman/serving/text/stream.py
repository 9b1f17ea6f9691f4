"""The chunks of a streamed translation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dragoman.serving.text.attribute_texts import AttributeTexts
from dragoman.serving.text.document import Document

__all__ = ["TextStream"]


class TextStream:
    """Turns the final tokens of a document's parts into chunks of text, in the document's order.

    A chunk is what the text has grown by. Parts are decoded at the same time, so the text of a later part waits until the
    earlier ones are done, and a part in which something is restored or moved is a single chunk.
    """

    def __init__(self, document: Document, decode: Callable[[Sequence[int]], str]) -> None:
        self._document, self._decode = document, decode
        self._tokens: dict[int, list[int]] = {}  # of parts that are not done
        self._texts: dict[int, str] = {}  # of parts that are done and wait for earlier ones
        self._part = 0
        self._sent_of_part = ""
        self._opening = document.gaps[0]
        self._attributes = AttributeTexts()

    def decided(self, part: int, tokens: Sequence[int]) -> str:
        """The text that `tokens` of `part` add now."""
        self._tokens.setdefault(part, []).extend(tokens)
        return self._opened(self._growth() if part == self._part else "")

    def finished(self, part: int, text: str) -> str:
        """The text that follows because `part` is done and is `text`."""
        self._texts[part] = text
        self._tokens.pop(part, None)
        chunks = []
        while (done := self._texts.pop(self._part, None)) is not None:
            chunks += [done[len(self._sent_of_part) :], self._document.gaps[self._part + 1]]
            self._part, self._sent_of_part = self._part + 1, ""
        if chunks:
            chunks.append(self._growth())
        return self._opened("".join(chunks))

    def _growth(self) -> str:
        """What the current part, which is not done, has grown by."""
        known = self._tokens.get(self._part)
        if not known or self._document.parts[self._part].is_edited:  # anywhere in it
            return ""
        # The end of an unfinished text may still change: half a character, or a word that goes on.
        text = self._decode(known).rstrip("\ufffd")
        if not text.startswith(self._sent_of_part):
            return ""
        chunk = text[len(self._sent_of_part) :]
        self._sent_of_part = text
        return chunk

    def _opened(self, chunk: str) -> str:
        """The gap before the text is sent with its first chunk, or when all parts are done."""
        if self._opening and (chunk or self._part == len(self._document.parts)):
            chunk, self._opening = self._opening + chunk, ""
        return self._attributes.placed(chunk)
