"""Answers: the result of each text, and the frames that send it, or an error, to the caller."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dragoman.serving.engine import Timings
from dragoman.serving.failures import Failure, cause_of
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.serving.logs import event as log_event
from dragoman.serving.text.alternatives import Alternatives
from dragoman.serving.text.joining import TextHypothesis
from dragoman.serving.text.suspicion import Suspicion
from dragoman.wire import ALIGNMENT_FIELD, ALTERNATIVES_FIELD, SCORED_FIELDS, WIRE_VERSION, ErrorCode

__all__ = ["Replies", "Second", "SentenceCheck", "TextAnswer", "details", "translation_parts", "with_details"]

_log = logging.getLogger(__name__)


Second = Literal["replaced", "kept"]
"""What became of a suspicious translation when there was a second one."""


@dataclass(frozen=True, slots=True)
class SentenceCheck:
    """The omission guard's findings: why a translation was suspicious, and what became of a second one."""

    length_ratio: float
    coverage: float | None = None
    suspicions: tuple[Suspicion, ...] = ()
    second: Second | None = None


class TextAnswer(NamedTuple):
    """All hypotheses for a text, best first; what the response cache keeps."""

    hypotheses: tuple[TextHypothesis, ...]
    source_tokens: int
    parts: int
    finish: str
    checks: tuple[SentenceCheck, ...] | None = None
    suspicious: int = 0
    aligned: bool = False
    alternatives_at: tuple[Alternatives | None, ...] | None = None
    scored_tokens: str = ""
    """SCORED_FIELDS of a target that was scored: a JSON list, made when it was, as many long ones together take long."""
    told: str = ""
    """Its optional fields of DETAILS as JSON, made for each text by itself for the same reason."""

    @property
    def written_characters(self) -> int:
        """How many characters the caller gets."""
        return len(self.told) + sum([len(hypothesis.text) for hypothesis in self.hypotheses])

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return (
            400
            + 120 * len(self.checks or ())
            + sum(200 + 8 * len(one.prefix) + 150 * len(one.tokens) for one in self.alternatives_at or () if one)
            + len(self.told)
            + sum(200 + 4 * len(hypothesis.text) + len(hypothesis.alignment) for hypothesis in self.hypotheses)
        )


def translation_parts(answers: Sequence[TextAnswer], encoded_details: bytes) -> tuple[bytes, ...]:
    """The parts of an ANSWER to TRANSLATE: details, shape, scores, token counts, then the texts row by row."""
    width = max([len(answer.hypotheses) for answer in answers])
    flat: list[TextHypothesis] = []
    for answer in answers:
        flat += answer.hypotheses
        # A text may have fewer hypotheses than others; the tensor is a rectangle, so empty ones fill it.
        flat += (_NOTHING,) * (width - len(answer.hypotheses))
    return (
        encoded_details,
        _SHAPE.pack(len(answers), width),
        struct.pack(f"<{len(flat)}f", *[hypothesis.score for hypothesis in flat]),
        struct.pack(f"<{len(flat)}i", *[hypothesis.tokens for hypothesis in flat]),
        *[hypothesis.text.encode() for hypothesis in flat],
    )


_JSON = json.JSONEncoder(ensure_ascii=False)  # made once: making it takes longer than using it
_SHAPE = struct.Struct("<II")
_NOTHING = TextHypothesis("", float("-inf"), 0)


def details(model: str, version: str, request_id: str, texts: Sequence[tuple[TextAnswer, Timings, bool]]) -> bytes:
    """DETAILS of the wire contract: for each text its answer, its timings and whether it was in the response cache."""
    told = ", ".join([_text_details(answer, timings, cached) for answer, timings, cached in texts])
    model, version, request_id = map(_JSON.encode, (model, version, request_id))
    return (
        f'{{"wire_version": {WIRE_VERSION}, "model": {model}, "version": {version}, "request_id": {request_id}, '
        f'"texts": [{told}]}}'
    ).encode()


def _text_details(answer: TextAnswer, timings: Timings, cached: bool) -> str:
    """JSON, written by hand: a JSON encoder takes three times as long, for every answer."""
    best = answer.hypotheses[0]
    first_token_s = timings.first_token_s or timings.total_s
    return (
        f'{{"source_tokens": {answer.source_tokens}, "target_tokens": {best.tokens}, "score": {_number(best.score)}, '
        f'"queue_ms": {timings.queue_s * 1000:.3f}, "first_token_ms": {first_token_s * 1000:.3f}, '
        f'"total_ms": {timings.total_s * 1000:.3f}, "steps": {timings.steps}, "parts": {answer.parts}, '
        f'"cached": {"true" if cached else "false"}, "finish": "{answer.finish}"{answer.told}}}'
    )


def with_details(answer: TextAnswer) -> TextAnswer:
    """The answer with the optional fields of its DETAILS."""
    fields = [] if answer.checks is None else [_JSON.encode(_checked(answer.suspicious, answer.checks))[1:-1]]
    if answer.aligned:
        links = ", ".join(hypothesis.alignment or "[]" for hypothesis in answer.hypotheses)
        fields.append(f'"{ALIGNMENT_FIELD}": [{links}]')
    if answer.alternatives_at is not None:
        fields.append(_JSON.encode(_alternatives(answer))[1:-1])
    if answer.scored_tokens:
        (field,) = SCORED_FIELDS
        fields.append(f'"{field}": {answer.scored_tokens}')
    return answer._replace(told="".join(f", {field}" for field in fields)) if fields else answer


def _checked(suspicious: int, checks: Sequence[SentenceCheck]) -> dict[str, object]:
    """CHECK_FIELDS, for requests with `on_suspicion`."""
    return {"suspicious": suspicious, "sentences": [dataclasses.asdict(check) for check in checks]}


def _alternatives(answer: TextAnswer) -> dict[str, object]:
    """ALTERNATIVES_FIELD, for requests with `alternatives_at`."""
    if answer.alternatives_at is None:
        return {}
    return {ALTERNATIVES_FIELD: [None if one is None else _place(one) for one in answer.alternatives_at]}


def _place(found: Alternatives) -> dict[str, object]:
    tokens = [{**one._asdict(), "log_probability": round(one.log_probability, 6)} for one in found.tokens]
    return {**dataclasses.asdict(found), "log_probability": round(found.log_probability, 6), "tokens": tokens}


def _number(score: float) -> str:
    """JSON has no infinity, which is the score of a hypothesis that contains a forbidden token."""
    return f"{score:.6f}" if math.isfinite(score) else "null"


class Replies:
    """Sends answers by the number that a request has on its connection.

    Every request gets exactly one last frame: its ANSWER, or an ERROR.
    """

    def __init__(self, send: Callable[[Channel, Frame], None]) -> None:
        self._send = send

    def chunk(self, channel: Channel, number: int, text: str) -> None:
        """Send a piece of a stream, if there is any text in it."""
        if text:
            self._send(channel, Frame(Kind.CHUNK, number, (text.encode(), b"{}")))

    def answer(self, channel: Channel, number: int, parts: tuple[bytes, ...]) -> None:
        self._send(channel, Frame(Kind.ANSWER, number, parts))

    def failure(self, channel: Channel, number: int, error: Exception, request_id: str = "") -> None:
        """Send the error in the form that callers may see; the rest goes to the log."""
        failure = Failure.of(error)
        if failure.code is ErrorCode.INTERNAL:
            log_event(_log, logging.ERROR, "request failed", {"request_id": request_id, **cause_of(error)})
        self._send(channel, Frame(Kind.ERROR, number, (failure.code.value.encode(), failure.text.encode())))
