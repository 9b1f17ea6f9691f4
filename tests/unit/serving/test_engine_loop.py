"""The engine process's loop over real sockets: what one connection sends is never the end of the others."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_bundle import fake_bundle, fake_engine
from metric_frames import read_changes

from dragoman.serving.engine import Engine, EngineLimits
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, FrameReader, Kind
from dragoman.serving.metrics import PUBLISHED_BY
from dragoman.serving.process.connections import Connections
from dragoman.serving.process.loop import EngineLoop
from served import eventually

DEADLINE_S = 30.0


class Peer:
    """One end of a connection to the loop."""

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(DEADLINE_S)
        self._socket, self._reader = connected, FrameReader()
        self._frames: list[Frame] = []

    def send(self, kind: Kind, number: int = 0, *parts: bytes) -> None:
        self.send_bytes(Frame(kind, number, parts).encode())

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> Frame | None:
        """The next frame; None when the connection is closed."""
        while not self._frames:
            data = self._socket.recv(1 << 16)
            if not data:
                return None
            self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    def translate(self, number: int, text: bytes, options: bytes = b"") -> None:
        self.send(Kind.TRANSLATE, number, struct.pack("<d", time.monotonic()), options, text)

    def close(self) -> None:
        self._socket.close()


class Process:
    def __init__(self, directory: Path) -> None:
        ours, theirs = socket.socketpair()
        self.path = directory / "engine.sock"
        self.supervisor = Peer(ours)
        bundle = fake_bundle(fake_engine(EngineLimits(max_rows=8, max_beam_size=4)), cache_bytes=0)
        self._connections = Connections(Channel(theirs), self.path, bundle.engine.wakeup_fd)
        self._thread = threading.Thread(target=EngineLoop(bundle, self._connections, key="key").run)
        self._thread.start()

    def backend(self) -> Peer:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.connect(str(self.path))
        return Peer(connected)

    def stop(self) -> bool:
        self.supervisor.close()
        self._thread.join(DEADLINE_S)
        self._connections.close()
        return not self._thread.is_alive()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    running = Process(tmp_path)
    yield running
    assert running.stop(), "the loop did not end with its supervisor"


def test_a_request_is_answered(process: Process) -> None:
    backend = process.backend()
    backend.translate(3, b"hello")
    answer = backend.receive()
    assert answer is not None
    assert (answer.kind, answer.request) == (Kind.ANSWER, 3)
    backend.close()


def test_threads_switch_often_only_while_a_long_text_is_worked_on(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    intervals_s: list[float] = []
    monkeypatch.setattr(sys, "setswitchinterval", intervals_s.append)
    backend = process.backend()
    backend.translate(1, b"7. " * 30_000 + b"a")
    assert backend.receive() is not None
    eventually(lambda: intervals_s and len(intervals_s) % 2 == 0)
    assert intervals_s == [0.001, sys.getswitchinterval()] * (len(intervals_s) // 2)
    backend.close()


@pytest.mark.parametrize(
    "junk",
    [
        pytest.param(b"\xff" * 64, id="a length that no frame has"),
        pytest.param(struct.pack("<IBQI", 13, 99, 0, 0), id="an unknown kind"),
        pytest.param(struct.pack("<IBQII", 17, 2, 0, 1, 1000), id="a part that is not there"),
        pytest.param(Frame(Kind.READY).encode(), id="a kind that is not for engines"),
        pytest.param(Frame(Kind.TRANSLATE, 1).encode(), id="a request without parts"),
        pytest.param(Frame(Kind.REFUSED, 0, (b"many",)).encode(), id="a count that is none"),
        pytest.param(Frame(Kind.TRANSLATE, 1, (b"now", b"", b"x")).encode(), id="a request without its arrival"),
        pytest.param(Frame(Kind.DECODE, 1, (bytes(8), b"s")).encode(), id="a decode without a command"),
        pytest.param(Frame(Kind.STREAM, 1, (struct.pack("<d", float("inf")), b"", b"x")).encode(), id="an endless arrival"),
    ],
)
def test_what_is_no_request_closes_its_connection_and_no_other(process: Process, junk: bytes) -> None:
    bad, good = process.backend(), process.backend()
    bad.send_bytes(junk)
    assert bad.receive() is None
    good.translate(1, b"hello")
    answer = good.receive()
    assert answer is not None
    assert answer.kind is Kind.ANSWER
    bad.close()
    good.close()


def test_a_hello_without_a_name_is_no_reason_to_stop(process: Process) -> None:
    backend = process.backend()
    backend.send(Kind.HELLO)
    backend.translate(1, b"hello")
    answer = backend.receive()
    assert answer is not None
    assert answer.kind is Kind.ANSWER
    backend.close()


@pytest.mark.parametrize(
    "options",
    [
        b'{"length_penalty": 1' + b"0" * 310 + b"}",
        b'{"prefix_text": "\\ud800"}',
        b'{"beam_size": ' + b"[" * 984 + b"]" * 984 + b"}",
    ],
)
def test_a_poisonous_request_is_refused_and_the_next_one_answered(process: Process, options: bytes) -> None:
    backend = process.backend()
    backend.translate(1, b"hello", options)
    backend.translate(2, b"hello")
    answers = {frame.request: frame for frame in (backend.receive(), backend.receive()) if frame is not None}
    assert answers[1].parts[0] == b"INVALID_REQUEST"
    assert answers[2].kind is Kind.ANSWER
    backend.close()


def test_heartbeats_are_sent_while_a_long_text_is_tokenised(process: Process) -> None:
    backend = process.backend()
    backend.translate(1, b"a\n" * 20_000)
    process.supervisor.send(Kind.PING)
    pong = process.supervisor.receive()
    assert pong is not None
    assert pong.kind is Kind.PONG
    assert set(json.loads(pong.parts[0])) == {"progress", "open_requests", "longest_step_s"}
    backend.translate(2, b"hello")
    first = backend.receive()
    assert first is not None
    assert first.request == 2  # the small one does not wait for the large one
    backend.send(Kind.CANCEL, 1)
    cancelled = backend.receive()
    assert cancelled is not None
    assert (cancelled.request, cancelled.parts[0]) == (1, b"CANCELLED")
    backend.close()


def test_a_drained_process_ends_when_it_has_answered(process: Process) -> None:
    backend = process.backend()
    backend.translate(1, b"hello\nworld")
    process.supervisor.send(Kind.DRAIN)
    answer = backend.receive()
    assert answer is not None
    assert answer.kind is Kind.ANSWER
    until_s = time.monotonic() + DEADLINE_S
    while process.is_running and time.monotonic() < until_s:
        threading.Event().wait(0.01)
    assert not process.is_running
    backend.close()


def test_a_backend_is_told_how_many_requests_the_queue_takes(process: Process) -> None:
    backend = process.backend()
    backend.send(Kind.HELLO, 0, PUBLISHED_BY)
    room = backend.receive()
    while room is not None and room.kind is Kind.METRICS:
        room = backend.receive()
    assert room is not None
    assert room.kind is Kind.ROOM
    assert struct.unpack("<QQQ", room.parts[0])[:2] == (0, EngineLimits().max_queue_requests)
    backend.close()


def test_requests_refused_by_a_backend_are_in_the_metrics(process: Process) -> None:
    backend = process.backend()
    backend.send(Kind.HELLO, 0, PUBLISHED_BY)
    backend.send(Kind.REFUSED, 0, struct.pack("<Q", 7))
    counted = 0.0
    while counted < 7:
        frame = backend.receive()
        assert frame is not None
        if frame.kind is Kind.METRICS:
            counted += {name: amount for name, _, amount in read_changes(frame)}.get("dragoman_refusals_total", 0)
    assert counted == 7
    backend.close()


def test_a_process_whose_device_is_lost_ends_without_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the request is given to another engine."""
    process = Process(tmp_path)
    backend = process.backend()
    monkeypatch.setattr(Engine, "is_lost", True)
    backend.translate(1, b"It is lost.")
    process._thread.join(DEADLINE_S)
    assert not process.is_running
    assert process.stop()
    assert backend.receive() is None
    backend.close()
