"""A request for translations in the engine process: its texts, their parts, and the results so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dragoman.search import DecodingOptions
from dragoman.serving import engine
from dragoman.serving.engine import Timings
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.process.answers import SentenceCheck, TextAnswer, with_details
from dragoman.serving.process.job_queue import Job
from dragoman.serving.process.options import RequestOptions
from dragoman.serving.text.alternatives import AskedPlaces, ReadTarget
from dragoman.serving.text.document import Document
from dragoman.serving.text.joining import JoinedHypothesis, TextHypothesis
from dragoman.serving.text.links import Link
from dragoman.serving.text.stream import TextStream

__all__ = ["PartOwner", "PrefixPlace", "TextState", "TranslationRequest"]

_MOST_CHECKS = 256
"""The most reports of sentences per text in DETAILS: a text may have thousands of sentences."""

_NO_PARTS = Document((), ("",))

Decode = Callable[[Sequence[int]], str]
PrefixPlace = Literal["first", "first, in capitals", "later"]
"""Of a part in its text."""


class TextState:
    """One text: the document that it was split into, the translated parts, and finally its answer. `target`: a translation
    to score.

    Parts are detokenised and joined as they come back, so that a text of thousands does not end with a long pause.
    """

    def __init__(self, text: str, target: str | None = None) -> None:
        self.text, self.target = text, target
        self.asked: AskedPlaces | None = None  # places of the translation whose alternatives are to be told
        self.scored_tokens = ""  # of the target, as JSON
        self.document = _NO_PARTS
        self.answer: TextAnswer | None = None
        self.timings: Timings | None = None
        self.cached = False
        self._columns: list[JoinedHypothesis] = []
        self._hypotheses: tuple[TextHypothesis, ...] = ()
        self._early: dict[int, list[TextHypothesis]] = {}  # parts whose predecessors are not back
        self._read: dict[int, ReadTarget] = {}  # of those parts, if the text has places that are asked about
        self._joined, self._width, self._num_hypotheses = 0, 0, 1
        self._finish, self._source_tokens = "eos", 0
        self._checks: dict[int, SentenceCheck] = {}
        self._suspicious = 0
        self._aligned = False

    def plan(self, document: Document, num_hypotheses: int) -> None:
        """Set the parts, none of which is translated yet."""
        self.document, self._num_hypotheses = document, num_hypotheses

    def take(
        self,
        part: int,
        sequence: engine.Sequence,
        decode: Decode,
        check: SentenceCheck | None = None,
        links: Sequence[tuple[Link, ...]] = (),
    ) -> str:
        """A part is translated; returns its best translation. `check`: the omission guard's finding, `links`: those of each
        hypothesis.
        """
        if check is not None:
            self._suspicious += bool(check.suspicions)
            if len(self._checks) < _MOST_CHECKS:
                self._checks[part] = check
        source = self.document.parts[part]
        self._aligned = self._aligned or bool(links and source.places)
        found = []
        for rank, one in enumerate(sequence.hypotheses):
            linked = links[rank] if links else ()
            tells_runs = rank == 0 and self.asked is not None and bool(sequence.forced)
            written = source.written(decode(one.tokens), linked, tells_runs=tells_runs)
            found.append(TextHypothesis(written.text, one.score, len(one.tokens), written.links))
            if written.runs is not None:
                best = sequence.forced[0]
                figures = (best.log_probs, best.best_tokens, best.best_log_probs)
                self._read[part] = ReadTarget(best.tokens, written.runs, *(each.tolist() for each in figures))
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
        """Whether all parts are done."""
        return self._joined == len(self.document.parts)

    def finish(self, arrived_s: float) -> TextAnswer:
        """The answer of a text that is complete."""
        if self.timings is None:  # no part of it went through the engine
            took_s = time.monotonic() - arrived_s
            self.timings = Timings(took_s, took_s, took_s, 0)
        if not self._hypotheses:
            self._lay_columns()
            self._hypotheses = tuple(column.whole() for column in self._columns[: max(self._width, 1)])
        answer = TextAnswer(
            hypotheses=self._hypotheses,
            source_tokens=self._source_tokens,
            parts=self._joined,
            finish=self._finish,
            checks=tuple(check for _, check in sorted(self._checks.items())) if self._checks else None,
            suspicious=self._suspicious,
            aligned=self._aligned,
            alternatives_at=None if self.asked is None else self.asked.answers(),
            scored_tokens=self.scored_tokens,
        )
        # A hundred texts of one request are answered together.
        self._columns, self._hypotheses, self.document = [], (), _NO_PARTS
        self.answer = with_details(answer)
        return self.answer

    def _join(self, hypotheses: Sequence[TextHypothesis]) -> None:
        """Hypothesis n of the text is made of hypothesis n of each part, or of the part's last one."""
        if self.document.is_plain_part and self.asked is None and not self._aligned:  # most texts
            self._hypotheses, self._joined = tuple(hypotheses[: self._num_hypotheses]), 1
            return
        self._lay_columns()
        part, gap, start = self._joined, self.document.gaps[self._joined + 1], self.document.start
        self._joined += 1
        self._width = max(self._width, len(hypotheses))
        placed = [
            column.add(hypotheses[min(rank, len(hypotheses) - 1)], gap, start) for rank, column in enumerate(self._columns)
        ]
        if self.asked is not None:
            first, last = self.document.parts[part].source
            self.asked.look(placed[0], (start + first, start + last), self._read.pop(part, None))

    def _lay_columns(self) -> None:
        if not self._columns:
            self._columns = [JoinedHypothesis(self.document.gaps[0]) for _ in range(self._num_hypotheses)]


