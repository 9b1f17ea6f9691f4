"""When the collector of reference cycles runs.

It looks at every object that is alive: beside forty pages of 100 kB that took 0.27 s, in which nobody's token was decoded.
Nothing that a request leaves behind is a cycle, so the collector is off, and only looks after what was not thought of.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

__all__ = ["GarbageCollector"]

_AT_REST_S = 10.0
_ALWAYS_S = 600.0


class GarbageCollector:
    """Of the engine process; what is loaded when it is made stays for good."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()
        self._clock = clock
        self._last_s = clock()

    def run(self, *, at_rest: bool) -> None:
        """Collect if it is time: soon when there is nothing else to do, and seldom in any case."""
        now_s = self._clock()
        if now_s - self._last_s >= (_AT_REST_S if at_rest else _ALWAYS_S):
            self._last_s = now_s
            gc.collect()
