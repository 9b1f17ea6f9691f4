"""The engine process's sockets: its supervisor, its listening socket and the backends that connected to it."""

from __future__ import annotations

import logging
import os
import selectors
import socket
from pathlib import Path

from dragoman.serving.failures import cause_of
from dragoman.serving.ipc.channel import Channel, ChannelClosed
from dragoman.serving.ipc.frames import Frame
from dragoman.serving.logs import event as log_event

__all__ = ["Connections"]

_log = logging.getLogger(__name__)


class Connections:
    """All sockets to read from and write to, without ever waiting for a single one."""

    def __init__(self, supervisor: Channel, listens_at: Path, wakeup_fd: int | None = None) -> None:
        """`wakeup_fd` becomes readable when there is other work than receiving."""
        self.supervisor = supervisor
        self._listens_at = listens_at
        self._listening = _listen(listens_at)
        self._selector = selectors.DefaultSelector()
        self._selector.register(supervisor, selectors.EVENT_READ, supervisor)
        self._selector.register(self._listening, selectors.EVENT_READ, self._listening)
        if wakeup_fd is not None:
            self._selector.register(wakeup_fd, selectors.EVENT_READ)
        self._posted: set[Channel] = set()
        self._writing: set[Channel] = set()
        self._lost: list[Channel] = []

    def receive(self, timeout_s: float) -> list[tuple[Channel, Frame]]:
        """The frames that have arrived; waits at most `timeout_s`, and not while `wakeup_fd` is readable.

        A connection that breaks, or sends something that is no frame, is closed.
        """
        arrived: list[tuple[Channel, Frame]] = []
        for key, events in self._selector.select(timeout_s):
            if key.data is None:
                continue
            if key.data is self._listening:
                self._accept()
                continue
            try:
                if events & selectors.EVENT_WRITE:
                    self._go_on_writing(key.data)
                if events & selectors.EVENT_READ:
                    arrived += [(key.data, frame) for frame in key.data.receive()]
            except Exception as error:
                if not isinstance(error, ChannelClosed):
                    log_event(_log, logging.ERROR, "connection closed", cause_of(error))
                self._lose(key.data)
        return arrived

    def drop(self, channel: Channel) -> None:
        """Close a connection whose other side violates the protocol; `take_lost` returns it."""
        self._lose(channel)

    def send(self, channel: Channel, frame: Frame) -> None:
        """Queue a frame for a connection, which may be closed (`take_lost` then returns it); `flush` sends it."""
        try:
            channel.post(frame)
        except ChannelClosed:
            self._lose(channel)
        else:
            self._posted.add(channel)

    def flush(self) -> None:
        """Send what was posted in this turn; what a connection does not accept yet is sent when it does."""
        posted, self._posted = self._posted, set()
        for channel in posted - self._writing:
            try:
                channel.flush()
            except ChannelClosed:
                self._lose(channel)
                continue
            if channel.has_backlog:
                self._writing.add(channel)
                self._selector.modify(channel, selectors.EVENT_READ | selectors.EVENT_WRITE, channel)

    def take_lost(self) -> list[Channel]:
        """Connections that were closed since the last call."""
        lost, self._lost = self._lost, []
        return lost

    @property
    def has_backlog(self) -> bool:
        """Whether there is anything that the other sides have not read yet."""
        return bool(self._writing)

    def close(self) -> None:
        self._listening.close()
        self._listens_at.unlink(missing_ok=True)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Channel):
                key.data.close()
        self._selector.close()

    def _accept(self) -> None:
        try:
            connected, _ = self._listening.accept()
        except OSError as error:  # disconnected again, or too many open files
            log_event(_log, logging.ERROR, "connection not accepted", {"reason": error.strerror})
            return
        channel = Channel(connected)
        self._selector.register(channel, selectors.EVENT_READ, channel)

    def _go_on_writing(self, channel: Channel) -> None:
        channel.flush()
        if not channel.has_backlog:
            self._writing.discard(channel)
            self._selector.modify(channel, selectors.EVENT_READ, channel)

    def _lose(self, channel: Channel) -> None:
        if channel.fileno() < 0:
            return  # lost already
        self._lost.append(channel)
        self._writing.discard(channel)
        self._selector.unregister(channel)
        channel.close()


def _listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)  # only the owner may connect, from the first moment
    try:
        listening.bind(str(path))
    finally:
        os.umask(mask)
    listening.listen()
    listening.setblocking(False)  # `accept` must not wait for a caller that has disconnected again
    return listening
