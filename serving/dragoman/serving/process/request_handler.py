"""Requests for translations: validated, split into parts, handed to the engine, put together, answered."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import time
from collections.abc import Callable, Iterator

from dragoman.errors import Cancelled, InvalidRequest, Overloaded, ServeError
from dragoman.search import DecodingOptions
from dragoman.serving.engine import Engine, Finished, Forcing, Progress, Sequence, Timings
from dragoman.serving.failures import Failure, cause_of, outcome_of
from dragoman.serving.link.channel import Channel
from dragoman.serving.link.frames import Frame, Kind
from dragoman.serving.logs import event as log_event
from dragoman.serving.metrics import CACHE_HITS, CACHE_MISSES, Recorder
from dragoman.serving.process.answers import TextAnswer, details, translation_parts
from dragoman.serving.process.arrivals import read_arrival, targets_behind
from dragoman.serving.process.fair_share import FairShare
from dragoman.serving.process.loaded_bundle import LoadedBundle
from dragoman.serving.process.omission_guard import OmissionGuard
from dragoman.serving.process.options import RequestOptions
from dragoman.serving.process.part_links import part_links
from dragoman.serving.process.request_metrics import RequestMetrics
from dragoman.serving.process.requests import PartOwner, TextState, TranslationRequest
from dragoman.serving.process.response_cache import ResponseCache
from dragoman.serving.process.scoring import Scoring, options_of_scores
from dragoman.serving.process.task_queue import Task, TaskQueue, Yield
from dragoman.serving.text.document import Part
from dragoman.serving.text.links import Link
from dragoman.serving.text.reading import check_sizes, read_text
from dragoman.serving.text.stream import TextStream
from dragoman.wire import ErrorCode

__all__ = ["RequestHandler"]

_log = logging.getLogger(__name__)
_MAX_OPEN_BYTES = 64 << 20
"""Of texts that are not answered yet."""
_BYTES_PER_STEP = 4096
"""Texts that are read between two pauses."""
_RESUMED_PER_TURN = 32
_LOOKUPS = 4
"""Requests that are read although the queue is full, because the response cache may have their answers."""

Send = Callable[[Channel, Frame], None]


class _ProbeNotNeeded(Overloaded):
    """The answer to the supervisor's ping: the engine works."""


