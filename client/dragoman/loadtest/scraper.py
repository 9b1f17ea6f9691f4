"""The server's own view of the load, read from its metrics once a second while the load runs."""

from __future__ import annotations

import http.client
import itertools
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from dragoman.errors import UsageError
from dragoman.loadtest.prometheus import Sample, parse, total

__all__ = ["Scraper", "ServerSample", "default_metrics_url"]

_EVERY_S = 1.0
_TIMEOUT_S = 2.0
_METRICS_PORT = 8002

# Names of the serving part; a server without them is measured from outside only.
_QUEUE = "dragoman_queue_seconds"
_STEPS = "dragoman_steps_total"
_STEP_ROWS = "dragoman_step_rows_total"
_STEP_SECONDS = "dragoman_step_seconds_total"
_OCCUPANCY = "dragoman_batch_occupancy"
_QUEUED = "dragoman_queued_requests"


@dataclass(frozen=True, slots=True)
class ServerSample:
    """What the server said about the time since the sample before; None where it does not say.

    `rows_per_step` is the mean size of the batches it decoded, `occupancy` their share of the largest it may decode,
    `step_mean_s` what a decoding step took, encoding of newcomers included, and `steps` how many there were.
    """

    at_s: float
    queue_mean_s: float | None
    rows_per_step: float | None
    occupancy: float | None
    queued: float | None
    step_mean_s: float | None = None
    steps: float | None = None

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> ServerSample:
        known = {name: raw[name] for name in ("at_s", "queue_mean_s", "rows_per_step", "occupancy", "queued")}
        return ServerSample(**known, step_mean_s=raw.get("step_mean_s"), steps=raw.get("steps"))


class Scraper:
    """A thread that reads the metrics until it is left."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"--metrics {url!r} must be an http address, like http://localhost:{_METRICS_PORT}/metrics")
        self._url = url
        self._scrapes: list[tuple[float, list[Sample]]] = []
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self.problem: str | None = None

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._leave.set()
        self._thread.join(_TIMEOUT_S + 1)

    def samples(self, started_at: float) -> list[ServerSample]:
        """One for each pair of neighbouring scrapes since `started_at`."""
        scrapes = list(self._scrapes)
        return [
            _between(earlier, now, at - started_at)
            for (_, earlier), (at, now) in itertools.pairwise(scrapes)
            if at >= started_at
        ]

    def _run(self) -> None:
        while not self._leave.is_set():
            began = time.monotonic()
            try:
                with urllib.request.urlopen(self._url, timeout=_TIMEOUT_S) as response:  # noqa: S310 - http(s) only, checked above
                    self._scrapes.append((time.monotonic(), parse(response.read().decode("utf-8", "replace"))))
            except (OSError, urllib.error.URLError, http.client.HTTPException, ValueError) as error:
                self.problem = f"{self._url} can't be read: {getattr(error, 'reason', error)}"
            self._leave.wait(max(0.0, _EVERY_S - (time.monotonic() - began)))


def default_metrics_url(target: str) -> str:
    """Triton's metrics beside the first gRPC address."""
    host = target.removeprefix("dns:///").rpartition(":")[0]
    return f"http://{host}:{_METRICS_PORT}/metrics"


def _between(earlier: list[Sample], now: list[Sample], at_s: float) -> ServerSample:
    return ServerSample(
        at_s=at_s,
        queue_mean_s=_ratio_of_growth(earlier, now, f"{_QUEUE}_sum", f"{_QUEUE}_count"),
        rows_per_step=_ratio_of_growth(earlier, now, _STEP_ROWS, _STEPS),
        occupancy=_highest(now, _OCCUPANCY),
        queued=total(now, _QUEUED),
        step_mean_s=_ratio_of_growth(earlier, now, _STEP_SECONDS, _STEPS),
        steps=_growth(earlier, now, _STEPS),
    )


def _ratio_of_growth(earlier: list[Sample], now: list[Sample], above: str, below: str) -> float | None:
    """What one counter grew by over what another grew by; None when the second stood still."""
    numerator, denominator = _growth(earlier, now, above), _growth(earlier, now, below)
    return numerator / denominator if numerator is not None and denominator else None


def _growth(earlier: list[Sample], now: list[Sample], name: str) -> float | None:
    was, is_now = total(earlier, name), total(now, name)
    return None if was is None or is_now is None else max(is_now - was, 0.0)


def _highest(samples: list[Sample], name: str) -> float | None:
    """Of several models, the one that is nearest to its limit."""
    return max((sample.value for sample in samples if sample.name == name), default=None)
