"""The supervisor's connection to the Triton backend: publishes where the engines are, notices when it is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dragoman.errors import ServeError
from dragoman.serving.ipc.stream import FrameStream
from dragoman.serving.metrics import series_frame
from dragoman.serving.triton.routes import RoutingTable

__all__ = ["RoutePublisher"]


class RoutePublisher:
    """The backend of the running Triton connects here and is sent each new routing table.

    `lost` is set when that connection ends: the backend is gone, whatever else of Triton is still there.
    """

    def __init__(self, socket: Path, table: RoutingTable) -> None:
        self.socket, self.table = socket, table
        self.lost = asyncio.Event()
        self._streams: set[FrameStream] = set()
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.socket)
        self.socket.chmod(0o600)

    def publish(self, table: RoutingTable) -> None:
        self.table = table
        frame = table.frame()
        for stream in self._streams:
            stream.send(frame)

    def forget_backend(self) -> None:
        """Triton is being replaced: the end of its connection is expected."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()
        self.lost.clear()

    def close(self) -> None:
        self.forget_backend()
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = FrameStream(reader, writer)
        try:
            await stream.receive()  # HELLO
            self._streams.add(stream)
            stream.send(series_frame())
            stream.send(self.table.frame())
            while True:
                await stream.receive()
        except ServeError:
            if stream in self._streams:
                self._streams.discard(stream)
                self.lost.set()
        finally:
            stream.close()
