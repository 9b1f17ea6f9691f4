"""One server under load, without the server: requests join and leave at every step, as in the engine.

A server that does several calls at once has as many batches; a new request joins the smallest.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from dragoman.loadtest.planning.profile import Floats, ServerProfile

__all__ = ["Prediction", "Server", "simulate"]


@dataclass(frozen=True, slots=True)
class Server:
    """What bounds a server: rows decoded together, and requests that may wait."""

    max_rows: int = 128
    max_queue: int = 1024


@dataclass(frozen=True, slots=True)
class Prediction:
    """How one server fares. `busy` is the share of time it decodes; `refused` of the requests found the queue full."""

    rate: float
    latencies_s: Floats
    queue_s: Floats
    busy: float
    rows_per_step: float
    refused: float

    def percentile_s(self, percent: float) -> float:
        return float(np.percentile(self.latencies_s, percent)) if len(self.latencies_s) else float("inf")

    def mean_s(self) -> float:
        return float(self.latencies_s.mean()) if len(self.latencies_s) else float("inf")


def simulate(
    profile: ServerProfile,
    server: Server,
    arrivals_s: Floats,
    *,
    seed: int = 0,
    warm_up: float = 0.1,
    steps: npt.NDArray[np.int64] | None = None,
) -> Prediction:
    """The fate of requests that arrive at these times; the first `warm_up` of them is not counted.

    `steps` of each request are drawn from the profile's lengths unless they are given.
    """
    rng = np.random.default_rng(seed)
    steps_of = _drawn(profile, len(arrivals_s), rng) if steps is None else steps
    run = _Run(profile, server, arrivals_s, steps_of, rng)
    run.play()
    counted = slice(int(len(arrivals_s) * warm_up), None)
    finished, began = run.finished_s[counted], run.began_s[counted]
    answered = ~np.isnan(finished)
    return Prediction(
        rate=(len(arrivals_s) - 1) / (arrivals_s[-1] - arrivals_s[0]),
        latencies_s=(finished - arrivals_s[counted])[answered] + profile.overhead_s,
        queue_s=(began - arrivals_s[counted])[answered],
        busy=run.busy_s / (run.now_s * profile.calls_at_once),
        rows_per_step=run.row_steps / max(run.steps, 1),
        refused=float((~answered).mean()),
    )


def _drawn(profile: ServerProfile, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    lengths = rng.choice(np.array(profile.lengths), count) * profile.steps_per_token
    return np.maximum(np.ceil(lengths - rng.random(count)), 1).astype(np.int64)  # rounds fairly


@dataclass(slots=True)
class _Batch:
    """Requests that are decoded together, each until its last step; new ones may join at `now_s`."""

    now_s: float
    steps: int = 0
    running: list[tuple[int, int]] = field(default_factory=list)  # (step after which it is done, request)
    disturbance: float = 1.0
    disturbed_until_s: float = 0.0


class _Run:
    """The state of a simulation: waiting requests, the last step of running ones, and the time in each batch."""

    def __init__(
        self,
        profile: ServerProfile,
        server: Server,
        arrivals_s: Floats,
        steps_of: npt.NDArray[np.int64],
        rng: np.random.Generator,
    ) -> None:
        self._times, self._server, self._rng = profile.steps, server, rng
        self._rows = profile.rows_per_request
        self._most = max(1, server.max_rows // profile.calls_at_once // profile.rows_per_request)
        self._arrivals, self._steps_of = cast("list[float]", arrivals_s.tolist()), cast("list[int]", steps_of.tolist())
        self._arrived = 0
        self._waiting: deque[int] = deque()
        self._batches = [_Batch(self._arrivals[0]) for _ in range(profile.calls_at_once)]
        self.began_s = np.full(len(self._arrivals), np.nan)
        self.finished_s = np.full(len(self._arrivals), np.nan)
        self.busy_s = 0.0
        self.steps, self.row_steps = 0, 0

    @property
    def now_s(self) -> float:
        return max(batch.now_s for batch in self._batches)

    def play(self) -> None:
        """Simulate until every request was answered or refused."""
        while self._arrived < len(self._arrivals) or self._waiting or any(batch.running for batch in self._batches):
            batch = min(self._batches, key=lambda one: (self._next_step_s(one), len(one.running)))
            batch.now_s = self._next_step_s(batch)
            self._let_arrive(batch.now_s)
            self._step(batch)

    def _next_step_s(self, batch: _Batch) -> float:
        if batch.running:
            return batch.now_s
        if self._waiting:
            return max(batch.now_s, self._arrivals[self._waiting[0]])
        return max(batch.now_s, self._arrivals[self._arrived]) if self._arrived < len(self._arrivals) else float("inf")

    def _let_arrive(self, now_s: float) -> None:
        while self._arrived < len(self._arrivals) and self._arrivals[self._arrived] <= now_s:
            if len(self._waiting) < self._server.max_queue:
                self._waiting.append(self._arrived)
            self._arrived += 1

    def _step(self, batch: _Batch) -> None:
        fewest = min((len(other.running) for other in self._batches if other is not batch), default=self._most)
        while self._waiting and len(batch.running) < self._most and len(batch.running) <= fewest:
            request = self._waiting.popleft()
            self.began_s[request] = batch.now_s
            heapq.heappush(batch.running, (batch.steps + self._steps_of[request], request))
        rows = self._rows * len(batch.running)
        took_s = self._times.at(rows) * self._disturbed(batch)
        batch.now_s += took_s
        batch.steps += 1
        self.busy_s += took_s
        self.steps += 1
        self.row_steps += rows
        while batch.running and batch.running[0][0] <= batch.steps:
            self.finished_s[heapq.heappop(batch.running)[1]] = batch.now_s

    def _disturbed(self, batch: _Batch) -> float:
        """The disturbance of this second, one of those that were measured."""
        if batch.now_s >= batch.disturbed_until_s:
            batch.disturbance = float(self._rng.choice(self._times.disturbances))
            batch.disturbed_until_s = batch.now_s + 1.0
        return batch.disturbance
