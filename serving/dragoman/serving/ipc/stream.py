"""Frames over an asyncio stream: the supervisor's side."""

from __future__ import annotations

import asyncio
import socket
from collections import deque

from dragoman.serving.ipc.channel import ChannelClosed
from dragoman.serving.ipc.frames import Frame, FrameReader

__all__ = ["FrameStream"]

_READ_BYTES = 1 << 16


class FrameStream:
    """`Channel` for asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader()
        self._arrived: deque[Frame] = deque()

    @classmethod
    async def over(cls, connected: socket.socket) -> FrameStream:
        return cls(*await asyncio.open_unix_connection(sock=connected))

    async def receive(self) -> Frame:
        """The next frame; ChannelClosed when there is none."""
        while not self._arrived:
            try:
                data = await self._reader.read(_READ_BYTES)
            except OSError as error:
                raise ChannelClosed(f"the connection broke: {error}") from error
            if not data:
                raise ChannelClosed("the other side has closed the connection")
            self._arrived += self._frames.feed(data)
        return self._arrived.popleft()

    def send(self, frame: Frame) -> None:
        """Frames to child processes are small; a child that does not read them is killed before they pile up."""
        if not self._writer.is_closing():
            self._writer.write(frame.encode())

    def close(self) -> None:
        self._writer.close()
