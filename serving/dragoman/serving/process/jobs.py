"""A request on its way through the engine process: its texts, their parts, and what has come back of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dragoman.search import Hypothesis
from dragoman.serving.documents import Document
from dragoman.serving.engine import Sequence as EngineSequence
from dragoman.serving.link.channel import Channel
from dragoman.serving.process.admission import Terms
from dragoman.serving.process.answers import Effort, Said, TextAnswer

__all__ = ["Job", "Piece", "Stream", "TextWork"]

Decode = Callable[[Sequence[int]], str]


@dataclass(eq=False, slots=True)
class TextWork:
    """One text: the document it was split into, and the engine's answer to each part."""

    text: str
    document: Document | None = None
    results: list[EngineSequence | None] = field(default_factory=list)
    missing: int = 0
    answer: TextAnswer | None = None
    effort: Effort | None = None

    def plan(self, document: Document) -> None:
        """These are the parts; nothing of them is back."""
        self.document = document
        self.results = [None] * len(document.parts)
        self.missing = len(document.parts)

    def take(self, part: int, result: EngineSequence) -> bool:
        """A part is back; True when it was the last."""
        self.results[part] = result
        self.missing -= 1
        return self.missing == 0

    def finish(self, decode: Decode) -> None:
        """Join the parts, which are all back; each was timed from the arrival of the whole request."""
        done = [result for result in self.results if result is not None]
        self.answer = _joined(self.document, done, decode)
        self.effort = Effort(
            queue_s=min(each.timings.queue_s for each in done),
            first_token_s=min(each.timings.first_token_s or each.timings.total_s for each in done),
            total_s=max(each.timings.total_s for each in done),
            steps=sum(each.timings.steps for each in done),
        )


def _joined(document: Document | None, done: Sequence[EngineSequence], decode: Decode) -> TextAnswer:
    width = max(len(each.hypotheses) for each in done)
    # (width, parts): hypothesis n of the text is made of hypothesis n of each part, or of its last one
    columns = [[each.hypotheses[min(n, len(each.hypotheses) - 1)] for each in done] for n in range(width)]
    return TextAnswer(
        hypotheses=tuple(_said(document, column, decode) for column in columns),
        source_tokens=sum(each.source_tokens for each in done),
        parts=len(done),
        finish="length" if any(hypothesis.finish == "length" for hypothesis in columns[0]) else "eos",
    )


def _said(document: Document | None, column: Sequence[Hypothesis], decode: Decode) -> Said:
    texts = [decode(hypothesis.tokens) for hypothesis in column]
    tokens = sum(len(hypothesis.tokens) for hypothesis in column)
    # A document's score is the mean over its tokens, as a sentence's is with the usual length penalty of 1.
    score = column[0].score if len(column) == 1 else sum(one.score * len(one.tokens) for one in column) / max(tokens, 1)
    return Said(document.join(texts) if document else texts[0], score, tokens)


class Stream:
    """Turns decided tokens of a document's parts into chunks of text, in the document's order.

    A chunk is what the text has grown by. Parts decode at the same time, so what a later one has decided waits until the
    earlier ones are done.
    """

    def __init__(self, document: Document, decode: Decode) -> None:
        self._document, self._decode = document, decode
        self._tokens: list[list[int]] = [[] for _ in document.parts]
        self._done = [False] * len(document.parts)
        self._at = 0
        self._sent_of_part = ""
        self._opening = document.gaps[0]

    def decided(self, part: int, tokens: Sequence[int]) -> str:
        """The text that `tokens` of `part` add now."""
        self._tokens[part] += tokens
        return self._grown()

    def finished(self, part: int, tokens: Sequence[int]) -> str:
        """The text that follows because `part` is done and says `tokens`."""
        self._tokens[part] = list(tokens)
        self._done[part] = True
        return self._grown()

    def _grown(self) -> str:
        chunk = ""
        while self._at < len(self._tokens):
            text = self._decode(self._tokens[self._at])
            if not self._done[self._at]:
                # The end of an unfinished text may still change: half a character, or a word that goes on.
                text = text.rstrip("\ufffd")
                if not text.startswith(self._sent_of_part):
                    return chunk
            chunk += text[len(self._sent_of_part) :]
            self._sent_of_part = text
            if not self._done[self._at]:
                break
            chunk += self._document.gaps[self._at + 1]
            self._at, self._sent_of_part = self._at + 1, ""
        if chunk and self._opening:
            chunk, self._opening = self._opening + chunk, ""
        return chunk


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a text, as the engine gets it."""

    sequence: EngineSequence
    work: TextWork
    part: int


@dataclass(eq=False, slots=True)
class Job:
    """One request of a stub, and everything that belongs to it."""

    origin: Channel
    number: int
    terms: Terms
    works: list[TextWork]
    arrived_s: float
    stream: Stream | None = None
    wants_stream: bool = False
    wants_details: bool = True
    requests: Iterator[Piece] = field(default_factory=lambda: iter(()))
    refused: Piece | None = None  # by a full queue; it is tried again
    submitted: int = 0
    parked: bool = False  # has its share of the engine; goes on when a part is back
    open: set[EngineSequence] = field(default_factory=set)
    ended: bool = False

    @property
    def size_bytes(self) -> int:
        """About what its texts take in memory."""
        return sum(len(work.text) for work in self.works)

    @property
    def deadline_s(self) -> float | None:
        return None if self.terms.timeout_s is None else self.arrived_s + self.terms.timeout_s

    @property
    def is_complete(self) -> bool:
        return all(work.answer is not None for work in self.works)
