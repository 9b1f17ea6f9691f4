"""What the tests of the EngineClient put around it: a supervisor, engines, and callers that remember their answers."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.serving.triton.routes import RoutingTable
from dragoman.wire import ErrorCode
from engine_client import EngineClient

__all__ = ["Peer", "Recorded", "Stage"]


class Peer:
    """A process that the client connects to."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen()
        self._listening.settimeout(5)
        self._arrived: list[Frame] = []

    def accept(self) -> Peer:
        self.channel = Channel(self._listening.accept()[0])
        return self

    def next_frame(self) -> Frame:
        with selectors.DefaultSelector() as selector:
            selector.register(self.channel, selectors.EVENT_READ)
            while not self._arrived:
                assert selector.select(timeout=600), "nothing arrived"
                self._arrived += self.channel.receive()
        return self._arrived.pop(0)

    def die(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.channel.close()
        self._listening.close()


class Recorded:
    """A reply that remembers, and notices when it is touched after its last response."""

    def __init__(self) -> None:
        self.delivered: list[Frame] = []
        self.failure = ""
        self.details: dict[str, object] = {}
        self.cancelled = False
        self.ended = threading.Event()
        self.touched_late = False

    def deliver(self, frame: Frame) -> None:
        self.touched_late |= self.ended.is_set()
        self.delivered.append(frame)
        if frame.kind is Kind.ANSWER:
            self.ended.set()

    def fail(self, text: str, details: bytes) -> None:
        self.touched_late |= self.ended.is_set()
        self.failure, self.details = text, json.loads(details)
        self.ended.set()

    def is_cancelled(self) -> bool:
        self.touched_late |= self.ended.is_set()
        return self.cancelled

    def code(self) -> ErrorCode | None:
        assert self.ended.wait(120), "no last response"
        assert not self.touched_late
        return ErrorCode(self.failure.partition(":")[0].partition(" ")[0]) if self.failure else None


class Stage:
    """A supervisor, the client under test, and as many engines as the test starts."""

    def __init__(self, directory: Path, bundles: tuple[str, ...] = ("en-de",), hold_s: float = 5.0) -> None:
        self.directory = directory
        self.supervisor = Peer(directory / "supervisor.sock")
        self.table = RoutingTable(bundles=bundles, hold_s=hold_s)
        self.client = EngineClient(self.supervisor.path)
        self.supervisor.accept()
        assert self.supervisor.next_frame().kind is Kind.HELLO
        self.engines: list[Peer] = []

    def engine(self, name: str = "en-de-1", bundle: str = "en-de", beside: tuple[Peer, ...] = ()) -> Peer:
        peer = Peer(self.directory / f"{name}.sock")
        self.engines.append(peer)
        self.publish(sockets={**self.table.sockets, bundle: tuple(each.path for each in (*beside, peer))})
        peer.accept()
        assert peer.next_frame().kind is Kind.HELLO
        return peer

    def publish(self, **changes: object) -> None:
        self.table = dataclasses.replace(self.table, **changes)  # type: ignore[arg-type]
        told = self.client.tables
        self.supervisor.channel.send(self.table.frame())
        self.until(lambda: self.client.tables > told)

    def engine_with_room(self, name: str = "en-de-1", *, read: int, places: int, retry_after_ms: int = 100) -> Peer:
        peer = self.engine(name)
        self.tell_room(peer, read=read, places=places, retry_after_ms=retry_after_ms)
        return peer

    def send_room(self, engine: Peer, *, read: int, places: int, retry_after_ms: int = 100) -> None:
        engine.channel.send(Frame(Kind.ROOM, 0, (struct.pack("<QQQ", read, places, retry_after_ms),)))

    def tell_room(self, engine: Peer, *, read: int, places: int, retry_after_ms: int = 100) -> None:
        """The client has read it when it has answered what was sent behind it."""
        reply = self.submit(Kind.ENCODE)
        number = engine.next_frame().request
        self.send_room(engine, read=read, places=places, retry_after_ms=retry_after_ms)
        engine.channel.send(Frame(Kind.ANSWER, number, ()))
        assert reply.code() is None

    def submit(
        self, kind: Kind = Kind.TRANSLATE, parts: tuple[bytes, ...] = (b"", b"hello"), model: bytes = b""
    ) -> Recorded:
        reply = Recorded()
        self.client.submit(kind, model, parts, reply)
        return reply

    def kill_two_engines_with(self, *requests: tuple[bytes, ...]) -> list[Recorded]:
        """Two engines that die one after the other with the same requests in hand."""
        engine = self.engine("doomed-1")
        replies = [self.submit(parts=parts) for parts in requests]
        for name in ("doomed-2", ""):
            for _ in requests:
                engine.next_frame()
            engine.die()
            if name:
                engine = self.engine(name)
        return replies

    def until(self, holds: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 5
        while not holds():
            assert time.monotonic() < deadline_s
            threading.Event().wait(0.005)

    def close(self) -> None:
        self.client.close()
        for peer in (*self.engines, self.supervisor):
            peer.die()
