"""The Triton backend's EngineClient, between a supervisor and engines that do what the test says."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import selectors
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiled import can_compile
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.serving.process.queue_room import read_refused
from dragoman.serving.triton.routes import RoutingTable
from dragoman.wire import WIRE_VERSION, ErrorCode, Limits
from engine_client import EngineClient, json_of, wire_version

pytestmark = can_compile


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


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as short:  # unix sockets have short names only
        yield Path(short)


@pytest.fixture
def stage(directory: Path) -> Iterator[Stage]:
    stage = Stage(directory)
    yield stage
    stage.close()


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


def test_an_error_of_the_engine_is_passed_on_in_both_forms(stage: Stage) -> None:
    engine = stage.engine()
    reply = stage.submit()
    text = 'OVERLOADED retry_after_ms=250: the queue is full: "256"'
    engine.channel.send(Frame(Kind.ERROR, engine.next_frame().request, (b"OVERLOADED", text.encode())))
    assert reply.code() is ErrorCode.OVERLOADED
    assert reply.failure == text
    error = {"code": "OVERLOADED", "message": 'the queue is full: "256"', "retry_after_ms": 250}
    assert reply.details == {"wire_version": WIRE_VERSION, "error": error}


def test_an_error_without_a_hint_has_none_in_details(stage: Stage) -> None:
    engine = stage.engine()
    reply = stage.submit()
    engine.channel.send(Frame(Kind.ERROR, engine.next_frame().request, (b"INVALID_REQUEST", b"INVALID_REQUEST: a: b")))
    assert reply.code() is ErrorCode.INVALID_REQUEST
    assert reply.details["error"] == {"code": "INVALID_REQUEST", "message": "a: b", "retry_after_ms": None}


def test_a_stream_that_has_delivered_something_is_not_sent_to_another_engine(stage: Stage) -> None:
    engine = stage.engine()
    reply = stage.submit(Kind.STREAM)
    engine.channel.send(Frame(Kind.CHUNK, engine.next_frame().request, (b"seen", b"{}")))
    stage.until(lambda: bool(reply.delivered))
    engine.die()
    assert reply.code() is ErrorCode.RESTARTING


@pytest.mark.parametrize("kind", [Kind.TRANSLATE, Kind.STREAM, Kind.ENCODE])
def test_a_request_in_hand_at_a_death_is_sent_to_the_next_engine(stage: Stage, kind: Kind) -> None:
    engine = stage.engine()
    reply = stage.submit(kind, parts=(b"", b"kept"))
    engine.next_frame()
    engine.die()
    successor = stage.engine("en-de-2")
    request = successor.next_frame()
    assert (request.kind, request.parts[2]) == (kind, b"kept")
    successor.channel.send(Frame(Kind.ANSWER, request.request, ()))
    assert reply.code() is None


class TestSuspects:
    def test_a_request_with_which_two_engines_died_is_refused(self, stage: Stage) -> None:
        (reply,) = stage.kill_two_engines_with((b"", b"poison"))
        assert reply.code() is ErrorCode.SUSPECT

    def test_it_is_recognised_when_its_caller_sends_it_again_with_less_time_left(self, stage: Stage) -> None:
        options = b'{"beam_size": 2, "timeout_ms": %d, "request_id": "%s"}'
        (reply,) = stage.kill_two_engines_with((options % (30000, b"one"), b"poison"))
        assert reply.code() is ErrorCode.SUSPECT
        stage.engine("en-de-3")
        assert stage.submit(parts=(options % (12345, b"two"), b"poison")).code() is ErrorCode.SUSPECT

    @pytest.mark.parametrize("parts", [(b"", b"another"), (b'{"beam_size": 3}', b"poison"), (b"", b"poison", b"poison")])
    def test_other_requests_are_taken(self, stage: Stage, parts: tuple[bytes, ...]) -> None:
        (refused,) = stage.kill_two_engines_with((b"", b"poison"))
        assert refused.code() is ErrorCode.SUSPECT
        engine = stage.engine("en-de-3")
        reply = stage.submit(parts=parts)
        engine.channel.send(Frame(Kind.ANSWER, engine.next_frame().request, ()))
        assert reply.code() is None

    def test_equal_requests_in_hand_at_one_death_count_once(self, stage: Stage) -> None:
        engine = stage.engine()
        replies = [stage.submit() for _ in range(3)]
        for _ in replies:
            engine.next_frame()
        engine.die()
        successor = stage.engine("en-de-2")
        for _ in replies:
            successor.channel.send(Frame(Kind.ANSWER, successor.next_frame().request, ()))
        assert [reply.code() for reply in replies] == [None, None, None]

    def test_an_answer_clears_the_suspicion(self, stage: Stage) -> None:
        for number in range(4):
            engine = stage.engine(f"dies-{number}")
            reply = stage.submit()
            engine.next_frame()
            engine.die()
            successor = stage.engine(f"answers-{number}")
            successor.channel.send(Frame(Kind.ANSWER, successor.next_frame().request, ()))
            assert reply.code() is None

    def test_a_stream_that_was_cut_and_is_sent_again_is_refused_after_the_second_death(self, stage: Stage) -> None:
        codes = []
        for number in range(3):
            engine = stage.engine(f"en-de-{number}")
            reply = stage.submit(Kind.STREAM)
            if codes[-1:] != [ErrorCode.SUSPECT]:
                engine.channel.send(Frame(Kind.CHUNK, engine.next_frame().request, (b"seen", b"{}")))
                stage.until(lambda reply=reply: bool(reply.delivered))  # type: ignore[misc]
                engine.die()
            codes.append(reply.code())
        assert codes == [ErrorCode.RESTARTING, ErrorCode.SUSPECT, ErrorCode.SUSPECT]


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


class TestFullQueues:
    """An engine says how many requests its queue takes; what would not fit is refused without it."""

    def test_requests_beyond_the_room_are_refused_at_once(self, stage: Stage) -> None:
        engine = stage.engine_with_room(read=0, places=2, retry_after_ms=70)
        for _ in range(2):
            stage.submit()
            engine.next_frame()
        reply = stage.submit()
        assert reply.code() is ErrorCode.OVERLOADED
        assert reply.failure == "OVERLOADED retry_after_ms=70: the queue is full"

    def test_what_is_on_its_way_counts(self, stage: Stage) -> None:
        engine = stage.engine_with_room(read=0, places=2)
        for _ in range(2):
            stage.submit()
            engine.next_frame()
        stage.tell_room(engine, read=1, places=2)  # two places behind the first request, and the second is on its way
        open_reply = stage.submit()
        assert engine.next_frame().kind is Kind.TRANSLATE
        assert stage.submit().code() is ErrorCode.OVERLOADED
        assert not open_reply.ended.is_set()

    def test_the_engine_is_told_how_many_were_refused(self, stage: Stage) -> None:
        engine = stage.engine_with_room(read=0, places=0)
        for _ in range(3):
            assert stage.submit().code() is ErrorCode.OVERLOADED
        stage.send_room(engine, read=0, places=1)
        told = engine.next_frame()
        assert told.kind is Kind.REFUSED
        assert read_refused(told) == 3

    def test_sessions_need_no_room_in_the_queue(self, stage: Stage) -> None:
        engine = stage.engine_with_room(read=0, places=0)
        stage.submit(Kind.ENCODE)
        assert engine.next_frame().kind is Kind.ENCODE

    def test_an_engine_with_room_is_preferred_to_one_with_less_to_do(self, stage: Stage) -> None:
        full = stage.engine_with_room("en-de-1-1", read=0, places=0)
        other = stage.engine("en-de-2-1", beside=(full,))
        for _ in range(2):
            stage.submit()
            assert other.next_frame().kind is Kind.TRANSLATE

    @pytest.mark.parametrize("part", [b"", bytes(8), bytes(32)])
    def test_an_unreadable_room_changes_nothing(self, stage: Stage, part: bytes) -> None:
        engine = stage.engine_with_room(read=0, places=1)
        engine.channel.send(Frame(Kind.ROOM, 0, (part,)))
        engine.channel.send(Frame(Kind.ROOM))
        stage.until(lambda: stage.client.errors == 2)
        stage.submit()
        assert engine.next_frame().kind is Kind.TRANSLATE


def test_a_request_of_a_dead_engine_goes_to_the_one_beside_it_at_once(stage: Stage) -> None:
    one = stage.engine("en-de-1-1")
    other = stage.engine("en-de-2-1", beside=(one,))
    reply = stage.submit(parts=(b"", b"kept"))
    one.next_frame()
    one.die()
    request = other.next_frame()
    assert request.parts[2] == b"kept"
    other.channel.send(Frame(Kind.ANSWER, request.request, ()))
    assert reply.code() is None


def test_a_request_before_any_engine_waits_for_one(stage: Stage) -> None:
    stage.publish()
    reply = stage.submit()
    engine = stage.engine()
    engine.channel.send(Frame(Kind.ANSWER, engine.next_frame().request, ()))
    assert reply.code() is None


def test_a_request_is_held_no_longer_than_the_table_allows(directory: Path) -> None:
    stage = Stage(directory, hold_s=0.1)
    stage.publish()
    assert stage.submit().code() is ErrorCode.RESTARTING
    stage.close()


def test_the_time_with_an_engine_is_not_part_of_the_hold(directory: Path) -> None:
    stage = Stage(directory, hold_s=1.0)
    engine = stage.engine()
    reply = stage.submit()
    (arrived_s,) = struct.unpack_from("<d", engine.next_frame().parts[0])
    stage.until(lambda: time.monotonic() > arrived_s + 1.1)
    engine.die()
    successor = stage.engine("en-de-2")
    successor.channel.send(Frame(Kind.ANSWER, successor.next_frame().request, ()))
    assert reply.code() is None
    stage.close()


def test_what_is_held_when_the_server_drains_is_refused(stage: Stage) -> None:
    stage.publish()
    reply = stage.submit()
    stage.publish(draining=True)
    assert reply.code() is ErrorCode.DRAINING


def test_a_cancelled_call_is_reported_to_the_engine(stage: Stage) -> None:
    engine = stage.engine()
    reply = stage.submit()
    number = engine.next_frame().request
    reply.cancelled = True
    assert engine.next_frame() == Frame(Kind.CANCEL, number)
    engine.channel.send(Frame(Kind.ERROR, number, (b"CANCELLED", b"CANCELLED: gone")))
    assert reply.code() is ErrorCode.CANCELLED


def test_the_answer_to_a_cancelled_request_is_delivered_later(stage: Stage) -> None:
    """Triton 2.51 may still be handling the cancellation."""
    engine = stage.engine()
    reply = stage.submit()
    number = engine.next_frame().request
    reply.cancelled = True
    assert engine.next_frame() == Frame(Kind.CANCEL, number)
    engine.channel.send(Frame(Kind.ANSWER, number, (b"too late",)))
    sent_s = time.monotonic()
    assert reply.code() is None
    assert time.monotonic() - sent_s > 0.045


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
    def stage(self, directory: Path) -> Iterator[Stage]:
        stage = Stage(directory, bundles=("en-de", "de-en"))
        yield stage
        stage.close()

    def test_are_chosen_by_the_request(self, stage: Stage) -> None:
        stage.engine()
        other = stage.engine("de-en-1", "de-en")
        reply = stage.submit(model=b"de-en")
        other.channel.send(Frame(Kind.ANSWER, other.next_frame().request, ()))
        assert reply.code() is None

    @pytest.mark.parametrize("model", [b"", b"xx", b"EN-DE", b"\xff\xfe"])
    def test_must_be_chosen(self, stage: Stage, model: bytes) -> None:
        stage.engine()
        stage.engine("de-en-1", "de-en")
        reply = stage.submit(model=model)
        assert reply.code() is ErrorCode.INVALID_REQUEST
        assert "en-de, de-en" in reply.failure


def test_a_bundle_that_is_not_there_is_refused_even_where_there_is_only_one(stage: Stage) -> None:
    stage.engine()
    reply = stage.submit(model=b"fr-en")
    assert reply.code() is ErrorCode.INVALID_REQUEST
    assert "no model 'fr-en' here; this server has en-de" in reply.failure


def test_more_bytes_than_may_be_open_are_refused_as_overload(stage: Stage) -> None:
    stage.publish()
    for _ in range(2):
        stage.submit(parts=(b"", bytes(60 << 20)))
    reply = stage.submit(parts=(b"", bytes(60 << 20)))
    assert reply.code() is ErrorCode.OVERLOADED


def test_short_requests_overtake_long_ones_that_wait_and_cancellations_do_not(stage: Stage) -> None:
    engine = stage.engine()
    for size in (1, 2):
        stage.submit(parts=(b"", bytes(size << 20)))
    cancelled = stage.submit(parts=(b"", bytes(3 << 20)))
    cancelled.cancelled = True
    stage.submit(parts=(b"", b"short"))
    arrived = [engine.next_frame() for _ in range(5)]
    sizes = [len(frame.parts[2]) if frame.kind is Kind.TRANSLATE else 0 for frame in arrived]
    assert sizes == [1 << 20, 5, 2 << 20, 3 << 20, 0]
    assert (arrived[4].kind, arrived[4].request) == (Kind.CANCEL, arrived[3].request)


def test_closing_leaves_no_request_without_a_last_response(directory: Path) -> None:
    stage = Stage(directory)
    engine = stage.engine()
    reply = stage.submit()
    engine.next_frame()
    stage.close()
    assert reply.code() is ErrorCode.DRAINING


def test_an_exception_in_its_thread_is_logged_and_survived(stage: Stage) -> None:
    engine = stage.engine()
    engine.channel.send(Frame(Kind.METRICS))  # the test's observer throws
    stage.until(lambda: stage.client.errors > 0)
    stage.supervisor.channel.send(Frame(Kind.ROUTES, 0, (b"rubbish",)))
    stage.until(lambda: stage.client.errors > 1)
    engine.channel.send(Frame(Kind.ERROR, 77, ()))
    reply = stage.submit()
    engine.channel.send(Frame(Kind.ANSWER, engine.next_frame().request, ()))
    assert reply.code() is None


def test_an_error_without_its_parts_fails_its_request(stage: Stage) -> None:
    engine = stage.engine()
    reply = stage.submit()
    engine.channel.send(Frame(Kind.ERROR, engine.next_frame().request, ()))
    assert reply.code() is ErrorCode.INTERNAL


class TestTable:
    def test_limits_are_those_of_the_contract_until_the_supervisor_sends_others(self, stage: Stage) -> None:
        assert stage.client.limits == Limits()
        sent = Limits(1, 2, 3, 4, 5)
        stage.publish(limits=sent)
        assert stage.client.limits == sent

    def test_the_status_is_what_the_supervisor_sent_last(self, stage: Stage) -> None:
        stage.publish(status={"server": "é"})
        assert json.loads(stage.client.status) == {"server": "é"}

    def test_the_client_is_ready_when_every_bundle_has_an_engine(self, stage: Stage) -> None:
        stage.publish()
        assert not stage.client.wait_until_ready(0.01)
        stage.engine()
        assert stage.client.wait_until_ready(5)


def test_the_backend_has_the_version_of_the_contract() -> None:
    assert wire_version() == WIRE_VERSION


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_become_a_json_string(raw: bytes) -> None:
    decoded = json.loads(json_of(raw).decode())
    assert isinstance(decoded, str)
    with contextlib.suppress(UnicodeDecodeError):
        assert decoded == raw.decode()
