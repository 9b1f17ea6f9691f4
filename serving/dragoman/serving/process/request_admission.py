"""What a request must pass before anything is done for it: its options and sizes, and the room that there is for it."""

from __future__ import annotations

from dragoman.errors import InvalidRequest, Overloaded
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind, targets_behind
from dragoman.serving.process.answers import TextAnswer
from dragoman.serving.process.loaded_bundle import LoadedBundle
from dragoman.serving.process.request_metrics import RequestMetrics
from dragoman.serving.process.requests import TranslationRequest
from dragoman.serving.process.response_cache import ResponseCache
from dragoman.serving.process.scoring import options_of_scores
from dragoman.serving.text.reading import check_answer_size, check_sizes, read_text

__all__ = ["BYTES_PER_STEP", "ProbeNotNeeded", "RequestAdmission"]

BYTES_PER_STEP = 4096
"""Of texts that are read between two pauses."""
_MAX_OPEN_BYTES = 16 << 20
"""Of texts that are not answered yet; read, a text may take four times as much again."""
_LOOKUPS = 4
"""Requests that are read although the queue is full, because the response cache may have their answers."""


class ProbeNotNeeded(Overloaded):
    """The answer to the supervisor's ping: the engine works."""


class RequestAdmission:
    """Knows what is open, and which of it has no place in the engine's queue yet."""

    def __init__(self, bundle: LoadedBundle, cache: ResponseCache[TextAnswer], metrics: RequestMetrics) -> None:
        self._bundle, self._engine, self._cache, self._metrics = bundle, bundle.engine, cache, metrics
        self._limits = bundle.settings.limits
        self._open: set[TranslationRequest] = set()
        self._open_bytes = 0
        self._entering: set[TranslationRequest] = set()  # they will take a place in the engine's queue

    def queue_room(self) -> tuple[int, float]:
        """How many more requests can be read now, and the seconds after which others may come."""
        places, retry_after_s = self._engine.queue_room(len(self._entering))
        return (places or (_LOOKUPS if len(self._cache) else 0)), retry_after_s

    def admit(self, channel: Channel, frame: Frame, arrived_s: float, wants_details: bool) -> TranslationRequest:
        """The request in a TRANSLATE, STREAM or SCORE frame, when it can be met and there is room for it."""
        options = self._bundle.options.read(frame.parts[1])
        texts, targets = frame.parts[2:], tuple[bytes, ...]()
        if frame.kind is Kind.SCORE:
            texts, targets, options = *targets_behind(texts), options_of_scores(options)
            check_sizes(targets, self._limits, "target")
        check_sizes(texts, self._limits)
        is_stream = frame.kind is Kind.STREAM
        if is_stream and len(texts) != 1:
            raise InvalidRequest(f"a stream translates one text, not {len(texts)}; send one stream for each")
        check_answer_size(sum(map(len, texts)) * options.decoding.num_hypotheses, self._limits)
        request_id = options.request_id or self._bundle.options.new_request_id()
        request = TranslationRequest(
            *(channel, frame.request, options, texts, arrived_s, is_stream, wants_details),
            raw_targets=targets,
            request_id=request_id,
        )
        request.unanswered = len(texts)
        self._check_room(request)
        self._open.add(request)
        self._open_bytes += request.size_bytes
        self._entering.add(request)
        return request

    def note_queued(self, request: TranslationRequest) -> None:
        """The request has its place in the engine's queue."""
        self._entering.discard(request)

    def release(self, request: TranslationRequest) -> None:
        """The request has ended."""
        self._entering.discard(request)
        if request in self._open:
            self._open.remove(request)
            self._open_bytes -= request.size_bytes

    def _check_room(self, request: TranslationRequest) -> None:
        if self._metrics.is_probe(request.options) and self._engine.busy:
            raise ProbeNotNeeded("busy with real requests, which proves as much", 1.0)
        is_long = request.size_bytes > BYTES_PER_STEP  # short ones are few enough: they need a place in the queue
        if is_long and self._open_bytes + request.size_bytes > _MAX_OPEN_BYTES and self._open:
            raise Overloaded("too much text is waiting to be translated", 1.0)
        try:
            self._engine.check_queue(len(self._entering))  # a refusal must cost less than an answer
        except Overloaded:
            if not self._is_in_cache(request):
                raise

    def _is_in_cache(self, request: TranslationRequest) -> bool:
        """Whether a single short text can be answered without the engine: such a request needs no room in its queue."""
        options, texts = request.options, request.raw_texts
        if not (self._cache.enabled and options.may_be_cached) or len(texts) > 1 or len(texts[0]) > BYTES_PER_STEP:
            return False
        return options.cache_key(read_text(texts[0], 0, 1)) in self._cache
