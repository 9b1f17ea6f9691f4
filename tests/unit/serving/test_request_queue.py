"""How many requests the request handler takes in, and which it refuses."""

from __future__ import annotations

import pytest
from fake_bundle import CountingLetters
from handler_server import Server, alone

from dragoman.serving.engine import EngineLimits
from dragoman.serving.ipc.frames import Kind
from dragoman.serving.process import request_admission


def test_a_document_longer_than_the_queue_is_fed_bit_by_bit() -> None:
    server = Server(EngineLimits(max_rows=2, max_beam_size=2, max_queue_requests=3))
    server.ask(1, "\n".join(f"line {number}" for number in range(40)))
    assert server.finish().texts(1)[0].count("\n") == 39


def test_a_request_that_finds_the_queue_full_is_refused() -> None:
    server = Server(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=2), cache_bytes=0)
    for number in range(8):
        server.ask(number, "hello")
    server.finish()
    refused = [number for number in range(8) if server.last_answers(number)[0].kind is Kind.ERROR]
    assert refused == [2, 3, 4, 5, 6, 7]
    assert all(server.error(number).startswith("OVERLOADED retry_after_ms=") for number in refused)


def test_a_full_queue_refuses_before_anything_is_tokenised() -> None:
    tokenizer = CountingLetters()
    server = Server(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=1), cache_bytes=0, tokenizer=tokenizer)
    server.ask(0, "hello")
    server.jobs.run(1.0)
    encoded = tokenizer.encoded
    for number in range(1, 5):
        server.ask(number, "hello\nworld")
    assert [server.error(number).split()[0] for number in range(1, 5)] == ["OVERLOADED"] * 4
    assert tokenizer.encoded == encoded


def test_requests_that_are_being_read_count_as_queued() -> None:
    server = Server(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=2), cache_bytes=0)
    for number in range(3):
        server.ask(number, "hello")
    assert server.error(2).startswith("OVERLOADED")
    assert server.finish().texts(0) == server.texts(1)


def test_a_full_queue_does_not_refuse_what_the_cache_answers() -> None:
    server = Server(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=1))
    server.ask(0, "hello")
    server.finish()
    server.ask(1, "world")
    server.ask(2, "hello")
    server.ask(3, "hello", cache=False)
    assert server.error(3).startswith("OVERLOADED")
    assert server.finish().texts(2) == server.texts(0)


def test_the_room_in_the_queue_counts_what_waits_and_what_is_being_read() -> None:
    server = Server(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=3), cache_bytes=0)
    rooms = [server.handler.queue_room()[0]]
    for number in range(2):
        server.ask(number, "hello")
        rooms.append(server.handler.queue_room()[0])
    server.finish()
    assert [*rooms, server.handler.queue_room()[0]] == [3, 2, 1, 3]


def test_a_full_queue_has_room_for_lookups_in_a_response_cache_that_holds_something() -> None:
    server = Server(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=1))
    server.ask(0, "hello", cache=False)
    assert server.handler.queue_room()[0] == 0
    server.finish()
    server.ask(1, "hello")
    server.finish()
    server.ask(2, "world")
    assert server.handler.queue_room()[0] > 0


def test_requests_that_the_backend_refused_are_counted() -> None:
    server = Server()
    server.handler.count_refused(5)
    changes = {(name, label): amount for name, label, amount in server.recorder.take_changes()}
    assert changes["dragoman_requests_total", "overloaded"] == changes["dragoman_refusals_total", ""] == 5


def test_more_text_than_it_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_admission, "_MAX_OPEN_BYTES", 10_000)
    server, text = Server(), "1234567. " * 600
    server.ask(1, text)
    server.ask(2, text)
    server.ask(4, "12345678")
    server.finish()
    server.ask(3, text)
    server.finish()
    assert server.texts(1) == server.texts(3)
    assert "too much text is waiting" in server.error(2)
    assert server.texts(4) == [alone("12345678")], "short texts are always taken"
