"""The Triton backend's EngineClient, between a supervisor and engines that do what the test says."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest
from engine_stage import Stage
from hypothesis import given
from hypothesis import strategies as st

from compiled import can_compile
from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.wire import WIRE_VERSION, ErrorCode
from engine_client import json_of, wire_version

pytestmark = can_compile


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


def test_more_bytes_than_may_be_open_are_refused_as_overload(stage: Stage) -> None:
    stage.publish(hold_s=100.0)  # copying them takes seconds under a sanitizer; the first must not end before the last comes
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


def test_the_backend_has_the_version_of_the_contract() -> None:
    assert wire_version() == WIRE_VERSION


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_become_a_json_string(raw: bytes) -> None:
    decoded = json.loads(json_of(raw).decode())
    assert isinstance(decoded, str)
    with contextlib.suppress(UnicodeDecodeError):
        assert decoded == raw.decode()
