"""The checks before any work is done for a request: its options, its sizes, and whether there is room for it."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.errors import InvalidRequest, Overloaded
from dragoman.search.option_types import check_text
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind, targets_behind
from dragoman.serving.process.answers import TextAnswer
from dragoman.serving.process.job_queue import JobQueue
from dragoman.serving.process.loaded_bundle import LoadedBundle
from dragoman.serving.process.request_metrics import RequestMetrics
from dragoman.serving.process.requests import TranslationRequest
from dragoman.serving.process.response_cache import ResponseCache
from dragoman.serving.process.scoring import options_of_scores
from dragoman.wire import Limits

__all__ = [
    "BYTES_PER_STEP",
    "ProbeNotNeeded",
    "RequestAdmission",
    "check_answer_size",
    "check_hypotheses_size",
    "check_sizes",
    "read_text",
]

BYTES_PER_STEP = 4096
"""Bytes of texts that are read between two pauses."""
_MAX_OPEN_BYTES = 16 << 20
"""The limit of all texts that are not answered yet; a decoded text may take four times as much again."""
_LOOKUPS = 4
"""Requests that are read although the queue is full, because the response cache may have their answers."""


class ProbeNotNeeded(Overloaded):
    """Refuses the supervisor's probe while real requests are in progress, which prove as much."""


class RequestAdmission:
    """Knows the open requests, and which of them are not in the engine's queue yet."""

    def __init__(
        self, bundle: LoadedBundle, cache: ResponseCache[TextAnswer], metrics: RequestMetrics, jobs: JobQueue
    ) -> None:
        self._jobs = jobs
        self._bundle, self._engine, self._cache, self._metrics = bundle, bundle.engine, cache, metrics
        self._limits = bundle.settings.limits
        self._open: set[TranslationRequest] = set()
        self._open_bytes = 0
        self._entering: set[TranslationRequest] = set()  # they will take a place in the engine's queue

    def queue_room(self) -> tuple[int, float]:
        """How many more requests can be read now, and the seconds after which a refused caller may retry."""
        places, retry_after_s = self._engine.queue_room(len(self._entering))
        return (places or (_LOOKUPS if len(self._cache) else 0)), retry_after_s

    def admit(self, channel: Channel, frame: Frame, arrived_s: float, wants_details: bool) -> TranslationRequest:
        """The request in a TRANSLATE, STREAM or SCORE frame, if it is valid and there is room for it."""
        options = self._bundle.options.read(frame.parts[1])
        texts, targets = frame.parts[2:], tuple[bytes, ...]()
        if frame.kind is Kind.SCORE:
            texts, targets, options = *targets_behind(texts), options_of_scores(options)
            check_sizes(targets, self._limits, "target")
        check_sizes(texts, self._limits)
        is_stream = frame.kind is Kind.STREAM
        if is_stream and len(texts) != 1:
            raise InvalidRequest(f"a stream translates one text, not {len(texts)}; send one stream for each")
        check_hypotheses_size(sum(map(len, texts)), options.decoding.num_hypotheses, self._limits)
        request_id = options.request_id or self._bundle.options.new_request_id()
        request = TranslationRequest(
            *(channel, frame.request, options, texts, arrived_s, is_stream, wants_details),
            raw_targets=targets,
            request_id=request_id,
            is_probe=self._metrics.is_probe(options),
        )
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
        if request.is_probe and (self._engine.busy or len(self._jobs)):
            raise ProbeNotNeeded("busy with real requests, which proves as much", 1.0)
        is_long = request.size_bytes > BYTES_PER_STEP  # short ones are limited by the queue
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


def check_sizes(raw: Sequence[bytes], limits: Limits, noun: str = "text") -> None:
    """InvalidRequest for too many texts or too many bytes; reads none of the bytes. `noun` is what they are called."""
    if not raw:
        raise InvalidRequest(f"{noun.upper()} is empty: send at least one {noun}")
    if len(raw) > limits.max_texts:
        raise InvalidRequest(f"{len(raw)} {noun}s are too many; this server takes {limits.max_texts}: send several requests")
    for number, each in enumerate(raw):
        if len(each) > limits.max_text_bytes:
            raise InvalidRequest(
                f"{_which(number, len(raw), noun)} has {len(each)} bytes; this server takes {limits.max_text_bytes}: "
                "send it in pieces"
            )
    if (together := sum(map(len, raw))) > limits.max_request_bytes:
        raise InvalidRequest(f"the {noun}s have {together} bytes; this server takes {limits.max_request_bytes} in a request")


def check_hypotheses_size(size_bytes: int, hypotheses: int, limits: Limits) -> None:
    """InvalidRequest when texts of so many bytes, once for each hypothesis, are more than a request may have.

    An answer of tens of megabytes is copied several times on its way through Triton, and the tokens of others wait for it.
    """
    if size_bytes * hypotheses > limits.max_request_bytes:
        raise InvalidRequest(
            f"{hypotheses} hypotheses of {size_bytes} bytes of text are too much for one answer "
            f"({limits.max_request_bytes} bytes); send fewer texts at a time, or ask for fewer hypotheses"
        )


def check_answer_size(size_bytes: int, limits: Limits) -> None:
    """InvalidRequest for an answer of so many bytes: the text between sentences is part of every hypothesis."""
    if size_bytes > limits.max_answer_bytes:
        raise InvalidRequest(
            f"the answer would have more than {limits.max_answer_bytes} bytes; send fewer texts at a time, or ask for fewer "
            "hypotheses"
        )


def read_text(raw: bytes, number: int, count: int, noun: str = "text") -> str:
    """Text `number` of `count`; InvalidRequest says what is wrong with it without repeating it."""
    which = _which(number, count, noun)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{which} is not UTF-8: the bytes at {error.start} can't be read") from None
    if not text or text.isspace():
        raise InvalidRequest(f"{which} is empty")
    check_text(text, which)
    return text


def _which(number: int, count: int, noun: str) -> str:
    return f"{noun} {number}" if count > 1 else f"the {noun}"
