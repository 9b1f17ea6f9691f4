"""A run before it runs: everything a worker process has to know."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field

from dragoman.errors import UsageError
from dragoman.loadtest.answers import bleu_available
from dragoman.loadtest.arrivals import Shape
from dragoman.loadtest.sender import RequestSettings, Target
from dragoman.loadtest.tally import Tally, slice_length_s
from dragoman.loadtest.workload import Workload

__all__ = ["ClosedLoop", "OpenLoop", "Plan", "default_workers"]

_RATE_A_WORKER = 400.0
_USERS_A_WORKER = 64
_MOST_IN_FLIGHT = 20_000
_LONGEST_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests leave when they are due, as from many users who do not know of each other."""

    shape: Shape

    @property
    def duration_s(self) -> float:
        return self.shape.duration_s

    def describe(self) -> str:
        return f"open loop, {self.shape.name}, up to {round(self.shape.peak, 1):g}/s"


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`concurrency` users who each wait for an answer before they send again."""

    concurrency: int
    duration_s: float

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise UsageError(f"--concurrency {self.concurrency} must be at least 1")

    def share_of(self, worker: int, workers: int) -> int:
        return self.concurrency // workers + (worker < self.concurrency % workers)

    def describe(self) -> str:
        return f"closed loop, {self.concurrency} at a time"


@dataclass(frozen=True, slots=True)
class Plan:
    """Where, what, how much and for how long."""

    target: Target
    workload: Workload
    load: OpenLoop | ClosedLoop
    settings: RequestSettings = field(default_factory=RequestSettings)
    workers: int = 1
    warm_up_s: float = 1.0
    seed: int = 0
    max_in_flight: int = _MOST_IN_FLIGHT

    def __post_init__(self) -> None:
        if not 0 < self.duration_s <= _LONGEST_S:
            raise UsageError(f"--duration {self.duration_s:g} s must be above 0 and at most 24 h")
        if self.workers < 1:
            raise UsageError(f"--workers {self.workers} must be at least 1")
        if isinstance(self.load, ClosedLoop) and self.workers > self.load.concurrency:
            raise UsageError(f"--workers {self.workers} is more than --concurrency {self.load.concurrency}")

    @property
    def duration_s(self) -> float:
        return self.load.duration_s

    @property
    def keeps_texts(self) -> bool:
        return self.workload.has_references and bleu_available()

    @property
    def max_in_flight_per_worker(self) -> int:
        """The limit of open requests, so that a server that stalls does not exhaust the client's machine."""
        return max(1, self.max_in_flight // self.workers)

    def new_tally(self) -> Tally:
        return Tally(self.duration_s, slice_length_s(self.duration_s))


def default_workers(load: OpenLoop | ClosedLoop) -> int:
    """Enough processes for the load, no more than there are processors."""
    if isinstance(load, OpenLoop):
        wanted = math.ceil(load.shape.peak / _RATE_A_WORKER)
    else:
        wanted = math.ceil(load.concurrency / _USERS_A_WORKER)
    return max(1, min(wanted, os.cpu_count() or 1))
