"""The supervisor's line to Triton's stubs: tells them where the engines are, notices when one of them dies."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dragoman.errors import ServeError
from dragoman.serving.link.stream import FrameStream
from dragoman.serving.metrics import series_frame
from dragoman.serving.triton.routes import RoutingTable

__all__ = ["StubDesk"]


class StubDesk:
    """Every stub of the running Triton connects here and is told each new routing table.

    Triton does not notice when a stub dies. Its connection does, at once: that sets `lost`.
    """

    def __init__(self, socket: Path, table: RoutingTable) -> None:
        self.socket, self.table = socket, table
        self.lost = asyncio.Event()
        self._streams: dict[FrameStream, str] = {}
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.socket)
        self.socket.chmod(0o600)

    def publish(self, table: RoutingTable) -> None:
        self.table = table
        frame = table.frame()
        for stream in self._streams:
            stream.send(frame)

    def forget_stubs(self) -> None:
        """Triton is being replaced: its stubs may go without being missed."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()
        self.lost.clear()

    def close(self) -> None:
        self.forget_stubs()
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = FrameStream(reader, writer)
        try:
            hello = await stream.receive()
            self._streams[stream] = hello.parts[0].decode()
            stream.send(series_frame())
            stream.send(self.table.frame())
            while True:
                await stream.receive()
        except ServeError:
            if self._streams.pop(stream, None) is not None:
                self.lost.set()
        finally:
            stream.close()
