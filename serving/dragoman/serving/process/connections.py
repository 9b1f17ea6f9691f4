"""The engine process's sockets: its supervisor, its listening socket and the stubs that came in through it."""

from __future__ import annotations

import os
import selectors
import socket
from pathlib import Path

from dragoman.errors import ServeError
from dragoman.serving.link.channel import Channel, ChannelClosed
from dragoman.serving.link.frames import Frame

__all__ = ["Connections"]


class Connections:
    """Everything that can be read or written, without ever waiting for one of them in particular."""

    def __init__(self, supervisor: Channel, listens_at: Path, bell: int | None = None) -> None:
        """`bell` can be read when there is something else to do than to receive."""
        self.supervisor = supervisor
        self._listens_at = listens_at
        self._listening = _listen(listens_at)
        self._selector = selectors.DefaultSelector()
        self._selector.register(supervisor, selectors.EVENT_READ, supervisor)
        self._selector.register(self._listening, selectors.EVENT_READ, self._listening)
        if bell is not None:
            self._selector.register(bell, selectors.EVENT_READ)
        self._posted: set[Channel] = set()
        self._writing: set[Channel] = set()
        self._lost: list[Channel] = []

    def receive(self, patience_s: float) -> list[tuple[Channel, Frame]]:
        """What has arrived; waits for it no longer than `patience_s`, and not while the bell rings."""
        arrived: list[tuple[Channel, Frame]] = []
        for key, events in self._selector.select(patience_s):
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
            except ServeError:
                self._lose(key.data)
        return arrived

    def send(self, channel: Channel, frame: Frame) -> None:
        """To someone who may be gone (`take_lost` says if so); it goes out with `flush`."""
        try:
            channel.post(frame)
        except ChannelClosed:
            self._lose(channel)
        else:
            self._posted.add(channel)

    def flush(self) -> None:
        """Send what was said in this turn; what somebody can't take yet follows when he can."""
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
        """Those who have gone since the last call."""
        lost, self._lost = self._lost, []
        return lost

    @property
    def has_backlog(self) -> bool:
        """Does somebody still have to read what we sent?"""
        return bool(self._writing)

    def close(self) -> None:
        self._listening.close()
        self._listens_at.unlink(missing_ok=True)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Channel):
                key.data.close()
        self._selector.close()

    def _accept(self) -> None:
        connected, _ = self._listening.accept()
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
    mask = os.umask(0o177)  # the socket is its owner's alone from its first moment
    try:
        listening.bind(str(path))
    finally:
        os.umask(mask)
    listening.listen()
    return listening
