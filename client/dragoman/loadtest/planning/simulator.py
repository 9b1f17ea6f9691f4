"""One server under load, without the server: requests join and leave at every step, as in the engine."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from dragoman.loadtest.planning.profile import Floats, Profile

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
    profile: Profile,
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
        busy=run.busy_s / run.now_s,
        rows_per_step=run.row_steps / max(run.steps, 1),
        refused=float((~answered).mean()),
    )


def _drawn(profile: Profile, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    lengths = rng.choice(np.array(profile.lengths), count) * profile.steps_per_token
    return np.maximum(np.ceil(lengths - rng.random(count)), 1).astype(np.int64)  # rounds fairly


class _Run:
    """The state of a simulation: who waits, who runs until which step, and what time it is."""

    def __init__(
        self, profile: Profile, server: Server, arrivals_s: Floats, steps_of: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> None:
        self._times, self._server, self._rng = profile.steps, server, rng
        self._rows = profile.rows_per_request
        self._most = max(1, server.max_rows // profile.rows_per_request)
        self._arrivals, self._steps_of = cast("list[float]", arrivals_s.tolist()), cast("list[int]", steps_of.tolist())
        self._waiting: deque[int] = deque()
        self._running: list[tuple[int, int]] = []  # (step after which it is done, request)
        self.began_s = np.full(len(self._arrivals), np.nan)
        self.finished_s = np.full(len(self._arrivals), np.nan)
        self.now_s, self.busy_s = self._arrivals[0], 0.0
        self.steps, self.row_steps = 0, 0
        self._disturbance, self._disturbed_until_s = 1.0, self.now_s

    def play(self) -> None:
        """Until every request was answered or refused."""
        arrived, count = 0, len(self._arrivals)
        while arrived < count or self._waiting or self._running:
            if not self._waiting and not self._running:
                self.now_s = max(self.now_s, self._arrivals[arrived])
            while arrived < count and self._arrivals[arrived] <= self.now_s:
                if len(self._waiting) < self._server.max_queue:
                    self._waiting.append(arrived)
                arrived += 1
            self._step()

    def _step(self) -> None:
        while self._waiting and len(self._running) < self._most:
            request = self._waiting.popleft()
            self.began_s[request] = self.now_s
            heapq.heappush(self._running, (self.steps + self._steps_of[request], request))
        rows = self._rows * len(self._running)
        took_s = self._times.at(rows) * self._disturbed()
        self.now_s += took_s
        self.busy_s += took_s
        self.steps += 1
        self.row_steps += rows
        while self._running and self._running[0][0] <= self.steps:
            self.finished_s[heapq.heappop(self._running)[1]] = self.now_s

    def _disturbed(self) -> float:
        """The disturbance of this second, one of those that were measured."""
        if self.now_s >= self._disturbed_until_s:
            self._disturbance = float(self._rng.choice(self._times.disturbances))
            self._disturbed_until_s = self.now_s + 1.0
        return self._disturbance
