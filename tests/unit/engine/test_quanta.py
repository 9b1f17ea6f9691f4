"""Quanta of work in the threads of a pool."""

from __future__ import annotations

import threading
from collections.abc import Callable

from worlds import PATIENCE_S

from dragoman.serving.engine.worker_pool import Longest, WorkerPool
from served import eventually


class Hog:
    """Work that never comes to an end by itself; the test permits its steps, of two milliseconds each."""

    def __init__(self, now_s: list[float]) -> None:
        self.at_work, self.began_s, self.steps = False, 0.0, 0
        self.may_step, self._now_s = threading.Semaphore(0), now_s

    def steps_within(self, time_s: float) -> int:
        return 1

    def run_quantum(self, max_steps: int, longest: Longest, clock: Callable[[], float]) -> None:
        began_s = clock()
        while clock() - began_s < longest():
            assert self.may_step.acquire(timeout=PATIENCE_S)
            self.steps += 1
            self._now_s[0] += 0.002


def test_work_gives_way_after_its_step_when_other_work_waits_for_a_thread() -> None:
    now_s = [0.0]
    pool = WorkerPool(2, lambda: now_s[0])
    first, second, waiting = (Hog(now_s) for _ in range(3))
    for hog in (first, second):
        pool.begin(hog, 1000, alone=False)
        hog.may_step.release(5)
        eventually(lambda hog=hog: hog.steps == 5)
    assert pool.take_finished() == []  # a quantum has room for many more steps
    pool.begin(waiting, 1000, alone=False)
    first.may_step.release()
    waiting.may_step.release()
    eventually(lambda: waiting.steps == 1)
    finished = pool.take_finished()
    for hog in (second, waiting):
        hog.may_step.release(50)
    pool.close()
    assert finished == [first]
