"""Requests for translations: admitted, split into parts, decoded by the engine, joined and answered."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from dragoman.errors import Cancelled, DeadlineExceeded, Overloaded, ServeError
from dragoman.serving.engine import Finished, Progress, Sequence, Timings
from dragoman.serving.failures import outcome_of
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, read_arrival
from dragoman.serving.metrics import CACHE_HITS, CACHE_MISSES, Recorder
from dragoman.serving.process.answers import Replies, TextAnswer, details, translation_parts
from dragoman.serving.process.fair_share import FairShare
from dragoman.serving.process.job_queue import Job, JobQueue, Yield
from dragoman.serving.process.loaded_bundle import LoadedBundle
from dragoman.serving.process.part_sequences import PartSequences
from dragoman.serving.process.request_admission import (
    BYTES_PER_STEP,
    ProbeNotNeeded,
    RequestAdmission,
    check_answer_size,
    read_text,
)
from dragoman.serving.process.request_metrics import RequestMetrics
from dragoman.serving.process.requests import PartOwner, TextState, TranslationRequest
from dragoman.serving.process.response_cache import ResponseCache

__all__ = ["RequestHandler"]

_RESUMED_PER_TURN = 32
_LONG_CHARACTERS = 1 << 14
"""Of all hypotheses of a text: joining them takes so long that it is done between decoder steps."""


class RequestHandler:
    """Every request gets exactly one final answer, whatever error handling it raises."""

    def __init__(self, bundle: LoadedBundle, recorder: Recorder, replies: Replies, jobs: JobQueue) -> None:
        self._bundle, self._recorder, self._replies, self._jobs = bundle, recorder, replies, jobs
        self._engine = bundle.engine
        self._metrics = RequestMetrics(recorder, bundle.settings, bundle.stand_ins, bundle.engine.words)
        self._cache = ResponseCache[TextAnswer](bundle.settings.engine.response_cache_bytes)
        self._admission = RequestAdmission(bundle, self._cache, self._metrics, jobs)
        self._parts = PartSequences(bundle, recorder)
        self._share = FairShare(bundle.engine.limits)
        self._requests: dict[tuple[Channel, int], TranslationRequest] = {}
        self._parked: dict[TranslationRequest, None] = {}  # they hold their share of the engine; the longest parked first

    @property
    def open_requests(self) -> int:
        return len(self._requests)

    @property
    def planned_characters(self) -> int:
        """The characters of texts that are split but not translated yet."""
        return self._share.planned_characters

    @property
    def cache_bytes(self) -> int:
        return self._cache.used_bytes

    # Requests of the Triton backend.

    def queue_room(self) -> tuple[int, float]:
        """How many more requests can be read now, and the seconds after which a refused caller may retry."""
        return self._admission.queue_room()

    def count_refused(self, count: int) -> None:
        """Requests that the Triton backend refused by itself."""
        self._metrics.refused("overloaded", count)

    def translate(self, channel: Channel, frame: Frame) -> None:
        """A TRANSLATE, STREAM or SCORE frame: do the cheap checks, and queue it."""
        arrived_s, wants_details = read_arrival(frame)
        if (channel, frame.request) in self._requests:
            raise ServeError(f"request number {frame.request} is in use on this connection")
        try:
            request = self._admission.admit(channel, frame, arrived_s, wants_details)
        except Exception as error:
            self._refuse(channel, frame.request, error)
            return
        steps = self._steps(request) if request.deadline_s is None else self._steps_in_time(request, request.deadline_s)
        request.job = Job(steps, lambda error: self._fail(request, error))
        self._requests[channel, frame.request] = request
        self._jobs.add(request.job)

    def cancel(self, channel: Channel, number: int) -> None:
        """The caller has gone away; the engine drops its work at the next step."""
        if request := self._requests.get((channel, number)):
            self._fail(request, Cancelled("the caller went away"))

    def forget(self, channel: Channel) -> None:
        """A connection was closed: drop the requests of all its callers."""
        for request in [request for request in self._requests.values() if request.channel is channel]:
            self._end(request)
            self._metrics.ended(request, "cancelled")

    # What a request does between decoder steps.

    def _steps_in_time(self, request: TranslationRequest, deadline_s: float) -> Iterator[Yield]:
        """Check the deadline until the engine has the request, which checks it from then on."""
        for step in self._steps(request):
            yield step
            if time.monotonic() >= deadline_s:
                raise DeadlineExceeded("the time the caller gave has passed")

    def _steps(self, request: TranslationRequest) -> Iterator[Yield]:
        """Read the texts, split them and submit their parts, in small steps."""
        size, count = 0, len(request.raw_texts)
        for number, raw in enumerate(request.raw_texts):
            if (size := size + len(raw)) > BYTES_PER_STEP and number:
                size = 0
                yield Yield.PAUSE
            target = None
            if request.raw_targets:
                target = read_text(request.raw_targets[number], number, count, "target")
                size += len(request.raw_targets[number])
            request.texts.append(TextState(read_text(raw, number, count), target))
        for text in request.texts:
            if self._answer_from_cache(request, text):
                continue
            while not self._share.may_plan(len(text.text)):
                self._parked[request] = None
                yield Yield.PARK
            self._share.note_planned(request, len(text.text))
            for _ in self._parts.plan(request, text):
                yield Yield.PAUSE
            if text.is_complete:  # nothing in it is to be translated
                request.stream = None
                self._take_answer(request, text)
            for position, part in enumerate(text.document.parts):
                if request.submitted:
                    yield Yield.PAUSE  # behind the others
                sequence = self._parts.make(PartOwner(request, text, position), part)
                while not self._try_submit(request, sequence):
                    self._parked[request] = None
                    yield Yield.PARK

    def _try_submit(self, request: TranslationRequest, sequence: Sequence) -> bool:
        if not self._share.has_room_for(request):
            return False
        try:
            self._engine.submit(sequence)
        except Overloaded:
            if not request.submitted:
                raise
            return False  # admitted already: it goes on when there is room
        request.submitted += 1
        self._admission.note_queued(request)
        self._share.take(request, sequence)
        return True

    def _answer_from_cache(self, request: TranslationRequest, text: TextState) -> bool:
        if not (self._cache.enabled and request.options.may_be_cached):
            return False
        answer = self._cache.get(request.options.cache_key(text.text))
        self._recorder.count(CACHE_MISSES if answer is None else CACHE_HITS)
        if answer is None:
            return False
        took_s = time.monotonic() - request.arrived_s
        text.answer, text.cached, text.timings = answer, True, Timings(took_s, took_s, took_s, 0)
        self._text_is_done(request, answer)
        return True

    def resume_parked(self) -> None:
        """After a step of the engine: resume requests that may now hold more of it."""
        for request in list(itertools.islice(self._parked, _RESUMED_PER_TURN)):
            del self._parked[request]
            if request.job is not None and self._share.has_room_for(request):
                self._jobs.add(request.job)
            else:
                self._parked[request] = None  # behind the others

    # What the engine reports.

    def handle(self, event: Progress | Finished) -> None:
        """Handle an event of the engine about a part of a text."""
        part = event.sequence.owner
        if not isinstance(part, PartOwner):
            return  # not ours
        request = part.request
        try:
            if isinstance(event, Finished):
                self._share.release(request, event.sequence)
                self._take_result(part, event.sequence)
            elif request.stream is not None and not request.ended:
                self._replies.chunk(request.channel, request.number, request.stream.decided(part.position, event.tokens))
        except Exception as error:
            self._fail(request, error)

    def _take_result(self, part: PartOwner, sequence: Sequence) -> None:
        request, text = part.request, part.text
        if request.ended:
            return
        if sequence.error is not None:  # if it was raised here, its traceback refers to the sequence
            self._fail(request, sequence.error)
            return
        if text.target is not None:
            self._parts.score(part, sequence)
        self._metrics.part_done(request, sequence)
        if request.options.on_suspicion == "retry" and self._is_translated_again(part, sequence):
            return
        steps = self._taken(part, sequence)
        if next(steps, None) is not None:  # several hypotheses to be linked, or long ones to be joined
            self._jobs.add(Job(steps, lambda error: self._fail(request, error)))

    def _taken(self, part: PartOwner, sequence: Sequence) -> Iterator[Yield]:
        """A part is done, and its text if it was the last one."""
        request, text = part.request, part.text
        best = yield from self._parts.take(part, sequence)
        if request.ended:
            return
        if request.stream is not None:
            self._replies.chunk(request.channel, request.number, request.stream.finished(part.position, best))
        if not text.is_complete:
            return
        if len(text.text) * request.options.decoding.num_hypotheses > _LONG_CHARACTERS:
            yield Yield.PAUSE  # many may be complete after one decoder step
        self._take_answer(request, text)

    def _is_translated_again(self, part: PartOwner, sequence: Sequence) -> bool:
        """Submit a suspicious sentence again, in the place that its first translation has just left."""
        if (again := self._parts.again(part, sequence)) is None:
            return False
        try:
            self._engine.submit(again)
        except Overloaded:
            return False  # the first translation has to do
        self._share.take(part.request, again)
        return True

    def _take_answer(self, request: TranslationRequest, text: TextState) -> None:
        """All parts of a text are done."""
        if request.ended:
            return  # while this one waited
        answer = text.finish(request.arrived_s)
        self._share.note_planned(request, -len(text.text))
        self._metrics.text_done(request, text)
        if self._cache.enabled and request.options.may_be_cached:
            self._cache.put(request.options.cache_key(text.text), answer, answer.size_bytes + 2 * len(text.text))
        self._text_is_done(request, answer)

    # How a request ends.

    def _text_is_done(self, request: TranslationRequest, answer: TextAnswer) -> None:
        request.answer_characters += answer.written_characters
        check_answer_size(request.answer_characters, self._bundle.settings.limits)
        request.unanswered -= 1
        if request.unanswered == 0:
            self._answer(request)

    def _answer(self, request: TranslationRequest) -> None:
        done = [(text.answer, text.timings, text.cached) for text in request.texts if text.answer and text.timings]
        bundle, request_id = self._bundle, request.request_id
        told = details(bundle.settings.name, bundle.version, request_id, done) if request.wants_details else b""
        if request.wants_stream:
            # What was streamed is complete, unless nothing was because the answer was known already.
            rest = done[0][0].hypotheses[0].text if request.stream is None else ""
            parts: tuple[bytes, ...] = (rest.encode(), told)
        else:
            parts = translation_parts([answer for answer, _, _ in done], told)
        self._replies.answer(request.channel, request.number, parts)
        self._end(request)
        self._metrics.ended(request, "ok")

    def _fail(self, request: TranslationRequest, error: Exception) -> None:
        if request.ended:
            return
        self._end(request)
        self._replies.failure(request.channel, request.number, error, request.request_id)
        self._metrics.ended(request, outcome_of(error))

    def _refuse(self, channel: Channel, number: int, error: Exception) -> None:
        """A request that was never admitted."""
        self._replies.failure(channel, number, error)
        if not isinstance(error, ProbeNotNeeded):
            self._metrics.refused(outcome_of(error))

    def _end(self, request: TranslationRequest) -> None:
        """Release everything that belongs to the request here and, at the next step, in the engine."""
        request.ended = True
        self._admission.release(request)
        self._requests.pop((request.channel, request.number), None)
        self._parked.pop(request, None)
        if request.job is not None:
            request.job.cancelled = True
            request.job = None  # it refers to the request: a cycle, and no collector runs
        request.waiting.clear()
        for sequence in self._share.release_all(request):
            self._engine.cancel(sequence)
