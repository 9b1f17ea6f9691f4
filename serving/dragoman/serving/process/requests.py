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

    Parts are detokenised and joined as they come back, so that a text of thousands does not end in a long pause.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.document = Document((), ("",))
        self.answer: TextAnswer | None = None
        self.timings: Timings | None = None
        self.cached = False
        self._columns: list[_Column] = []
        self._early: dict[int, list[TextHypothesis]] = {}  # parts whose predecessors are not back
        self._joined, self._width = 0, 0
        self._finish, self._source_tokens = "eos", 0

    def plan(self, document: Document, num_hypotheses: int) -> None:
        """These are the parts; nothing of them is back."""
        self.document = document
        self._columns = [_Column(document.gaps[0]) for _ in range(num_hypotheses)]

    def take(self, part: int, sequence: engine.Sequence, decode: Decode) -> str:
        """A part is back; its best translation."""
        found = [TextHypothesis(decode(one.tokens), one.score, len(one.tokens)) for one in sequence.hypotheses]
        if sequence.hypotheses[0].finish == "length":
            self._finish = "length"
        self._source_tokens += len(sequence.source)
        self.timings = sequence.timings if self.timings is None else _together(self.timings, sequence.timings)
        self._early[part] = found
        while (next_part := self._early.pop(self._joined, None)) is not None:
            self._join(next_part)
        return found[0].text

    @property
    def is_complete(self) -> bool:
        """Whether all parts are back."""
        return self._joined == len(self.document.parts)

    def finish(self) -> TextAnswer:
        """The answer of a text that is complete."""
        self.answer = TextAnswer(
            hypotheses=tuple(column.hypothesis() for column in self._columns[: self._width]),
            source_tokens=self._source_tokens,
            parts=self._joined,
            finish=self._finish,
        )
        self._columns = []
        return self.answer

    def _join(self, hypotheses: Sequence[TextHypothesis]) -> None:
        """Hypothesis n of the text is made of hypothesis n of each part, or of the part's last one."""
        self._joined += 1
        self._width = max(self._width, len(hypotheses))
        for rank, column in enumerate(self._columns):
            column.add(hypotheses[min(rank, len(hypotheses) - 1)], self.document.gaps[self._joined])


class _Column:
    """One hypothesis of a text, as it grows."""

    __slots__ = ("_only_score", "_pieces", "_tokens", "_weighted")

    def __init__(self, gap: str) -> None:
        self._pieces = [gap]
        self._tokens, self._weighted = 0, 0.0
        self._only_score: float | None = None

    def add(self, part: TextHypothesis, gap: str) -> None:
        """The next part, and what stands behind it."""
        self._only_score = part.score if len(self._pieces) == 1 else None
        self._pieces += (part.text, gap)
        self._tokens += part.tokens
        self._weighted += part.score * part.tokens

    def hypothesis(self) -> TextHypothesis:
        """A document's score is the mean over its tokens, as a sentence's is with the usual length penalty of 1."""
        score = self._weighted / max(self._tokens, 1) if self._only_score is None else self._only_score
        return TextHypothesis("".join(self._pieces), score, self._tokens)


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
    waiting: list[engine.Sequence] = field(default_factory=list)
    """Those of them that were in the engine's queue when it was last looked at."""
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
