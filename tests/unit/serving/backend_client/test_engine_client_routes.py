"""To which engine the EngineClient sends a request, and which it holds or refuses."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_stage import Stage

from compiled import can_compile
from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.serving.process.queue_room import read_refused
from dragoman.wire import ErrorCode, Limits

pytestmark = can_compile


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


def test_a_draining_server_refuses_new_requests_and_finishes_the_rest(stage: Stage) -> None:
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
