"""Work that is done in slices between decoder steps, fairly: tokenising a book must not hold up the sentence beside it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto

__all__ = ["Task", "TaskQueue", "Yield"]


class Yield(Enum):
    """Why a task stops for now."""

    PAUSE = auto()
    """It goes on when the others have had their turn."""
    PARK = auto()
    """It continues when it is added again by what it waits for."""


class Task:
    """A piece of work as an iterator that yields after every small step; `fail` gets whatever it raises."""

    __slots__ = ("cancelled", "fail", "steps")

    def __init__(self, steps: Iterator[Yield], fail: Callable[[Exception], None]) -> None:
        self.steps, self.fail = steps, fail
        self.cancelled = False


class TaskQueue:
    """Tasks take turns, each one step at a time, for a bounded time in every turn of the loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ready: deque[Task] = deque()
        self.steps_done = 0

    def __len__(self) -> int:
        """Tasks that could go on now."""
        return len(self._ready)

    def add(self, task: Task) -> None:
        """Put a task in line: a new one, or one that was parked."""
        self._ready.append(task)

    def run(self, budget_s: float) -> None:
        """Do steps for about `budget_s`. What a task raises ends that task and no other."""
        until_s = self._clock() + budget_s
        while self._ready:
            task = self._ready.popleft()
            if not task.cancelled:
                self._step(task)
                if self._clock() >= until_s:
                    return

    def _step(self, task: Task) -> None:
        self.steps_done += 1
        try:
            if next(task.steps, None) is Yield.PAUSE:
                self._ready.append(task)
        except Exception as error:
            task.cancelled = True
            task.fail(error)
