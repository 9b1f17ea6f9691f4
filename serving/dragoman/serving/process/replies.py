"""The frames that answer requests. Every request gets exactly one last frame: its ANSWER, or an ERROR."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dragoman.serving.failures import Failure, cause_of
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.serving.logs import event as log_event
from dragoman.wire import ErrorCode

__all__ = ["Replies"]

_log = logging.getLogger(__name__)


class Replies:
    """Sends them by the number that a request has on its connection."""

    def __init__(self, send: Callable[[Channel, Frame], None]) -> None:
        self._send = send

    def chunk(self, channel: Channel, number: int, text: str) -> None:
        """A piece of a stream, when there is any text in it."""
        if text:
            self._send(channel, Frame(Kind.CHUNK, number, (text.encode(), b"{}")))

    def answer(self, channel: Channel, number: int, parts: tuple[bytes, ...]) -> None:
        self._send(channel, Frame(Kind.ANSWER, number, parts))

    def failure(self, channel: Channel, number: int, error: Exception, request_id: str = "") -> None:
        """What went wrong, as callers may know it; the rest goes to the log."""
        failure = Failure.of(error)
        if failure.code is ErrorCode.INTERNAL:
            log_event(_log, logging.ERROR, "request failed", {"request_id": request_id, **cause_of(error)})
        self._send(channel, Frame(Kind.ERROR, number, (failure.code.value.encode(), failure.text.encode())))
