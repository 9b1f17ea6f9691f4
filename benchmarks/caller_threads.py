"""Threads that call a server again and again until a block ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

__all__ = ["CallerThreads"]

_STOP_S = 60.0


class CallerThreads:
    """One thread for each of `calls`, which repeats it without a pause; a call has to handle its own errors."""

    def __init__(self, calls: Iterable[Callable[[], None]]) -> None:
        self.stopped = threading.Event()
        self._threads = [threading.Thread(target=self._repeat, args=(call,), daemon=True) for call in calls]

    def __enter__(self) -> CallerThreads:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stopped.set()
        for thread in self._threads:
            thread.join(_STOP_S)

    @property
    def unfinished(self) -> int:
        """How many threads still run after the block: their calls have got no answer."""
        return sum(thread.is_alive() for thread in self._threads)

    def _repeat(self, call: Callable[[], None]) -> None:
        while not self.stopped.is_set():
            call()
