"""The server's end of the link, in Python and in C++, between a supervisor and engines that do what the test says."""

from __future__ import annotations

import contextlib
import dataclasses
import selectors
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragoman.serving.failures import Failure
from dragoman.serving.link.channel import Channel
from dragoman.serving.link.frames import Frame, Kind
from dragoman.serving.triton.routes import RoutingTable
from dragoman.serving.triton.stub_link import StubLink
from dragoman.wire import ErrorCode
from native_link import NativeLink, can_compile

Link = StubLink | NativeLink


class Peer:
    """Somebody the stub connects to."""

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
                assert selector.select(timeout=5), "nothing arrived"
                self._arrived += self.channel.receive()
        return self._arrived.pop(0)

    def die(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.channel.close()
        self._listening.close()


class Recorded:
    """A reply that remembers, and complains when it is touched after its last word."""

    def __init__(self) -> None:
        self.delivered: list[Frame] = []
        self.failure: Failure | None = None
        self.cancelled = False
        self.ended = threading.Event()
        self.touched_late = False

    def deliver(self, frame: Frame) -> None:
        self.touched_late |= self.ended.is_set()
        self.delivered.append(frame)
        if frame.kind is Kind.ANSWER:
            self.ended.set()

    def fail(self, failure: Failure) -> None:
        self.touched_late |= self.ended.is_set()
        self.failure = failure
        self.ended.set()

    def is_cancelled(self) -> bool:
        self.touched_late |= self.ended.is_set()
        return self.cancelled

    def code(self) -> ErrorCode | None:
        assert self.ended.wait(5), "no last word"
        assert not self.touched_late
        return self.failure.code if self.failure else None


class Stage:
    """A supervisor, the link under test, and as many engines as the test starts."""

    def __init__(
        self, kind: type[Link], directory: Path, bundles: tuple[str, ...] = ("en-de",), hold_s: float = 5.0
    ) -> None:
        self.directory = directory
        self.supervisor = Peer(directory / "supervisor.sock")
        self.table = RoutingTable(bundles=bundles, hold_s=hold_s)
        self.link = kind(self.supervisor.path, "translate")
        self.supervisor.accept()
        assert self.supervisor.next_frame().parts[0] == b"translate"
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
        told = self.link.tables
        self.supervisor.channel.send(self.table.frame())
        self.until(lambda: self.link.tables > told)

    def submit(self, kind: Kind = Kind.TRANSLATE, parts: tuple[bytes, ...] = (b"", b"hello")) -> Recorded:
        reply = Recorded()
        self.link.submit(kind, parts, reply)
        return reply

    def until(self, holds: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 5
        while not holds():
            assert time.monotonic() < deadline_s
            threading.Event().wait(0.005)

    def close(self) -> None:
        self.link.close()
        for peer in (*self.engines, self.supervisor):
            peer.die()


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as short:  # unix sockets have short names only
        yield Path(short)


@pytest.fixture(params=[StubLink, pytest.param(NativeLink, marks=can_compile)])
def kind(request: pytest.FixtureRequest) -> type[Link]:
    """Which of them is tested."""
    chosen: type[Link] = request.param
    return chosen


@pytest.fixture
def stage(kind: type[Link], directory: Path) -> Iterator[Stage]:
    stage = Stage(kind, directory)
    yield stage
    stage.close()


def started(number: int) -> Frame:
    return Frame(Kind.STARTED, 0, (struct.pack("<Q", number),))


def test_a_request_reaches_the_engine_and_its_answer_the_caller(stage: Stage) -> None:
    engine = stage.engine()
    reply = stage.submit(parts=(b"{}", b"hello"))
    request = engine.next_frame()
    assert (request.kind, request.parts[1:]) == (Kind.TRANSLATE, (b"{}", b"hello"))
    engine.channel.send(Frame(Kind.ANSWER, request.request, (b"done",)))
    assert reply.code() is None
    assert reply.delivered[0].parts == (b"done",)


def test_chunks_come_before_the_last_word(stage: Stage) -> None:
    engine = stage.engine()
    reply = stage.submit(Kind.STREAM)
    number = engine.next_frame().request
    for kind in (Kind.CHUNK, Kind.CHUNK, Kind.ANSWER):
        engine.channel.send(Frame(kind, number, (b"x", b"{}")))
    assert reply.code() is None
    assert [frame.kind for frame in reply.delivered] == [Kind.CHUNK, Kind.CHUNK, Kind.ANSWER]


def test_an_error_is_passed_on_as_it_was_said(stage: Stage) -> None:
    engine = stage.engine()
    reply = stage.submit()
    engine.channel.send(Frame(Kind.ERROR, engine.next_frame().request, (b"INVALID_REQUEST", b"INVALID_REQUEST: no")))
    assert reply.code() is ErrorCode.INVALID_REQUEST
    assert reply.failure is not None
    assert reply.failure.text == "INVALID_REQUEST: no"


def test_work_that_had_begun_is_refused_when_its_engine_dies(stage: Stage) -> None:
    engine = stage.engine()
    reply = stage.submit()
    engine.channel.send(started(engine.next_frame().request))
    engine.channel.send(Frame(Kind.CHUNK, 1, (b"seen", b"{}")))
    stage.until(lambda: bool(reply.delivered))
    engine.die()
    assert reply.code() is ErrorCode.RESTARTING


def test_a_stream_that_was_heard_is_not_told_again_by_another_engine(stage: Stage) -> None:
    engine = stage.engine()
    reply = stage.submit(Kind.STREAM)
    engine.channel.send(Frame(Kind.CHUNK, engine.next_frame().request, (b"seen", b"{}")))
    stage.until(lambda: bool(reply.delivered))
    engine.die()
    assert reply.code() is ErrorCode.RESTARTING


def test_work_that_only_waited_is_kept_for_the_next_engine(stage: Stage) -> None:
    engine = stage.engine()
    reply = stage.submit(parts=(b"", b"kept"))
    engine.next_frame()
    engine.die()
    successor = stage.engine("en-de-2")
    request = successor.next_frame()
    assert request.parts[2] == b"kept"
    successor.channel.send(Frame(Kind.ANSWER, request.request, ()))
    assert reply.code() is None


def test_the_engine_with_the_least_to_do_gets_the_next_request(stage: Stage) -> None:
    one = stage.engine("en-de-1-1")
    other = stage.engine("en-de-2-1", beside=(one,))
    replies = [stage.submit(parts=(b"", str(number).encode())) for number in range(4)]
    taken = [engine.next_frame() for engine in (one, other, one, other)]
    assert [frame.parts[2] for frame in taken] == [b"0", b"1", b"2", b"3"]
    for frame in (taken[1], taken[3]):
        other.channel.send(Frame(Kind.ANSWER, frame.request, ()))
    assert [replies[1].code(), replies[3].code()] == [None, None]
    for number in (4, 5):
        stage.submit(parts=(b"", str(number).encode()))
        assert other.next_frame().parts[2] == str(number).encode()


def test_work_that_waited_for_a_dead_engine_goes_to_the_one_beside_it_at_once(stage: Stage) -> None:
    one = stage.engine("en-de-1-1")
    other = stage.engine("en-de-2-1", beside=(one,))
    reply = stage.submit(parts=(b"", b"kept"))
    one.next_frame()
    one.die()
    request = other.next_frame()
    assert request.parts[2] == b"kept"
    other.channel.send(Frame(Kind.ANSWER, request.request, ()))
    assert reply.code() is None


def test_work_that_killed_two_engines_is_not_given_a_third(stage: Stage) -> None:
    first = stage.engine()
    reply = stage.submit()
    first.next_frame()
    first.die()
    second = stage.engine("en-de-2")
    second.next_frame()
    second.die()
    assert reply.code() is ErrorCode.RESTARTING


def test_a_request_before_any_engine_waits_for_one(stage: Stage) -> None:
    stage.publish()
    reply = stage.submit()
    engine = stage.engine()
    engine.channel.send(Frame(Kind.ANSWER, engine.next_frame().request, ()))
    assert reply.code() is None


def test_nobody_is_held_for_ever(kind: type[Link], directory: Path) -> None:
    stage = Stage(kind, directory, hold_s=0.1)
    stage.publish()
    assert stage.submit().code() is ErrorCode.RESTARTING
    stage.close()


def test_a_caller_who_went_away_is_reported_to_the_engine(stage: Stage) -> None:
    engine = stage.engine()
    reply = stage.submit()
    number = engine.next_frame().request
    reply.cancelled = True
    assert engine.next_frame() == Frame(Kind.CANCEL, number)
    engine.channel.send(Frame(Kind.ERROR, number, (b"CANCELLED", b"CANCELLED: gone")))
    assert reply.code() is ErrorCode.CANCELLED


def test_a_draining_server_refuses_newcomers_and_finishes_the_rest(stage: Stage) -> None:
    engine = stage.engine()
    admitted = stage.submit()
    number = engine.next_frame().request
    stage.publish(draining=True)
    assert stage.submit().code() is ErrorCode.DRAINING
    engine.channel.send(Frame(Kind.ANSWER, number, ()))
    assert admitted.code() is None


def test_after_a_reload_new_work_goes_to_the_new_engine_and_old_work_ends_where_it_is(stage: Stage) -> None:
    old = stage.engine()
    first = stage.submit()
    number = old.next_frame().request
    new = stage.engine("en-de-2")
    second = stage.submit()
    new.channel.send(Frame(Kind.ANSWER, new.next_frame().request, ()))
    assert second.code() is None
    old.channel.send(Frame(Kind.ANSWER, number, ()))
    assert first.code() is None


class TestSessions:
    def test_go_back_to_the_engine_that_holds_them(self, stage: Stage) -> None:
        old = stage.engine()
        stage.engine("en-de-2")
        reply = stage.submit(Kind.DECODE, (b"en-de-1.secret", b"{}", b""))
        request = old.next_frame()
        assert request.kind is Kind.DECODE
        old.channel.send(Frame(Kind.ANSWER, request.request, ()))
        assert reply.code() is None

    def test_of_an_engine_that_is_gone_are_lost(self, stage: Stage) -> None:
        stage.engine("en-de-2")
        assert stage.submit(Kind.DECODE, (b"en-de-1.secret", b"{}", b"")).code() is ErrorCode.SESSION_LOST

    def test_are_lost_with_their_engine(self, stage: Stage) -> None:
        engine = stage.engine()
        reply = stage.submit(Kind.DECODE, (b"en-de-1.secret", b"{}", b""))
        engine.next_frame()
        engine.die()
        assert reply.code() is ErrorCode.SESSION_LOST


class TestSeveralBundles:
    @pytest.fixture
    def stage(self, kind: type[Link], directory: Path) -> Iterator[Stage]:
        stage = Stage(kind, directory, bundles=("en-de", "de-en"))
        yield stage
        stage.close()

    def test_are_chosen_by_the_request(self, stage: Stage) -> None:
        stage.engine()
        other = stage.engine("de-en-1", "de-en")
        reply = stage.submit(parts=(b'{"model": "de-en"}', b"hallo"))
        other.channel.send(Frame(Kind.ANSWER, other.next_frame().request, ()))
        assert reply.code() is None

    @pytest.mark.parametrize("options", [b"", b"{}", b'{"model": "xx"}', b'{"model": 3}', b"[]"])
    def test_must_be_chosen(self, stage: Stage, options: bytes) -> None:
        stage.engine()
        stage.engine("de-en-1", "de-en")
        assert stage.submit(parts=(options, b"hallo")).code() is ErrorCode.INVALID_REQUEST


def test_a_request_that_no_frame_could_carry_is_refused_here(stage: Stage) -> None:
    stage.engine()
    reply = stage.submit(parts=(b"", bytes(65 << 20)))
    assert reply.code() is ErrorCode.INVALID_REQUEST


def test_closing_leaves_nobody_without_a_last_word(kind: type[Link], directory: Path) -> None:
    stage = Stage(kind, directory)
    engine = stage.engine()
    reply = stage.submit()
    engine.next_frame()
    stage.close()
    assert reply.code() is ErrorCode.DRAINING


def test_a_routing_table_is_read_as_it_was_told() -> None:
    sockets = {"en-de": ("/run/a.sock", "/run/b.sock"), "de-en": ()}
    table = RoutingTable(("en-de", "de-en"), sockets, draining=True, hold_s=2.5, restarts={"engine": 3, "triton": 1})
    assert RoutingTable.from_frame(table.frame()) == table
