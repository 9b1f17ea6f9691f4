"""Tells the Triton backends how much room the engine's queue has, so that they refuse by themselves what would not fit."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from dragoman.errors import ServeError
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind

__all__ = ["QueueRoom", "read_refused"]

_ROOM = struct.Struct("<QQQ")
_COUNT = struct.Struct("<Q")
_SHORT_QUEUE = 256
"""A queue of no more places is short."""


@dataclass(slots=True)
class _Backend:
    read: int = 0
    """Requests that have been read from its connection."""
    last: int | None = None
    """By what it was told, the number of its first request that finds no place; None before it was told anything."""


class QueueRoom:
    """Under overload most requests are refused, and a refusal must not wait for the current decoder step.

    A backend counts the requests that it sends. The engine tells it how many of them it had read, and how many more fitted
    at that time, so the backend knows at every moment whether another request would fit, including those on their way. While
    there is room for half of a long queue, a backend that believes in at least as much is told nothing new. For a short
    queue it is told every change: a few simultaneous requests are more than half of it.
    """

    def __init__(self, places: int, send: Callable[[Channel, Frame], None]) -> None:
        self._exact_below, self._send = max(places // 2, _SHORT_QUEUE), send
        self._backends: dict[Channel, _Backend] = {}

    def add(self, channel: Channel) -> None:
        """A backend has introduced itself; it has sent nothing yet."""
        self._backends.setdefault(channel, _Backend())

    def remove(self, channel: Channel) -> None:
        self._backends.pop(channel, None)

    def count(self, channel: Channel) -> None:
        """A request has been read."""
        if backend := self._backends.get(channel):
            backend.read += 1

    def publish(self, places: int, retry_after_s: float) -> None:
        """Tell the backends whose information is outdated, if that matters."""
        for channel, backend in self._backends.items():
            last = backend.read + places
            believed = places if backend.last is None else backend.last - backend.read
            if backend.last is None or (last != backend.last and min(believed, places) < self._exact_below):
                backend.last = last
                wait_ms = max(1, round(retry_after_s * 1000))
                self._send(channel, Frame(Kind.ROOM, 0, (_ROOM.pack(backend.read, places, wait_ms),)))


def read_refused(frame: Frame) -> int:
    """How many requests a backend has refused."""
    if len(frame.parts) != 1 or len(frame.parts[0]) != _COUNT.size:
        raise ServeError("a REFUSED frame holds one number")
    return int(_COUNT.unpack(frame.parts[0])[0])
