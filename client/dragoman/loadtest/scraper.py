"""The server's own view of the load, read from its metrics once a second while the load runs."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import TracebackType
from typing import Any

from dragoman.client.prometheus import Scrape, check_metrics_url, scrape
from dragoman.errors import TransportError

__all__ = ["Scraper", "ServerSample"]

_EVERY_S = 1.0
_LEAVE_WITHIN_S = 4.0  # longer than a scrape may take

# Names of the serving part; a server without them is measured from outside only.
_QUEUE = "dragoman_queue_seconds"
_STEPS = "dragoman_steps_total"
_STEP_ROWS = "dragoman_step_rows_total"
_STEP_SECONDS = "dragoman_step_seconds_total"
_OCCUPANCY = "dragoman_batch_occupancy"
_QUEUED = "dragoman_queued_requests"
_CALLS_AT_ONCE = "dragoman_calls_at_once"


@dataclass(frozen=True, slots=True)
class ServerSample:
    """The server's figures for the time since the sample before; None where it has none.

    `rows_per_step` is the mean size of the batches it decoded, `occupancy` their share of the largest it may decode,
    `step_mean_s` what a decoding step took, including the encoding of new sequences, and `steps` how many there were;
    `calls_at_once` is how many of them may run side by side.
    """

    at_s: float
    queue_mean_s: float | None
    rows_per_step: float | None
    occupancy: float | None
    queued: float | None
    step_mean_s: float | None = None
    steps: float | None = None
    calls_at_once: float | None = None

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> ServerSample:
        since = ("step_mean_s", "steps", "calls_at_once")  # older reports do not have them
        known = [field.name for field in fields(ServerSample) if field.name in raw or field.name not in since]
        return ServerSample(**{name: raw[name] for name in known})


class Scraper:
    """A thread that reads the metrics until it is left."""

    def __init__(self, url: str) -> None:
        check_metrics_url(url)
        self._url = url
        self._scrapes: list[Scrape] = []
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self.problem: str | None = None

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._leave.set()
        self._thread.join(_LEAVE_WITHIN_S)

    def samples(self, started_at: float) -> list[ServerSample]:
        """One for each pair of neighbouring scrapes since `started_at`."""
        pairs = itertools.pairwise(list(self._scrapes))
        return [_between(earlier, now, now.at_s - started_at) for earlier, now in pairs if now.at_s >= started_at]

    def _run(self) -> None:
        while not self._leave.is_set():
            began = time.monotonic()
            try:
                self._scrapes.append(scrape(self._url))
            except TransportError as error:
                self.problem = str(error)
            self._leave.wait(max(0.0, _EVERY_S - (time.monotonic() - began)))


def _between(earlier: Scrape, now: Scrape, at_s: float) -> ServerSample:
    return ServerSample(
        at_s=at_s,
        queue_mean_s=_ratio_of_growth(earlier, now, f"{_QUEUE}_sum", f"{_QUEUE}_count"),
        rows_per_step=_ratio_of_growth(earlier, now, _STEP_ROWS, _STEPS),
        occupancy=max(now.values_of(_OCCUPANCY), default=None),  # of several models, the one nearest to its limit
        queued=now.total(_QUEUED) if now.values_of(_QUEUED) else None,
        step_mean_s=_ratio_of_growth(earlier, now, _STEP_SECONDS, _STEPS),
        steps=_growth(earlier, now, _STEPS),
        calls_at_once=max(now.values_of(_CALLS_AT_ONCE), default=None),
    )


def _ratio_of_growth(earlier: Scrape, now: Scrape, above: str, below: str) -> float | None:
    """What one counter grew by over what another grew by; None when the second stood still."""
    numerator, denominator = _growth(earlier, now, above), _growth(earlier, now, below)
    return numerator / denominator if numerator is not None and denominator else None


def _growth(earlier: Scrape, now: Scrape, name: str) -> float | None:
    """None when the server does not have the counter."""
    return now.growth(earlier, name) if earlier.values_of(name) and now.values_of(name) else None
