"""Requests that run while their stubs do not know it yet."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from dragoman.serving.link.channel import Channel
from dragoman.serving.link.frames import Frame, Kind
from dragoman.serving.process.jobs import Job

__all__ = ["UNTOLD_S", "Starts"]

UNTOLD_S = 0.02
"""A stub hears so late that a request runs: telling it wakes it up as an answer does, and most are answered before."""


class Starts:
    """What a stub has not heard of when an engine dies, it gives to the next engine, once: no request is lost by that."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since_s: dict[Job, float] = {}  # the oldest first

    def add(self, job: Job) -> None:
        """A part of the job has joined the running batch; only the first one counts."""
        if not job.said_started:
            job.said_started = True
            self._since_s[job] = self._clock()

    def drop(self, job: Job) -> None:
        """The job has ended."""
        self._since_s.pop(job, None)

    def take_due(self) -> list[tuple[Channel, Frame]]:
        """Everything that has not been told, a frame for each stub, when it is time for the oldest."""
        oldest_s = next(iter(self._since_s.values()), None)
        if oldest_s is None or self._clock() - oldest_s < UNTOLD_S:
            return []
        numbers: dict[Channel, list[int]] = {}
        for job in self._since_s:
            numbers.setdefault(job.origin, []).append(job.number)
        self._since_s.clear()
        return [
            (channel, Frame(Kind.STARTED, 0, (struct.pack(f"<{len(theirs)}Q", *theirs),)))
            for channel, theirs in numbers.items()
        ]
