"""The metrics and log lines of requests for translations."""

from __future__ import annotations

import logging
import struct
import time

from dragoman.search import Words
from dragoman.serving import metrics
from dragoman.serving.engine import Sequence
from dragoman.serving.logs import event as log_event
from dragoman.serving.process.options import RequestOptions
from dragoman.serving.process.requests import TextState, TranslationRequest
from dragoman.serving.process.settings import ProcessSettings
from dragoman.serving.text.stand_ins import StandIns

__all__ = ["RequestMetrics"]

MOST_PAIRS = 512
_TOKEN_BYTES = 4
_MOST_OCCURRENCES = 64
"""A term that is so often a part of longer words counts as missed without looking further."""
_log = logging.getLogger(__name__)


class RequestMetrics:
    """Counts everything but the supervisor's own requests, whose id is the settings' `probe_id`."""

    def __init__(
        self, recorder: metrics.Recorder, settings: ProcessSettings, stand_ins: StandIns, words: Words | None
    ) -> None:
        self._recorder, self._stand_ins, self._words = recorder, stand_ins, words
        self._probe_id, self._log_requests = settings.probe_id, settings.log_requests
        self._pairs: set[str] = set()

    def is_probe(self, options: RequestOptions) -> bool:
        return bool(self._probe_id) and options.request_id == self._probe_id  # without a supervisor nobody probes

    def refused(self, outcome: str, count: int = 1) -> None:
        """Requests that were never admitted."""
        self._recorder.count(metrics.REQUESTS, count, label=outcome)
        if outcome == "overloaded":
            self._recorder.count(metrics.REFUSALS, count)

    def part_done(self, request: TranslationRequest, sequence: Sequence) -> None:
        """A part of a text has its hypotheses."""
        if request.is_probe:
            return
        self._recorder.count(metrics.SOURCE_TOKENS, len(sequence.source))
        self._recorder.count(metrics.TARGET_TOKENS, sum([len(one.tokens) for one in sequence.hypotheses]))
        if sequence.options.must_occur:
            self._count_phrases(sequence)
        first_s, ended_s, tokens = sequence.first_token_s, sequence.ended_s, len(sequence.hypotheses[0].tokens)
        if tokens > 1 and first_s is not None and ended_s is not None:
            self._recorder.observe(metrics.TOKEN_SECONDS, (ended_s - first_s) / (tokens - 1))

    def _count_phrases(self, sequence: Sequence) -> None:
        """Whether the translation contains each required phrase, in one of its alternatives, and each term as a word."""
        best, options = sequence.hypotheses[0], sequence.options
        generated = _packed(best.tokens[:-1] if best.finish == "eos" else best.tokens)
        for at, alternatives in enumerate(options.must_occur):
            words = self._words if at >= len(options.phrases) else None
            is_met = any(_has(generated, tokens, words) for tokens in alternatives)
            if alternatives[0] in self._stand_ins.tokens:
                self._recorder.count(metrics.PLACEHOLDERS, label="kept" if is_met else "missed")
            else:
                self._recorder.count(metrics.TERMS, label="used" if is_met else "missed")

    def text_done(self, request: TranslationRequest, text: TextState) -> None:
        """The same figures as in DETAILS: a long text is counted once, not once per sentence."""
        if (timings := text.timings) is not None and not request.is_probe:
            self._recorder.observe(metrics.QUEUE_SECONDS, timings.queue_s)
            self._recorder.observe(metrics.FIRST_TOKEN_SECONDS, timings.first_token_s or timings.total_s)

    def _count_pair(self, request: TranslationRequest) -> None:
        """Each pair is a permanent series, and 200 languages have 40,000 pairs: those beyond a limit are "other"."""
        pair = request.options.language_pair
        if not pair:
            return
        if pair not in self._pairs and len(self._pairs) >= MOST_PAIRS:
            pair = "other"
        self._pairs.add(pair)
        self._recorder.count(metrics.PAIR_TEXTS, len(request.raw_texts), label=pair)

    def ended(self, request: TranslationRequest, outcome: str) -> None:
        """A request has been answered, or its caller has gone."""
        if request.is_probe:
            return
        total_s = time.monotonic() - request.arrived_s
        self._recorder.count(metrics.REQUESTS, label=outcome)
        self._recorder.observe(metrics.REQUEST_SECONDS, total_s)
        if outcome == "ok":
            self._recorder.count(metrics.TEXTS, len(request.raw_texts))
            self._count_pair(request)
        if outcome == "overloaded":
            self._recorder.count(metrics.REFUSALS)
        if self._log_requests:
            fields = {"request_id": request.request_id, "outcome": outcome, "texts": len(request.raw_texts)}
            log_event(_log, logging.INFO, "request", {**fields, "total_ms": round(total_s * 1000, 2)})


def _has(generated: bytes, phrase: tuple[int, ...], words: Words | None) -> bool:
    """Anywhere, or with `words` as whole words: as the search understands it. `generated`: the tokens in four bytes each."""
    wanted = _packed(phrase)
    at = generated.find(wanted)
    if at < 0:
        return False
    begins, ends = (False, False) if words is None else words.edges(phrase)
    for _ in range(_MOST_OCCURRENCES):
        before, behind = _token(generated, at - _TOKEN_BYTES), _token(generated, at + len(wanted))
        if at % _TOKEN_BYTES == 0 and not (
            words is not None
            and (
                (begins and before is not None and words.is_open(before))
                or (ends and behind is not None and words.goes_on(behind))
            )
        ):
            return True
        at = generated.find(wanted, at + 1)
        if at < 0:
            break
    return False


def _packed(tokens: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(tokens)}I", *tokens)


def _token(packed: bytes, at: int) -> int | None:
    """The token there; None beyond the ends."""
    return int.from_bytes(packed[at : at + _TOKEN_BYTES], "little") if 0 <= at < len(packed) else None
