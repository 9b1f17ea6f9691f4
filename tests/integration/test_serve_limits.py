"""Deadlines, cancellation, overload and priorities, on a server small enough to be filled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from served import Caller, Server, eventually
from shared_sentences import LONG

SLOW = {"cache": False, "beam_size": 4, "min_length": 120, "max_length": 120}


@pytest.fixture(scope="module")
def small(reference_bundle: Path) -> Iterator[Server]:
    with Server.start([f"en-de={reference_bundle}"], "--max-batch", "4", "--max-queue", "8", "--threads", "1") as server:
        yield server


@pytest.fixture
def caller(small: Server) -> Iterator[Caller]:
    caller = small.caller()
    yield caller
    caller.close()
    eventually(lambda: gauge(small, "running_requests") + gauge(small, "queued_requests") == 0)


def gauge(server: Server, name: str) -> float:
    return server.metrics().get(f'dragoman_{name}{{model="en-de"}}', 0)


def count(server: Server, outcome: str) -> float:
    return server.metrics().get(f'dragoman_requests_total{{model="en-de",outcome="{outcome}"}}', 0)


def test_a_full_queue_refuses_at_once_with_a_retry_time(small: Server, caller: Caller) -> None:
    futures = [caller.translate_later([f"{LONG} {number}"], **SLOW) for number in range(24)]
    first = eventually(lambda: [future for future in futures if future.done()])
    errors = [future.exception() for future in futures]
    refused = [error for error in errors if error is not None]
    assert refused
    assert len(refused) < len(futures)
    assert all(error.code() is grpc.StatusCode.UNAVAILABLE for error in refused)
    for error in refused:
        assert re.match(r"OVERLOADED retry_after_ms=\d+: the queue is full", error.details())
    assert first[0].exception() is not None, "a refusal comes before any answer"


def test_a_document_longer_than_the_queue_is_translated_all_the_same(small: Server, caller: Caller) -> None:
    answer = caller.translate(["It is raining.\n" * 40], cache=False, beam_size=1)
    assert answer.best[0].count("\n") == 40


def test_a_request_is_given_up_when_its_time_has_passed(small: Server, caller: Caller) -> None:
    with pytest.raises(grpc.RpcError) as error:
        caller.translate([LONG], timeout_ms=5, **SLOW)
    assert error.value.code() is grpc.StatusCode.CANCELLED
    assert error.value.details().startswith("DEADLINE_EXCEEDED: ")


def test_time_spent_in_the_queue_counts_too(small: Server, caller: Caller) -> None:
    busy = [caller.translate_later([LONG], **SLOW) for _ in range(7)]
    eventually(lambda: any(future.done() for future in busy))  # the others run and wait now
    with pytest.raises(grpc.RpcError) as error:
        caller.translate(["It is raining."], timeout_ms=20, beam_size=4, cache=False)  # as large as they: behind them
    assert error.value.details().startswith("DEADLINE_EXCEEDED: ")
    assert [future.exception() for future in busy] == [None] * 7


def test_cancelled_requests_are_dropped(small: Server, caller: Caller) -> None:
    before = count(small, "cancelled")
    futures = [caller.translate_later([LONG] * 60, **SLOW)]  # more than is done before the gauges are told
    eventually(lambda: gauge(small, "running_requests") > 0)
    for future in futures:
        future.cancel()
    eventually(lambda: count(small, "cancelled") > before)
    eventually(lambda: gauge(small, "running_requests") + gauge(small, "queued_requests") == 0)


def test_a_cancelled_stream_is_dropped(small: Server, caller: Caller) -> None:
    before = count(small, "cancelled")
    stream = caller.stream(LONG, **{**SLOW, "beam_size": 1})
    next(stream)
    caller.channel.close()
    eventually(lambda: count(small, "cancelled") > before)


def test_interactive_requests_go_before_batch_ones(small: Server, caller: Caller) -> None:
    busy = caller.translate_later([LONG], **SLOW)
    batch = [caller.translate_later([f"{LONG} {n}"], priority="batch", **SLOW) for n in range(4)]
    interactive = caller.translate_later(["It is raining."], cache=False)
    assert interactive.exception() is None
    assert not all(future.done() for future in batch)
    assert [future.exception() for future in (busy, *batch)] == [None] * 5


def test_refusals_are_counted(small: Server, caller: Caller) -> None:
    before = gauge(small, "refusals_total")
    futures = [caller.translate_later([LONG], **SLOW) for _ in range(20)]
    assert any(future.exception() for future in futures)
    eventually(lambda: gauge(small, "refusals_total") > before)
