"""Work that is done in slices between decoder steps: tokenising a book must not delay a sentence."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto

__all__ = ["Job", "JobQueue", "Yield"]

_SHORT_S = 0.001
"""Seconds of work. Requests of a few sentences take less; jobs that have taken more take turns with each other."""


class Yield(Enum):
    """Why a job pauses."""

    PAUSE = auto()
    """The job continues when the others have had their turn."""
    PARK = auto()
    """The job continues when it is added again."""


class Job:
    """A piece of work as an iterator that yields after every small step; `fail` is called with what it raises."""

    __slots__ = ("cancelled", "fail", "steps", "taken_s")

    def __init__(self, steps: Iterator[Yield], fail: Callable[[Exception], None]) -> None:
        self.steps, self.fail = steps, fail
        self.cancelled = False
        self.taken_s = 0.0
        """Seconds that its steps have taken so far."""


class JobQueue:
    """Jobs take turns, one step each, for a bounded time in every turn of the loop.

    Short ones go first, so that they do not wait for a step of each of a hundred long ones; one step of a long one is done
    in every turn in any case.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._short: deque[Job] = deque()
        self._long: deque[Job] = deque()
        self.steps_done = 0

    def __len__(self) -> int:
        """The number of jobs that could continue now."""
        return len(self._short) + len(self._long)

    def add(self, job: Job) -> None:
        """Queue a job: a new one, or one that was parked."""
        (self._short if job.taken_s < _SHORT_S else self._long).append(job)

    def run(self, budget_s: float) -> None:
        """Do steps for about `budget_s`, at least one. An error of a job ends that job and no other."""
        now_s = self._clock()
        until_s, has_long_had_its_turn = now_s + budget_s, False
        while jobs := self._short or self._long:
            has_long_had_its_turn |= jobs is self._long
            now_s = self._step(jobs.popleft(), now_s)
            if now_s >= until_s:
                break
        if self._long and not has_long_had_its_turn:
            self._step(self._long.popleft(), now_s)

    def _step(self, job: Job, now_s: float) -> float:
        """Do one step of a job; returns the time after it."""
        if job.cancelled:
            return now_s
        self.steps_done += 1
        try:
            yielded = next(job.steps, None)
        except Exception as error:
            job.cancelled = True
            job.fail(error)
            return self._clock()
        ended_s = self._clock()
        job.taken_s += ended_s - now_s
        if yielded is Yield.PAUSE:
            self.add(job)
        return ended_s
