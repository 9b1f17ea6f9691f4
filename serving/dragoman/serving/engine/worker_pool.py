"""Runs quanta: in the engine's own thread, or in several threads, one for each call that runs at once."""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

__all__ = ["Longest", "Work", "WorkerPool"]

_QUANTUM_S = 0.05
"""A batch with a thread takes many steps in a quantum, but the engine hears of it so often at least …"""

_SHARED_QUANTUM_S = 0.005
"""… and when other work waits for a thread, it gives way after this time: small models do several steps in it."""

_SHORT_QUANTUM_S = 0.0006
"""In the engine's own thread a quantum has as many steps as fit into this time: a new sequence waits that long, and what the
engine does between quanta costs as much as a fifth of a short step."""

Clock = Callable[[], float]
Longest = Callable[[], float]
"""How long a quantum may take, in seconds; less from the moment at which other work waits for its thread."""


class Work(Protocol):
    """What is done in quanta: a batch, or the client-driven sessions. A worker owns it while it is `at_work`."""

    at_work: bool
    began_s: float

    def steps_within(self, time_s: float) -> int: ...

    def run_quantum(self, max_steps: int, longest: Longest, clock: Clock) -> None: ...


_Begun = SimpleQueue[tuple[Work, int] | None]
_Finished = SimpleQueue[Work]


class WorkerPool:
    """`size` threads, or none when one is enough. In the engine's own thread a quantum is over when `begin` returns.

    Work belongs to the thread that runs its quantum until `take_finished` gives it back. Nothing else is shared.
    """

    def __init__(self, size: int, clock: Clock) -> None:
        self.size, self._clock = size, clock
        self._begun: _Begun = SimpleQueue()
        self._finished: _Finished = SimpleQueue()
        self._wakeup_fd: int | None = None
        if size > 1:
            self._wakeup_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            shared = (self._begun, self._finished, self._wakeup_fd, clock)
            threads = [threading.Thread(target=_work, args=shared, daemon=True, name=f"worker-{n}") for n in range(size)]
            for thread in threads:
                thread.start()
            self._end_threads = weakref.finalize(self, _end, threads, self._begun, self._wakeup_fd)

    @property
    def wakeup_fd(self) -> int | None:
        """A file descriptor that becomes readable when a quantum has ended; None without threads."""
        return self._wakeup_fd

    def begin(self, work: Work, max_steps: int, alone: bool) -> None:
        """Run a quantum; the work is `at_work` while a thread runs it. Work that is `alone` needs no thread."""
        if self._wakeup_fd is None or alone:
            work.run_quantum(min(max_steps, work.steps_within(_SHORT_QUANTUM_S)), _short_quantum, self._clock)
        else:
            work.at_work, work.began_s = True, math.inf  # until a thread takes it: waiting work does not hang
            self._begun.put((work, max_steps))

    def take_finished(self) -> list[Work]:
        """Work whose quantum in a thread has ended since the last call."""
        if self._wakeup_fd is None:
            return []
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wakeup_fd)
        return [self._finished.get() for _ in range(self._finished.qsize())]

    def wake(self) -> None:
        """End the next `wait` at once."""
        if self._wakeup_fd is not None:
            os.eventfd_write(self._wakeup_fd, 1)

    def close(self) -> None:
        """End the threads after their current quanta. Also done when the pool is garbage-collected."""
        if self._wakeup_fd is not None:
            self._end_threads()

    def wait(self, timeout_s: float | None) -> None:
        """Block until a quantum has ended in a thread; returns at once without threads."""
        if self._wakeup_fd is not None:
            select.select([self._wakeup_fd], [], [], timeout_s)


def _short_quantum() -> float:
    return _SHORT_QUANTUM_S


def _work(begun: _Begun, finished: _Finished, wakeup_fd: int, clock: Clock) -> None:
    def longest() -> float:
        return _QUANTUM_S if begun.empty() else _SHARED_QUANTUM_S

    while (given := begun.get()) is not None:
        work, max_steps = given
        work.began_s = clock()
        work.run_quantum(max_steps, longest, clock)
        finished.put(work)
        os.eventfd_write(wakeup_fd, 1)
        del given, work  # a thread that waits holds on to nothing


def _end(threads: list[threading.Thread], begun: _Begun, wakeup_fd: int) -> None:
    for _ in threads:
        begun.put(None)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join()
    os.close(wakeup_fd)
