"""The metrics: one table, a recorder for the engine process, and the series that a scrape shows.

Publishing a number may cost a message between processes, so the engine counts by itself and sends the changes once a second.
Triton's histograms take one observation per message; these are counted in the engine process and published as the three
series of a Prometheus histogram (`_bucket` with its `le`, `_sum`, `_count`), which `histogram_quantile` reads as usual.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dragoman.serving.ipc.frames import Frame, Kind

__all__ = [
    "METRICS",
    "PUBLISHED_BY",
    "Change",
    "Metric",
    "Recorder",
    "Series",
    "changes_frame",
    "series_frame",
]

_AMOUNT = struct.Struct("<d")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric; every series of it has the label `model`, and `label` beside it when that is set.

    Counters and gauges of several engines are added up; of shares the mean is shown.
    """

    name: str
    kind: Literal["counter", "gauge", "share", "histogram"]
    help: str
    label: str | None = None
    buckets: tuple[float, ...] = ()

    @property
    def series(self) -> tuple[Series, ...]:
        """The series a scrape shows."""
        if self.kind != "histogram":
            return (Series(self.name, self.kind, self.help, self.label),)
        return (
            Series(f"{self.name}_bucket", "counter", self.help, "le"),
            Series(f"{self.name}_sum", "counter", self.help, None),
            Series(f"{self.name}_count", "counter", self.help, None),
        )


@dataclass(frozen=True, slots=True)
class Series:
    """A family of numbers in Prometheus."""

    name: str
    kind: Literal["counter", "gauge", "share"]
    help: str
    label: str | None


REQUESTS = Metric("dragoman_requests_total", "counter", "Requests by how they ended", "outcome")
REFUSALS = Metric("dragoman_refusals_total", "counter", "Requests refused because the queue was full")
TEXTS = Metric("dragoman_texts_total", "counter", "Texts translated")
PAIR_TEXTS = Metric("dragoman_pair_texts_total", "counter", "Texts translated by languages, as en>de", "pair")
QUEUE_SECONDS = Metric(
    "dragoman_queue_seconds", "histogram", "From a text's arrival at the server to the running batch", buckets=_SECONDS
)
FIRST_TOKEN_SECONDS = Metric(
    "dragoman_first_token_seconds", "histogram", "From a text's arrival at the server to its first token", buckets=_SECONDS
)
TOKEN_SECONDS = Metric("dragoman_token_seconds", "histogram", "Time per target token once decoding", buckets=_SECONDS)
REQUEST_SECONDS = Metric(
    "dragoman_request_seconds", "histogram", "From a request's arrival at the server to its answer", buckets=_SECONDS
)
SOURCE_TOKENS = Metric("dragoman_source_tokens_total", "counter", "Source tokens of texts that entered the running batch")
TARGET_TOKENS = Metric("dragoman_target_tokens_total", "counter", "Target tokens of finished translations")
PADDING_TOKENS = Metric("dragoman_padding_tokens_total", "counter", "Padding tokens encoded with the source tokens")
STEPS = Metric("dragoman_steps_total", "counter", "Decoder steps")
STEP_ROWS = Metric("dragoman_step_rows_total", "counter", "Rows decoded, summed over steps; divide by steps for occupancy")
STEP_SECONDS = Metric("dragoman_step_seconds_total", "counter", "Time of decoder steps, with the encoding of new sentences")
CALLS_AT_ONCE = Metric("dragoman_calls_at_once", "gauge", "Decoder steps that may run in parallel")
PREEMPTIONS = Metric("dragoman_preemptions_total", "counter", "Sentences evicted from a full KV cache and restarted later")
RUNNING = Metric("dragoman_running_requests", "gauge", "Sentences in the running batch")
QUEUED = Metric("dragoman_queued_requests", "gauge", "Sentences waiting for the running batch")
OCCUPANCY = Metric("dragoman_batch_occupancy", "share", "Rows of the running batch over the maximum")
CACHE_USED = Metric("dragoman_cache_used_ratio", "share", "Reserved slots of the KV cache over its capacity")
SESSIONS = Metric("dragoman_sessions", "gauge", "Open client-driven sessions")
CACHE_HITS = Metric("dragoman_response_cache_hits_total", "counter", "Texts answered from the response cache")
CACHE_MISSES = Metric("dragoman_response_cache_misses_total", "counter", "Texts not found in the response cache")
CACHE_BYTES = Metric("dragoman_response_cache_bytes", "gauge", "Size of the response cache")
SUSPICIONS = Metric(
    "dragoman_suspicious_sentences_total",
    "counter",
    "Sentences whose translation was suspicious: reported, or translated again and kept or replaced",
    "outcome",
)
TERMS = Metric(
    "dragoman_glossary_terms_total",
    "counter",
    "Required glossary terms and phrases, by whether the translation of the sentence contains them: used or missed",
    "outcome",
)
PLACEHOLDERS = Metric(
    "dragoman_placeholders_total",
    "counter",
    "Links, variables and other placeholders in constrained searches: kept by the model, or missed and put back",
    "outcome",
)
RESTARTS = Metric("dragoman_restarts_total", "counter", "Restarts by the supervisor: engine or triton", "what")

