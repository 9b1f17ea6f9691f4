"""How long a step of this engine may take, from what its recent steps took."""

from __future__ import annotations

from collections import deque
from typing import Protocol

__all__ = ["StepCounters", "StepTimes"]

_REMEMBERED = 240  # samples; the supervisor asks four times a second


class StepCounters(Protocol):
    """What the engine counts of its steps; the counters only grow."""

    steps: int
    step_s: float
    decoded_rows: int


class StepTimes:
    """The longest step to expect.

    The longest recent one, or a step of a full batch if every row of it took as long as a row does now: time grows less than
    linearly with the rows, so that a step which follows a quiet time and has many more rows stays below this.
    """

    def __init__(self, counters: StepCounters, max_rows: int) -> None:
        self._counters, self._max_rows = counters, max_rows
        self._steps, self._rows, self._seconds = 0, 0, 0.0
        self._recent_s: deque[float] = deque(maxlen=_REMEMBERED)

    def longest_s(self) -> float:
        """Take a sample of the counters; 0.0 before the first step."""
        now = self._counters
        steps, rows, seconds = now.steps - self._steps, now.decoded_rows - self._rows, now.step_s - self._seconds
        self._steps, self._rows, self._seconds = now.steps, now.decoded_rows, now.step_s
        if steps:
            self._recent_s.append(max(seconds / steps, seconds / rows * self._max_rows if rows else 0.0))
        return max(self._recent_s, default=0.0)
