"""What requests for translations add to the metrics and to the log."""

from __future__ import annotations

import logging
import time

from dragoman.serving import metrics
from dragoman.serving.engine import Sequence
from dragoman.serving.logs import event as log_event
from dragoman.serving.process.options import RequestOptions
from dragoman.serving.process.requests import TextState, TranslationRequest

__all__ = ["RequestMetrics"]

MOST_PAIRS = 512
_log = logging.getLogger(__name__)


class RequestMetrics:
    """Counts everything but the supervisor's own requests, whose id is `probe_id`."""

    def __init__(self, recorder: metrics.Recorder, probe_id: str, log_requests: bool) -> None:
        self._recorder, self._probe_id, self._log_requests = recorder, probe_id, log_requests
        self._pairs: set[str] = set()

    def is_probe(self, options: RequestOptions) -> bool:
        return options.request_id == self._probe_id

    def refused(self, outcome: str) -> None:
        """A request that was never admitted."""
        self._recorder.count(metrics.REQUESTS, label=outcome)
        if outcome == "overloaded":
            self._recorder.count(metrics.REFUSALS)

    def part_done(self, request: TranslationRequest, sequence: Sequence) -> None:
        """A part of a text has its hypotheses."""
        if self.is_probe(request.options):
            return
        self._recorder.count(metrics.SOURCE_TOKENS, len(sequence.source))
        self._recorder.count(metrics.TARGET_TOKENS, sum(len(one.tokens) for one in sequence.hypotheses))
        timings, tokens = sequence.timings, len(sequence.hypotheses[0].tokens)
        if tokens > 1 and timings.first_token_s is not None:
            self._recorder.observe(metrics.TOKEN_SECONDS, (timings.total_s - timings.first_token_s) / (tokens - 1))

    def text_done(self, request: TranslationRequest, text: TextState) -> None:
        """The very figures of DETAILS: a long text waits once, not once for each of its sentences."""
        if (timings := text.timings) is not None and not self.is_probe(request.options):
            self._recorder.observe(metrics.QUEUE_SECONDS, timings.queue_s)
            self._recorder.observe(metrics.FIRST_TOKEN_SECONDS, timings.first_token_s or timings.total_s)

    def _count_pair(self, request: TranslationRequest) -> None:
        """Every pair is a series for good: a model of 200 languages has 40,000, of which a monitor wants a few."""
        pair = request.options.language_pair
        if not pair:
            return
        if pair not in self._pairs and len(self._pairs) >= MOST_PAIRS:
            pair = "other"
        self._pairs.add(pair)
        self._recorder.count(metrics.PAIR_TEXTS, len(request.raw_texts), label=pair)

    def ended(self, request: TranslationRequest, outcome: str) -> None:
        """A request has been answered, or its caller has gone."""
        if self.is_probe(request.options):
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
            fields = {"request_id": request.options.request_id, "outcome": outcome, "texts": len(request.raw_texts)}
            log_event(_log, logging.INFO, "request", {**fields, "total_ms": round(total_s * 1000, 2)})