METRICS = (
    REQUESTS,
    REFUSALS,
    TEXTS,
    PAIR_TEXTS,
    QUEUE_SECONDS,
    FIRST_TOKEN_SECONDS,
    TOKEN_SECONDS,
    REQUEST_SECONDS,
    SOURCE_TOKENS,
    TARGET_TOKENS,
    PADDING_TOKENS,
    STEPS,
    STEP_ROWS,
    STEP_SECONDS,
    CALLS_AT_ONCE,
    PREEMPTIONS,
    RUNNING,
    QUEUED,
    OCCUPANCY,
    CACHE_USED,
    SESSIONS,
    CACHE_HITS,
    CACHE_MISSES,
    CACHE_BYTES,
    SUSPICIONS,
    TERMS,
    PLACEHOLDERS,
    RESTARTS,
)

PUBLISHED_BY = b"triton"
"""The name in HELLO of the Triton backend, which publishes these numbers on Triton's endpoint."""

Change = tuple[str, str, float]
"""Series name, value of its label ("" without one), and what a counter grew by or a gauge is now."""


def series_frame() -> Frame:
    """All series for the Triton backend, which publishes them: name, kind, help and label of each."""
    found = [series for metric in METRICS for series in metric.series]
    return Frame(
        Kind.SERIES,
        0,
        tuple(part.encode() for each in found for part in (each.name, each.kind, each.help, each.label or "")),
    )


def changes_frame(changes: Sequence[Change]) -> Frame:
    """Changes as an engine sends them to the Triton backend: name, label and amount of each."""
    parts = [(name.encode(), label.encode(), _AMOUNT.pack(amount)) for name, label, amount in changes]
    return Frame(Kind.METRICS, 0, tuple(part for each in parts for part in each))


@dataclass(slots=True)
class _Tally:
    """One histogram since the last report: observations by the first bucket that holds them, and their sum."""

    counts: list[int]
    sum: float = 0.0

    def changes(self, metric: Metric) -> list[Change]:
        total = 0
        found: list[Change] = []
        for bound, count in zip((*(f"{bound:g}" for bound in metric.buckets), "+Inf"), self.counts, strict=True):
            total += count
            found.append((f"{metric.name}_bucket", bound, total))
        return [*found, (f"{metric.name}_sum", "", self.sum), (f"{metric.name}_count", "", total)]


class Recorder:
    """Counts in the engine process; `take_changes` returns what has changed since the last call."""

    def __init__(self) -> None:
        # Counters are 0 from the first report on: a rate over one that appears with its first event would miss it.
        plain = [metric.name for metric in METRICS if metric.kind == "counter" and metric.label is None]
        self._grown: dict[tuple[str, str], float] = defaultdict(float, {(name, ""): 0.0 for name in plain})
        self._tallies: dict[Metric, _Tally] = {}
        self._gauges: dict[str, float] = {}
        self._told: dict[str, float] = {}

    def count(self, metric: Metric, amount: float = 1, label: str = "") -> None:
        if amount:
            self._grown[metric.name, label] += amount

    def observe(self, metric: Metric, value: float) -> None:
        tally = self._tallies.get(metric)
        if tally is None:
            tally = self._tallies[metric] = _Tally([0] * (len(metric.buckets) + 1))
        tally.counts[bisect_left(metric.buckets, value)] += 1
        tally.sum += value

    def set(self, metric: Metric, value: float) -> None:
        self._gauges[metric.name] = value

    def take_changes(self) -> list[Change]:
        changes: list[Change] = [(name, label, amount) for (name, label), amount in self._grown.items()]
        for metric, tally in self._tallies.items():
            changes += [change for change in tally.changes(metric) if change[2]]
        self._grown.clear()
        self._tallies.clear()
        for name, value in self._gauges.items():
            if self._told.get(name) != value:
                self._told[name] = value
                changes.append((name, "", value))
        return changes