class RequestHandler:
    """Every request gets exactly one last answer, whatever handling it raises."""

    def __init__(self, bundle: LoadedBundle, recorder: Recorder, send: Send, tasks: TaskQueue) -> None:
        self._bundle, self._recorder, self._send, self._tasks = bundle, recorder, send, tasks
        self._engine: Engine = bundle.engine
        self._metrics = RequestMetrics(recorder, bundle.settings, bundle.stand_ins)
        self._cache = ResponseCache[TextAnswer](bundle.settings.engine.response_cache_bytes)
        self._scoring = Scoring(bundle)
        self._guard = OmissionGuard(bundle.ends, bundle.widest_beam, recorder)
        self._share = FairShare(bundle.engine.limits)
        self._requests: dict[tuple[Channel, int], TranslationRequest] = {}
        self._parked: dict[TranslationRequest, None] = {}  # they have their share; the longest parked first
        self._open_bytes = 0
        self._entering: set[TranslationRequest] = set()  # they will take a place in the engine's queue

    @property
    def open_requests(self) -> int:
        return len(self._requests)

    @property
    def cache_bytes(self) -> int:
        return self._cache.used_bytes

    # Requests of the Triton backend.

    def queue_room(self) -> tuple[int, float]:
        """How many more requests can be read now, and the seconds after which others may come."""
        places, retry_after_s = self._engine.queue_room(len(self._entering))
        return (places or (_LOOKUPS if len(self._cache) else 0)), retry_after_s

    def count_refused(self, count: int) -> None:
        """Requests that the Triton backend refused by itself."""
        self._metrics.refused("overloaded", count)

    def translate(self, channel: Channel, frame: Frame) -> None:
        """A TRANSLATE, STREAM or SCORE frame: check what costs nothing to check, and put it in line."""
        arrived_s, wants_details = read_arrival(frame)
        if (channel, frame.request) in self._requests:
            raise ServeError(f"request number {frame.request} is in use on this connection")
        try:
            request = self._admit(channel, frame, arrived_s)
        except Exception as error:
            self._refuse(channel, frame.request, error)
            return
        request.wants_details = wants_details
        request.task = Task(self._steps(request), lambda error: self._fail(request, error))
        self._entering.add(request)
        self._open_bytes += request.size_bytes
        self._requests[channel, frame.request] = request
        self._tasks.add(request.task)

    def cancel(self, channel: Channel, number: int) -> None:
        """The caller has gone away; the engine drops its work at the next step."""
        if request := self._requests.get((channel, number)):
            self._fail(request, Cancelled("the caller went away"))

    def forget(self, channel: Channel) -> None:
        """A connection has gone, and all its callers with it."""
        for request in [request for request in self._requests.values() if request.channel is channel]:
            self._end(request)
            self._metrics.ended(request, "cancelled")

    def _admit(self, channel: Channel, frame: Frame, arrived_s: float) -> TranslationRequest:
        options = self._bundle.options.read(frame.parts[1])
        limits = self._bundle.settings.limits
        texts, targets = frame.parts[2:], tuple[bytes, ...]()
        if frame.kind is Kind.SCORE:
            texts, targets, options = *targets_behind(texts), options_of_scores(options)
            check_sizes(targets, limits, "target")
        check_sizes(texts, limits)
        is_stream = frame.kind is Kind.STREAM
        if is_stream and len(texts) != 1:
            raise InvalidRequest(f"a stream translates one text, not {len(texts)}; send one stream for each")
        request = TranslationRequest(channel, frame.request, options, texts, arrived_s, is_stream, raw_targets=targets)
        if self._metrics.is_probe(options) and self._engine.busy:
            raise _ProbeNotNeeded("busy with real requests, which proves as much", 1.0)
        if self._open_bytes + request.size_bytes > _MAX_OPEN_BYTES and self._requests:
            raise Overloaded("too much text is waiting to be translated", 1.0)
        try:
            self._engine.check_queue(len(self._entering))  # a refusal must cost less than an answer
        except Overloaded:
            if not self._is_in_cache(request):
                raise
        request.unanswered = len(texts)
        return request

    def _is_in_cache(self, request: TranslationRequest) -> bool:
        """Whether a single short text can be answered without the engine: such a request needs no room in its queue."""
        options, texts = request.options, request.raw_texts
        if not (self._cache.enabled and options.may_be_cached) or len(texts) > 1 or len(texts[0]) > _BYTES_PER_STEP:
            return False
        return options.cache_key(read_text(texts[0], 0, 1)) in self._cache

    # What a request does between decoder steps.

    def _steps(self, request: TranslationRequest) -> Iterator[Yield]:
        """Read the texts, split them and submit their parts, in small steps."""
        size, count = 0, len(request.raw_texts)
        for number, raw in enumerate(request.raw_texts):
            if (size := size + len(raw)) > _BYTES_PER_STEP and number:
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
            for _ in self._plan(request, text):
                yield Yield.PAUSE
            if text.is_complete:  # nothing in it is to be translated
                request.stream = None
                self._take_answer(request, text)
            for position, part in enumerate(text.document.parts):
                if request.submitted:
                    yield Yield.PAUSE  # behind the others
                sequence = self._sequence(request, PartOwner(request, text, position), part)
                while not self._try_submit(request, sequence):
                    self._parked[request] = None
                    yield Yield.PARK

    def _plan(self, request: TranslationRequest, text: TextState) -> Iterator[None]:
        if text.target is not None:
            document = self._scoring.plan(text.text, text.target, request.options)
        else:
            document = yield from self._bundle.plan(text.text, request.options)
        text.plan(document, request.options.decoding.num_hypotheses)
        if request.wants_stream:
            request.stream = TextStream(document, self._bundle.tokenizer.decode)

    def _sequence(self, request: TranslationRequest, owner: PartOwner, part: Part) -> Sequence:
        options = request.options
        source = self._bundle.source(owner.text.document, part, options)
        forcing: Forcing | None = None
        if owner.text.target is not None:
            decoding, forcing = self._scoring.forcing(owner.text.target, _target_name(owner), options)
        else:
            decoding = part.options(self._decoding(request, owner.position))
            decoding = self._guard.bounded(options, decoding, len(source))
            if options.alignment or part.needs_links or self._measures_coverage(options):
                forcing = Forcing()
        return Sequence(
            source,
            decoding,
            priority=options.priority,
            deadline_s=request.deadline_s,
            stream=request.wants_stream and options.on_suspicion != "retry",  # what was sent can't be taken back
            arrived_s=request.arrived_s,
            owner=owner,
            forcing=forcing,
        )

    def _measures_coverage(self, options: RequestOptions) -> bool:
        return options.on_suspicion != "ignore" and self._engine.can_force

    def _decoding(self, request: TranslationRequest, position: int) -> DecodingOptions:
        """`prefix` and `prefix_text` force the beginning of each text's first part."""
        options = request.options
        decoding = options.decoding
        if not (decoding.prefix or options.prefix_text):
            return decoding
        if request.decoding is None:
            forced = tuple(self._bundle.tokenizer.encode_target(options.prefix_text)) if options.prefix_text else ()
            first = dataclasses.replace(decoding, prefix=(*decoding.prefix, *forced))
            request.decoding = first, dataclasses.replace(decoding, prefix=())
        return request.decoding[position > 0]

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
        self._entering.discard(request)
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
        self._text_is_done(request)
        return True

    def resume_parked(self) -> None:
        """After a step of the engine: requests that may hold more of it go on."""
        for request in list(itertools.islice(self._parked, _RESUMED_PER_TURN)):
            del self._parked[request]
            if request.task is not None and self._share.has_room_for(request):
                self._tasks.add(request.task)
            else:
                self._parked[request] = None  # behind the others

    # What the engine reports.

    def handle(self, event: Progress | Finished) -> None:
        """Something has happened to a part of a text."""
        part = event.sequence.owner
        if not isinstance(part, PartOwner):
            return  # not ours
        request = part.request
        try:
            if isinstance(event, Finished):
                self._share.release(request, event.sequence)
                self._take_result(part, event.sequence)
            elif request.stream is not None and not request.ended:
                self._send_chunk(request, request.stream.decided(part.position, event.tokens))
        except Exception as error:
            self._fail(request, error)

    def _take_result(self, part: PartOwner, sequence: Sequence) -> None:
        request, text, position, _ = part
        if request.ended:
            return
        if sequence.error is not None:
            raise sequence.error
        if text.target is not None:
            text.scored_tokens = self._scoring.take(sequence, _target_name(part))
        self._metrics.part_done(request, sequence)
        check = None
        if request.options.on_suspicion != "ignore":
            if self._is_translated_again(part, sequence):
                return
            sequence, check = self._guard.chosen(part, sequence)
        links: tuple[tuple[Link, ...], ...] = ()
        if sequence.forced and (request.options.alignment or text.document.parts[position].needs_links):
            tokens = request.options.language_tokens
            links = part_links(self._bundle.tokenizer, tokens, text.document, position, sequence)
        best = text.take(position, sequence, self._bundle.tokenizer.decode, check, links)
        if request.stream is not None:
            self._send_chunk(request, request.stream.finished(position, best))
        if text.is_complete:
            self._take_answer(request, text)

    def _is_translated_again(self, part: PartOwner, sequence: Sequence) -> bool:
        """A suspicious sentence goes to the engine once more, in the place that it has just left."""
        if (again := self._guard.again(part, sequence)) is None:
            return False
        try:
            self._engine.submit(again)
        except Overloaded:
            return False  # what there is must do
        self._share.take(part.request, again)
        return True

    def _take_answer(self, request: TranslationRequest, text: TextState) -> None:
        """All parts of a text are back."""
        answer = text.finish(request.arrived_s)
        self._metrics.text_done(request, text)
        if self._cache.enabled and request.options.may_be_cached:
            self._cache.put(request.options.cache_key(text.text), answer, answer.size_bytes + 2 * len(text.text))
        self._text_is_done(request)

    def _send_chunk(self, request: TranslationRequest, chunk: str) -> None:
        if chunk:
            self._send(request.channel, Frame(Kind.CHUNK, request.number, (chunk.encode(), b"{}")))

    # How a request ends.

    def _text_is_done(self, request: TranslationRequest) -> None:
        request.unanswered -= 1
        if request.unanswered == 0:
            self._answer(request)

    def _answer(self, request: TranslationRequest) -> None:
        done = [(text.answer, text.timings, text.cached) for text in request.texts if text.answer and text.timings]
        bundle, request_id = self._bundle, request.options.request_id
        told = details(bundle.settings.name, bundle.version, request_id, done) if request.wants_details else b""
        if request.wants_stream:
            # What was streamed is complete, unless nothing was because the answer was known already.
            rest = done[0][0].hypotheses[0].text if request.stream is None else ""
            parts: tuple[bytes, ...] = (rest.encode(), told)
        else:
            parts = translation_parts([answer for answer, _, _ in done], told)
        self._send(request.channel, Frame(Kind.ANSWER, request.number, parts))
        self._end(request)
        self._metrics.ended(request, "ok")

    def _fail(self, request: TranslationRequest, error: Exception) -> None:
        if request.ended:
            return
        self._end(request)
        self._send_failure(request.channel, request.number, error, request.options.request_id)
        self._metrics.ended(request, outcome_of(error))

    def _refuse(self, channel: Channel, number: int, error: Exception) -> None:
        """A request that was never admitted."""
        self._send_failure(channel, number, error, "")
        if not isinstance(error, _ProbeNotNeeded):
            self._metrics.refused(outcome_of(error))

    def _send_failure(self, channel: Channel, number: int, error: Exception, request_id: str) -> None:
        failure = Failure.of(error)
        if failure.code is ErrorCode.INTERNAL:
            log_event(_log, logging.ERROR, "request failed", {"request_id": request_id, **cause_of(error)})
        self._send(channel, Frame(Kind.ERROR, number, (failure.code.value.encode(), failure.text.encode())))

    def _end(self, request: TranslationRequest) -> None:
        """Nothing of the request is left here or, after the next step, in the engine."""
        request.ended = True
        self._open_bytes -= request.size_bytes
        self._requests.pop((request.channel, request.number), None)
        self._parked.pop(request, None)
        self._entering.discard(request)
        if request.task is not None:
            request.task.cancelled = True
        for sequence in list(request.sequences):
            self._share.release(request, sequence)
            self._engine.cancel(sequence)


def _target_name(owner: PartOwner) -> str:
    """Which target of its request it is, for errors."""
    texts = owner.request.texts
    return f"target {texts.index(owner.text)}" if len(texts) > 1 else "the target"