def _together(one: Timings, other: Timings) -> Timings:
    """The timings of a text from those of its parts; each is counted from the arrival of the request."""
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
    raw_targets: tuple[bytes, ...] = ()
    """To score instead of translating: one for each text."""
    request_id: str = ""
    """The caller's, or a generated one."""
    is_probe: bool = False
    """Whether it is the supervisor's own, which is not counted."""
    size_bytes: int = field(init=False)
    """What its texts take in memory."""
    deadline_s: float | None = field(init=False)
    texts: list[TextState] = field(default_factory=list)
    stream: TextStream | None = None
    job: Job | None = None
    """Submits its parts, one after the other."""
    decoding: dict[PrefixPlace, DecodingOptions] = field(default_factory=dict)
    """With a prefix: the options of the first part of each text, and those of later ones, which have none."""
    sequences: set[engine.Sequence] = field(default_factory=set)
    """Those that the engine has now."""
    waiting: list[engine.Sequence] = field(default_factory=list)
    """Those of them that were in the engine's queue when it was last looked at."""
    rows: int = 0
    """Rows of those sequences."""
    slots: int = 0
    """KV slots that those sequences are expected to need."""
    planned_characters: int = 0
    """Characters of its texts that are split and not answered."""
    answer_characters: int = 0
    """Characters of the complete texts."""
    submitted: int = 0
    unanswered: int = field(init=False)
    ended: bool = False

    def __post_init__(self) -> None:
        timeout_s = self.options.timeout_s
        self.size_bytes = sum(map(len, self.raw_texts)) + sum(map(len, self.raw_targets))
        self.deadline_s = None if timeout_s is None else self.arrived_s + timeout_s
        self.unanswered = len(self.raw_texts)


class PartOwner(NamedTuple):
    """The owner of a sequence: the part of a text of a request."""

    request: TranslationRequest
    text: TextState
    position: int
    first: engine.Sequence | None = None
    """Its translation that was suspicious, where this is the second."""

    @property
    def target_name(self) -> str:
        """Which target of its request the text has, for errors."""
        texts = self.request.texts
        return f"target {texts.index(self.text)}" if len(texts) > 1 else "the target"
