"""A socket that carries frames and never blocks: what can't be sent now waits in a bounded backlog."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import threading
from collections import deque

from dragoman.errors import ServeError
from dragoman.serving.ipc.frames import MAX_FRAME_BYTES, Frame, FrameReader

__all__ = ["Channel", "ChannelClosed"]

_READ_BYTES = 1 << 18
_MANY_BYTES = 1 << 16
"""A sender of so many bytes probably sends more, and a socket buffers little: it is read as long as more comes …"""
_TIMES_AT_ONCE = 16
_MORE_COMES_S = 0.0002
"""… so soon, and written on while more is read. A short request, or a token behind an answer of megabytes, would wait for a
turn of the loop for each few hundred kilobytes before it otherwise."""
_BUFFERS_AT_ONCE = 256
"""Of one call of the system, which takes 1024 at most."""


class ChannelClosed(ServeError):
    """The other side is gone."""


class Channel:
    """Frames over one stream socket; `send` may be called from any thread, `receive` from one."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._reader = FrameReader()
        self._backlog = deque[bytes | memoryview]()  # none is empty
        self._backlog_bytes = 0
        self._has_more = False
        self._lock = threading.Lock()

    @classmethod
    def connect(cls, path: str) -> Channel:
        """To the process that listens at `path`."""
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.connect(path)
        except OSError as error:
            connected.close()
            raise ChannelClosed(f"no process listens at {path}: {error.strerror}") from error
        return cls(connected)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_backlog(self) -> bool:
        """Whether something waits for the other side to read."""
        return bool(self._backlog)

    @property
    def backlog_bytes(self) -> int:
        """How many bytes wait for the other side to read."""
        return self._backlog_bytes

    def send(self, frame: Frame) -> None:
        """Send at once what the socket accepts; the rest is sent by `flush`."""
        with self._lock:
            is_first = not self._backlog
            self._line_up(frame)
            if is_first:
                self._write()

    def post(self, frame: Frame) -> None:
        """Queue a frame for the next `flush`: several frames are then sent together and wake the other side once."""
        with self._lock:
            self._line_up(frame)

    def flush(self) -> None:
        """Send the backlog as far as the socket accepts it; a large one for as long as the other side keeps reading."""
        with self._lock:
            for _ in range(_TIMES_AT_ONCE):
                sent = self._write()
                if not (sent and self._backlog and select.select([], [self._socket], [], _MORE_COMES_S)[1]):
                    return

    def receive(self) -> list[Frame]:
        """The frames that have arrived; ChannelClosed when there will be no more."""
        frames, reads = self._receive_some(), 1
        while self._has_more and reads < _TIMES_AT_ONCE and select.select([self._socket], [], [], _MORE_COMES_S)[0]:
            try:
                frames += self._receive_some()
            except ChannelClosed:
                if not frames:
                    raise
                break  # it is found again at the next call
            reads += 1
        return frames

    def _receive_some(self) -> list[Frame]:
        self._has_more = False
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ChannelClosed(f"the connection broke: {error.strerror}") from error
        if not data:
            raise ChannelClosed("the other side has closed the connection")
        self._has_more = len(data) >= _MANY_BYTES
        return self._reader.feed(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def _line_up(self, frame: Frame) -> None:
        pieces = frame.pieces()
        size = sum(map(len, pieces))
        if self._backlog_bytes + size > MAX_FRAME_BYTES:
            raise ChannelClosed("the other side has stopped reading")
        self._backlog_bytes += size
        if size < _MANY_BYTES:
            self._backlog.append(b"".join(pieces))
        else:
            self._backlog.extend(filter(None, pieces))

    def _write(self) -> int:
        """Write as much of the backlog as the socket accepts; returns the number of bytes."""
        backlog = self._backlog
        if not backlog:
            return 0
        try:
            if len(backlog) == 1:
                sent = self._socket.send(backlog[0])
            else:
                sent = self._socket.sendmsg(itertools.islice(backlog, _BUFFERS_AT_ONCE))
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ChannelClosed(f"the connection broke: {error.strerror}") from error
        self._backlog_bytes -= sent
        if not self._backlog_bytes:
            backlog.clear()
            return sent
        left = sent
        while left >= len(backlog[0]):
            left -= len(backlog.popleft())
        if left:
            backlog[0] = memoryview(backlog[0])[left:]
        return sent
