"""A request for translations in the engine process: its texts, their parts, and what has come back of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dragoman.search import DecodingOptions
from dragoman.serving import engine
from dragoman.serving.documents import Document
from dragoman.serving.engine import Timings
from dragoman.serving.link.channel import Channel
from dragoman.serving.process.answers import TextAnswer, TextHypothesis
from dragoman.serving.process.options import RequestOptions
from dragoman.serving.process.task_queue import Task
from dragoman.serving.process.text_stream import TextStream

__all__ = ["Part", "TextState", "TranslationRequest"]

Decode = Callable[[Sequence[int]], str]


class TextState:
    """One text: the document it was split into, what is back of its parts, and at last its answer.

    Parts are detokenised as they come back, so that a text of thousands does not end in a long pause.
    """

    __slots__ = ("_finish", "_hypotheses", "_missing", "_sources", "answer", "cached", "document", "text", "timings")

    def __init__(self, text: str) -> None:
        self.text = text
        self.document = Document((), ("",))
        self.answer: TextAnswer | None = None
        self.timings: Timings | None = None
        self.cached = False
        self._finish, self._missing, self._sources = "eos", 0, 0
        self._hypotheses: list[list[TextHypothesis]] = []  # of each part

    def plan(self, document: Document) -> None:
        """These are the parts; nothing of them is back."""
        self.document, self._missing = document, len(document.parts)
        self._hypotheses = [[] for _ in document.parts]

    def take(self, part: int, sequence: engine.Sequence, decode: Decode) -> bool:
        """A part is back; True when it was the last."""
        self._hypotheses[part] = [
            TextHypothesis(decode(one.tokens), one.score, len(one.tokens)) for one in sequence.hypotheses
        ]
        if sequence.hypotheses[0].finish == "length":
            self._finish = "length"
        self._sources += len(sequence.source)
        self.timings = sequence.timings if self.timings is None else _together(self.timings, sequence.timings)
        self._missing -= 1
        return self._missing == 0

    def best_of(self, part: int) -> str:
        """The best translation of a part that is back."""
        return self._hypotheses[part][0].text

    def finish(self) -> TextAnswer:
        """Join the parts, which are all back."""
        width = max(map(len, self._hypotheses))
        self.answer = TextAnswer(
            hypotheses=tuple(self._joined(rank) for rank in range(width)),
            source_tokens=self._sources,
            parts=len(self._hypotheses),
            finish=self._finish,
        )
        self._hypotheses = []
        return self.answer

    def _joined(self, rank: int) -> TextHypothesis:
        """Hypothesis `rank` of the text is made of hypothesis `rank` of each part, or of the part's last one."""
        column = [part[min(rank, len(part) - 1)] for part in self._hypotheses]
        if len(column) == 1:
            return TextHypothesis(self.document.join([column[0].text]), column[0].score, column[0].tokens)
        tokens = sum(one.tokens for one in column)
        # A document's score is the mean over its tokens, as a sentence's is with the usual length penalty of 1.
        score = sum(one.score * one.tokens for one in column) / max(tokens, 1)
        return TextHypothesis(self.document.join([one.text for one in column]), score, tokens)


def _together(one: Timings, other: Timings) -> Timings:
    """Of a text whose parts took these; each was timed from the arrival of the whole request."""
    return Timings(
        queue_s=min(one.queue_s, other.queue_s),
        first_token_s=min(one.first_token_s or one.total_s, other.first_token_s or other.total_s),
        total_s=max(one.total_s, other.total_s),
        steps=one.steps + other.steps,
    )


@dataclass(eq=False, slots=True)
class TranslationRequest:
    """One request of a backend's connection, and everything that belongs to it."""

    channel: Channel
    number: int
    options: RequestOptions
    raw_texts: tuple[bytes, ...]
    arrived_s: float
    wants_stream: bool = False
    wants_details: bool = True
    texts: list[TextState] = field(default_factory=list)
    stream: TextStream | None = None
    task: Task | None = None
    """Submits its parts, one after the other."""
    first_options: DecodingOptions | None = None
    """Of the first part of each text: with the tokens of `prefix_text`."""
    sequences: set[engine.Sequence] = field(default_factory=set)
    """Those that the engine has now."""
    rows: int = 0
    """Of those sequences."""
    slots: int = 0
    """KV slots that those sequences are expected to need."""
    submitted: int = 0
    unanswered: int = 0
    ended: bool = False

    @property
    def size_bytes(self) -> int:
        """What its texts take in memory."""
        return sum(map(len, self.raw_texts))

    @property
    def deadline_s(self) -> float | None:
        return None if self.options.timeout_s is None else self.arrived_s + self.options.timeout_s


class Part(NamedTuple):
    """The owner of a sequence: which part of which text of which request it is."""

    request: TranslationRequest
    text: TextState
    position: int
