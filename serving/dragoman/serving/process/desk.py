"""Requests for translations: taken in, handed to the engine, put together, answered."""

from __future__ import annotations

import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import cast

from dragoman.errors import Cancelled, InvalidRequest, Overloaded, RequestError
from dragoman.serving import metrics
from dragoman.serving.engine import Engine, Finished, Progress, Sequence
from dragoman.serving.failures import Failure, outcome_of
from dragoman.serving.link.channel import Channel
from dragoman.serving.link.frames import ARRIVAL_BYTES, NO_DETAILS, Frame, Kind
from dragoman.serving.logs import event as log_event
from dragoman.serving.process.admission import Terms, read_texts
from dragoman.serving.process.answers import Effort, TextAnswer, details, translation_parts
from dragoman.serving.process.jobs import Job, Piece, Stream, TextWork
from dragoman.serving.process.opening import OpenBundle
from dragoman.serving.process.response_cache import ResponseCache
from dragoman.wire import ErrorCode

__all__ = ["TranslationDesk"]

_log = logging.getLogger(__name__)
_MOST_OPEN_BYTES = 64 << 20  # of texts that are not answered yet
Send = Callable[[Channel, Frame], None]


class TranslationDesk:
    """Every request that comes in gets exactly one last answer."""

    def __init__(self, bundle: OpenBundle, recorder: metrics.Recorder, send: Send) -> None:
        self._bundle, self._recorder, self._send = bundle, recorder, send
        self._engine: Engine = bundle.engine
        self._cache = ResponseCache[TextAnswer](bundle.settings.engine.response_cache_bytes)
        self._jobs: dict[tuple[Channel, int], Job] = {}
        self._intake: deque[Job] = deque()
        self._share = bundle.engine.limits.max_rows  # parts of one job that the engine has at a time
        self._open_bytes = 0
        self.pieces_taken = 0

    @property
    def open_jobs(self) -> int:
        return len(self._jobs)

    @property
    def has_intake(self) -> bool:
        return bool(self._intake)

    @property
    def cache_bytes(self) -> int:
        return self._cache.used_bytes

    # What stubs ask.

    def take(self, channel: Channel, frame: Frame) -> None:
        """A TRANSLATE or STREAM frame: check what can be checked at once and put it in line."""
        (arrived_s,) = struct.unpack_from("<d", frame.parts[0])
        try:
            terms = self._bundle.admission.read_options(frame.parts[1])
            texts = read_texts(frame.parts[2:], self._bundle.settings.limits)
            if frame.kind is Kind.STREAM and len(texts) != 1:
                raise InvalidRequest(f"a stream translates one text, not {len(texts)}; send one stream for each")
        except RequestError as error:
            self._refuse(channel, frame.request, error)
            return
        if self._is_probe(terms) and self._engine.busy:
            self._say(channel, frame.request, Failure.overloaded("busy with real requests, which proves as much", 1.0))
            return
        job = Job(channel, frame.request, terms, [TextWork(text) for text in texts], arrived_s)
        if self._open_bytes + job.size_bytes > _MOST_OPEN_BYTES and self._jobs:
            self._refuse(channel, frame.request, Overloaded("too much text is waiting to be translated", 1.0))
            return
        self._open_bytes += job.size_bytes
        job.wants_stream = frame.kind is Kind.STREAM
        job.wants_details = not frame.parts[0].endswith(NO_DETAILS, ARRIVAL_BYTES)
        job.requests = self._requests(job)
        self._jobs[channel, frame.request] = job
        self._intake.append(job)

    def cancel(self, channel: Channel, number: int) -> None:
        """The caller has gone away; the engine drops its work at the next step."""
        if job := self._jobs.get((channel, number)):
            self._fail(job, Cancelled("the caller went away"))

    def forget(self, channel: Channel) -> None:
        """A stub has gone, and all its callers with it."""
        for job in [job for job in self._jobs.values() if job.origin is channel]:
            self._abandon(job)
            self._count(job, "cancelled")

    # What the loop does between steps.

    def take_in(self, budget_s: float) -> None:
        """Tokenise and submit those in line, for about `budget_s`: a book must not hold up the sentence beside it."""
        until_s = time.monotonic() + budget_s
        while self._intake and time.monotonic() < until_s:
            job = self._intake.popleft()
            if job.ended:
                continue
            try:
                self._submit_next(job)
            except Overloaded as error:
                if not job.submitted:
                    self._fail(job, error)
                    continue
                self._intake.append(job)  # admitted already: it goes on when there is room
                return
            except RequestError as error:
                self._fail(job, error)

    def handle(self, happened: Progress | Finished) -> None:
        """What the engine says of one part of a text."""
        sequence = happened.sequence
        job, piece = cast(tuple[Job, Piece], sequence.owner)
        if job.ended:
            return
        if isinstance(happened, Progress):
            self._grow(job, job.stream.decided(piece.part, happened.tokens) if job.stream else "")
        elif sequence.error is not None:
            self._fail(job, sequence.error)
        else:
            self._take_result(job, piece, sequence)

    # How a job goes on.

    def _submit_next(self, job: Job) -> None:
        """Give the engine the job's next part, and the job its next place in line."""
        piece = job.refused or next(job.requests, None)
        if piece is None:
            if job.is_complete:
                self._answer(job)
            return
        job.refused = piece
        self._engine.submit(piece.sequence)
        job.refused = None
        job.submitted += 1
        self.pieces_taken += 1
        job.open.add(piece.sequence)
        job.parked = len(job.open) >= self._share
        if not job.parked:
            self._intake.append(job)  # behind the others: every request gets its turn

    def _requests(self, job: Job) -> Iterator[Piece]:
        """Every part of every text, made when its turn comes; texts that were answered before need none."""
        for work in job.works:
            if (known := self._known(job, work)) is not None:
                now_s = time.monotonic() - job.arrived_s
                work.answer, work.effort = known, Effort(now_s, now_s, now_s, 0, cached=True)
                continue
            document = self._bundle.plan(work.text, job.terms)
            work.plan(document)
            if job.wants_stream:
                job.stream = Stream(document, self._bundle.tokenizer.decode)
            for part, text in enumerate(document.parts):
                sequence = Sequence(
                    tuple(self._bundle.tokenizer.encode(text)),
                    self._bundle.options_for(job.terms, is_first=part == 0),
                    priority=job.terms.priority,
                    deadline_s=job.deadline_s,
                    stream=job.wants_stream,
                    arrived_s=job.arrived_s,
                )
                piece = Piece(sequence, work, part)
                sequence.owner = (job, piece)
                yield piece

    def _known(self, job: Job, work: TextWork) -> TextAnswer | None:
        if not (self._cache.enabled and job.terms.may_be_cached):
            return None
        known = self._cache.get(_key(job, work))
        self._recorder.count(metrics.CACHE_MISSES if known is None else metrics.CACHE_HITS)
        return known

    def _take_result(self, job: Job, piece: Piece, result: Sequence) -> None:
        job.open.discard(result)
        work = piece.work
        self._observe_part(job, result)
        if job.stream is not None:
            self._grow(job, job.stream.finished(piece.part, result.hypotheses[0].tokens))
        if work.take(piece.part, result):
            work.finish(self._bundle.tokenizer.decode)
            self._observe_text(job, work)
            if work.answer is not None and self._cache.enabled and job.terms.may_be_cached:
                self._cache.put(_key(job, work), work.answer, work.answer.size_bytes + 2 * len(work.text))
        if job.is_complete:
            self._answer(job)
        elif job.parked:
            job.parked = False
            self._intake.append(job)

    def _grow(self, job: Job, chunk: str) -> None:
        if chunk:
            self._send(job.origin, Frame(Kind.CHUNK, job.number, (chunk.encode(), b"{}")))

    # How a job ends.

    def _answer(self, job: Job) -> None:
        done = [(work.answer, work.effort) for work in job.works if work.answer and work.effort]
        bundle, request_id = self._bundle, job.terms.request_id
        told = details(bundle.settings.name, bundle.version, request_id, done) if job.wants_details else b""
        if job.wants_stream:
            # What was streamed is complete, unless nothing was because the answer was known already.
            rest = done[0][0].hypotheses[0].text if job.stream is None else ""
            parts: tuple[bytes, ...] = (rest.encode(), told)
        else:
            parts = translation_parts([answer for answer, _ in done], told)
        self._abandon(job)
        self._send(job.origin, Frame(Kind.ANSWER, job.number, parts))
        self._count(job, "ok")

    def _fail(self, job: Job, error: RequestError) -> None:
        failure = Failure.of(error)
        self._abandon(job)
        self._say(job.origin, job.number, failure)
        self._count(job, outcome_of(error))
        if failure.code is ErrorCode.INTERNAL:
            log_event(_log, logging.ERROR, "request failed", {"request_id": job.terms.request_id, "reason": str(error)})

    def _refuse(self, channel: Channel, number: int, error: RequestError) -> None:
        """A request that never became a job."""
        self._say(channel, number, Failure.of(error))
        self._recorder.count(metrics.REQUESTS, label=outcome_of(error))

    def _say(self, channel: Channel, number: int, failure: Failure) -> None:
        self._send(channel, Frame(Kind.ERROR, number, (failure.code.value.encode(), failure.text.encode())))

    def _abandon(self, job: Job) -> None:
        """Nothing of the job is left here or, after the next step, in the engine."""
        job.ended = True
        self._open_bytes -= job.size_bytes
        self._jobs.pop((job.origin, job.number), None)
        for sequence in job.open:
            self._engine.cancel(sequence)
        job.open.clear()

    def _observe_part(self, job: Job, result: Sequence) -> None:
        if self._is_probe(job.terms):
            return
        self._recorder.count(metrics.SOURCE_TOKENS, result.source_tokens)
        self._recorder.count(metrics.TARGET_TOKENS, sum(len(said.tokens) for said in result.hypotheses))
        timings, tokens = result.timings, len(result.hypotheses[0].tokens)
        if tokens > 1 and timings.first_token_s is not None:
            self._recorder.observe(metrics.TOKEN_SECONDS, (timings.total_s - timings.first_token_s) / (tokens - 1))

    def _observe_text(self, job: Job, work: TextWork) -> None:
        """The very figures of DETAILS: a long text waits once, not once for each of its sentences."""
        if work.effort is not None and not self._is_probe(job.terms):
            self._recorder.observe(metrics.QUEUE_SECONDS, work.effort.queue_s)
            self._recorder.observe(metrics.FIRST_TOKEN_SECONDS, work.effort.first_token_s)

    def _count(self, job: Job, outcome: str) -> None:
        if self._is_probe(job.terms):
            return
        total_s = time.monotonic() - job.arrived_s
        self._recorder.count(metrics.REQUESTS, label=outcome)
        self._recorder.observe(metrics.REQUEST_SECONDS, total_s)
        if outcome == "ok":
            self._recorder.count(metrics.TEXTS, len(job.works))
        if outcome == "overloaded":
            self._recorder.count(metrics.REFUSALS)
        if self._bundle.settings.log_requests:
            fields = {"request_id": job.terms.request_id, "outcome": outcome, "texts": len(job.works)}
            log_event(_log, logging.INFO, "request", {**fields, "total_ms": round(total_s * 1000, 2)})

    def _is_probe(self, terms: Terms) -> bool:
        return terms.request_id == self._bundle.settings.probe_id


def _key(job: Job, work: TextWork) -> tuple[object, ...]:
    """Everything that changes the answer; the bundle is the same for as long as this process lives."""
    return work.text, job.terms.decoding, job.terms.prefix_text, job.terms.long_input
