"""What the parent of a load test and its worker processes tell each other."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.errors import DragomanError
from dragoman.loadtest.answers import Answers
from dragoman.loadtest.tally import Tally

__all__ = ["Done", "Failed", "Progress", "Ready", "Start", "Stop"]


@dataclass(frozen=True, slots=True)
class Start:
    """Parent to worker: the warm-up begins at this moment of `time.monotonic`."""

    at: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Parent to worker: send no more; wait a moment for what is under way, then report."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Worker to parent: connected, and one request was answered."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Worker to parent: it can't go on."""

    error: DragomanError


@dataclass(frozen=True, slots=True)
class Progress:
    """Worker to parent: what was counted since the last time, and the CPU used since the measurement began."""

    worker: int
    tally: Tally
    cpu_s: float
    wall_s: float
    in_flight: int


@dataclass(frozen=True, slots=True)
class Done:
    """Worker to parent: the last message."""

    worker: int
    answers: Answers
