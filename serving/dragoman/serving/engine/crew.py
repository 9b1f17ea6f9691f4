"""Who lets lanes take their turns: the engine's own thread, or several beside it, one for each call that runs at once."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue

from dragoman.serving.engine.running import RunningLane

__all__ = ["Crew"]

_TURN_S = 0.05
"""A lane with a thread takes many steps in a turn, but the engine hears of it so often at least."""

_SHORT_TURN_S = 0.0003
"""In the engine's own thread lanes take as many steps as this time has room for: whoever comes meanwhile waits so long, and
what the engine does between turns costs as much as a fifth of a short step."""

Clock = Callable[[], float]
_Begun = SimpleQueue[tuple[RunningLane, int] | None]
_Finished = SimpleQueue[RunningLane]


class Crew:
    """`size` threads, or none when one is enough. In the engine's own thread a turn is short, and over when `begin` returns.

    A lane belongs to the thread that runs its turn until `take_finished` gives it back. Nothing else is shared.
    """

    def __init__(self, size: int, clock: Clock) -> None:
        self.size, self._clock = size, clock
        self._begun: _Begun = SimpleQueue()
        self._finished: _Finished = SimpleQueue()
        self._bell: int | None = None
        if size > 1:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            shared = (self._begun, self._finished, self._bell, clock)
            threads = [threading.Thread(target=_work, args=shared, daemon=True, name=f"lane-{n}") for n in range(size)]
            for thread in threads:
                thread.start()
            self._dismissed = weakref.finalize(self, _dismiss, threads, self._begun, self._bell)

    @property
    def bell(self) -> int | None:
        """A file descriptor that can be read when a turn has ended; None without threads."""
        return self._bell

    def begin(self, lane: RunningLane, most_steps: int, alone: bool) -> None:
        """Let the lane take its turn; it is `at_work` when that goes on in a thread. Who is `alone` needs none."""
        if self._bell is None or alone:
            lane.take_turn(min(most_steps, lane.steps_within(_SHORT_TURN_S)), _SHORT_TURN_S, self._clock)
        else:
            lane.at_work, lane.began_s = True, self._clock()
            self._begun.put((lane, most_steps))

    def take_finished(self) -> list[RunningLane]:
        """Lanes whose turn in a thread has ended since the last call."""
        if self._bell is None:
            return []
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        return [self._finished.get() for _ in range(self._finished.qsize())]

    def ring(self) -> None:
        """End the next `wait` at once."""
        if self._bell is not None:
            os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """End the threads, after the turns that run. A crew that is forgotten does it by itself, when Python finds out."""
        if self._bell is not None:
            self._dismissed()

    def wait(self, timeout_s: float | None) -> None:
        """Until a turn has ended in a thread; at once without threads."""
        if self._bell is not None:
            select.select([self._bell], [], [], timeout_s)


def _work(begun: _Begun, finished: _Finished, bell: int, clock: Clock) -> None:
    while (work := begun.get()) is not None:
        lane, most_steps = work
        lane.take_turn(most_steps, _TURN_S, clock)
        finished.put(lane)
        os.eventfd_write(bell, 1)
        del work, lane  # whoever waits holds on to nothing


def _dismiss(threads: list[threading.Thread], begun: _Begun, bell: int) -> None:
    for _ in threads:
        begun.put(None)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join()
    os.close(bell)
